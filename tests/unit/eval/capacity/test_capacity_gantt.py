"""A second's blocks from a record of decisions: whose, on which cores, which version, when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from veltair.eval.capacity.gantt import second
from veltair.eval.capacity.result import Bar
from veltair.eval.capacity.system import Observed
from veltair.runtime.record import (
    DecisionLine,
    DecisionRecord,
    Line,
    ModelRecord,
    PolicyLine,
    TaskRow,
    WorkerRow,
    make_header,
)
from veltair.runtime.simulate.arrivals import Arrivals

MS = 1_000_000
ZERO_NS = 5_000 * MS  # of the run, on the record's clock
FROM_NS = 100 * MS


def model(name: str) -> ModelRecord:
    """Two layers; of the second one, another variant is faster on two cores."""
    return ModelRecord(
        name=f"{name}/1",
        qos_ns=50 * MS,
        priority=1,
        cores=[1, 2],
        levels=1,
        model_ns=[20 * MS, 10 * MS],
        variants=[1, 2],
        layer_ns=[10, 5, 10, 8, 12, 6],
    )


def task(number: int, model: int, arrival_ms: int) -> TaskRow:
    return (number, model, 1, 1, 0, 0, 0, ZERO_NS + arrival_ms * MS, 0, number, 0)


def decision(
    sequence: int,
    now_ms: int,
    *,
    event: str,
    worker: int,
    chosen: dict[str, Any],
    tasks: list[TaskRow],
    workers: list[WorkerRow],
    free_cores: int,
) -> DecisionLine:
    return DecisionLine(
        sequence=sequence,
        epoch=0,
        now_ns=ZERO_NS + now_ms * MS,
        event="worker_idle" if event == "worker_idle" else "block_end",
        worker=worker,
        free_cores=free_cores,
        level=0,
        queue_length=1,
        queue=tasks if event == "worker_idle" else [],
        tasks=tasks if event == "block_end" else [],
        workers=workers,
        decision=DecisionRecord(
            **{
                "task": 0,
                "layer_begin": 0,
                "layer_end": 1,
                "level": 0,
                "cores": 1,
                "action": "run",
                "reason": "",
                "expected_ns": 0,
                "revoke_worker": -1,
                "revoke_keep": 0,
                **chosen,
            }
        ),
    )


def worker(index: int, number: int, *, cores: int, began_ms: int) -> WorkerRow:
    began_ns = ZERO_NS + began_ms * MS
    return (index, number, 0, 1, 0, cores, cores, began_ns, began_ns, 0)


@pytest.fixture
def lines() -> list[Line]:
    """Query 0 of `a` in two blocks beside query 1 of `b`, and one after the second."""
    header = make_header("monotonic", cores=3, workers=2)
    header = msgspec.structs.replace(header, models=[model("b"), model("a")])
    first, other, late = task(7, 1, 110), task(8, 0, 120), task(7, 1, 1200)
    return [
        header,
        PolicyLine(epoch=0, name="layer", options={}),
        decision(
            0,
            112,
            event="worker_idle",
            worker=0,
            chosen={"task": 7},
            tasks=[first],
            workers=[],
            free_cores=3,
        ),
        # Written out of order: each process writes its own lines. It asks for more than there is.
        decision(
            2,
            130,
            event="block_end",
            worker=0,
            chosen={"task": 7, "layer_begin": 1, "layer_end": 2, "cores": 3},
            tasks=[first],
            workers=[
                worker(0, 7, cores=1, began_ms=112),
                worker(1, 8, cores=1, began_ms=121),
            ],
            free_cores=1,
        ),
        decision(
            1,
            121,
            event="worker_idle",
            worker=1,
            chosen={"task": 8, "layer_end": 2},
            tasks=[other],
            workers=[worker(0, 7, cores=1, began_ms=112)],
            free_cores=2,
        ),
        decision(
            3,
            1201,
            event="worker_idle",
            worker=0,
            chosen={"task": 7},
            tasks=[late],
            workers=[],
            free_cores=3,
        ),
    ]


def found(lines: list[Line], folder: Path) -> tuple[Bar, ...]:
    record = folder / "decisions.jsonl"
    record.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    arrivals = Arrivals(
        time_ns=np.array([110, 120, 1200]) * MS, model=np.array([0, 1, 0], np.int32)
    )
    observed = Observed(
        submitted_ns=arrivals.time_ns,
        start_ns=arrivals.time_ns,
        end_ns=np.array([140, 160, 1230]) * MS,
        outcome=np.zeros(3, np.int64),
        errors=(),
    )
    return second(record, arrivals, observed, zero_ns=ZERO_NS, from_ns=FROM_NS)


def test_blocks_follow_the_decisions(lines: list[Line], tmp_path: Path) -> None:
    assert found(lines, tmp_path) == (
        Bar(
            cores=(0,),
            model="a",
            query=0,
            layers=(0, 0),
            version=0,
            begin_ns=12 * MS,
            end_ns=30 * MS,
        ),
        Bar(
            cores=(1,),
            model="b",
            query=1,
            layers=(0, 1),
            version=0,
            begin_ns=21 * MS,
            end_ns=60 * MS,  # when the query ended: no decision of this worker followed
        ),
        Bar(
            cores=(0, 2),
            model="a",
            query=0,
            layers=(1, 1),
            version=1,  # on two cores
            begin_ns=30 * MS,
            end_ns=40 * MS,
        ),
    )


def test_a_block_that_gains_cores_has_them(lines: list[Line], tmp_path: Path) -> None:
    later = decision(
        4,
        135,
        event="worker_idle",
        worker=1,
        chosen={"action": "wait"},
        tasks=[],
        workers=[worker(0, 7, cores=2, began_ms=112)],
        free_cores=0,
    )
    del lines[3]
    bars = found([*lines, msgspec.structs.replace(later, sequence=2)], tmp_path)
    assert bars[0].cores == (0, 1)
