"""Blocks of a server's record, and the pace that they tell of the machine."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from veltair.eval.recorded_blocks import (
    Block,
    Part,
    machine_pace,
    predicted_ns,
    recorded_blocks,
)
from veltair.runtime._native import sched
from veltair.runtime.record import (
    DecisionLine,
    DecisionRecord,
    Header,
    Line,
    ModelRecord,
    TaskRow,
    WorkerRow,
)

CORES = 3
MODELS = ("short/1", "long/2")  # as the server has them, by name and version


def task(number: int, model: int, arrival_ns: int, next_layer: int = 0) -> TaskRow:
    """A query that came at `arrival_ns`."""
    return number, model, 1, 1, next_layer, 0, 0, arrival_ns, 0, number, 0


def worker(index: int, number: int, cores: int) -> WorkerRow:
    """A worker that runs a block of a task on as many cores as it wants."""
    return index, number, 0, 1, 0, cores, cores, 0, 0, 0


def decision(
    now_ns: int,
    event: str,
    index: int,
    *,
    tasks: tuple[TaskRow, ...] = (),
    workers: tuple[WorkerRow, ...] = (),
    begins: tuple[int, int, int] = (-1, 0, 0),
    action: str = "run",
    cores: int = 1,
    revokes: tuple[int, int] = (-1, 0),
) -> DecisionLine:
    """Worker `index` is told to run layers of a task: (task, begin, end); -1: nothing.

    `revokes` is a worker and the cores that it keeps.
    """
    return msgspec.convert(
        {
            "kind": "decision",
            "sequence": now_ns,
            "epoch": 1,
            "now_ns": now_ns,
            "event": event,
            "worker": index,
            "free_cores": CORES - sum(row[6] for row in workers),
            "level": 0,
            "queue_length": len(tasks),
            "queue": tasks,
            "tasks": (),
            "workers": workers,
            "decision": DecisionRecord(
                task=begins[0],
                layer_begin=begins[1],
                layer_end=begins[2],
                level=0,
                cores=cores,
                action=action,
                reason="",
                expected_ns=0,
                revoke_worker=revokes[0],
                revoke_keep=revokes[1],
            ),
        },
        DecisionLine,
        from_attributes=True,
    )


def written(path: Path, lines: list[DecisionLine]) -> Path:
    """A server's record of some decisions, in an order that is not theirs."""
    model = ModelRecord.of("", sched.ModelProfile.unknown())
    header = Header(
        schema=1,
        veltair="",
        clock="monotonic",
        cores=CORES,
        workers=2,
        models=[msgspec.structs.replace(model, name=name) for name in MODELS],
    )
    texts: list[Line] = [header, *reversed(lines)]
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in texts))
    return path


def test_blocks_end_with_the_next_decision_or_with_their_query(tmp_path: Path) -> None:
    a, b, c = task(1, 1, 90), task(2, 0, 95), task(3, 0, 99)
    lines = [
        decision(100, "worker_idle", 0, tasks=(a,), begins=(1, 0, 2), cores=2),
        decision(105, "worker_idle", 1, tasks=(b,), workers=(worker(0, 1, 2),), begins=(2, 0, 4)),
        # Of the first query the second block, on fewer cores.
        decision(
            130, "block_end", 0, tasks=(a,), workers=(worker(0, 1, 2), worker(1, 2, 1)),
            begins=(1, 2, 3),
        ),
        # Worker 1 has ended its query and begins another, for which nobody asks below.
        decision(150, "worker_idle", 1, tasks=(c,), workers=(worker(0, 1, 1),), begins=(3, 0, 4)),
    ]  # fmt: skip
    found = recorded_blocks(written(tmp_path / "record", lines), {90: 170, 95: 148})
    assert found == [
        Block(
            model="long", arrival_ns=90, layer_begin=0, layer_end=2, busy=0,
            begin_ns=100, parts=(Part(cores=2, ns=30),),
        ),
        Block(
            model="short", arrival_ns=95, layer_begin=0, layer_end=4, busy=2,
            begin_ns=105, parts=(Part(cores=1, ns=43),),
        ),
        Block(
            model="long", arrival_ns=90, layer_begin=2, layer_end=3, busy=1,
            begin_ns=130, parts=(Part(cores=1, ns=40),),
        ),
    ]  # fmt: skip
    assert [block.took_ns for block in found] == [30, 43, 40]


def test_a_block_gains_what_others_leave_the_oldest_query_first(tmp_path: Path) -> None:
    a, b, c = task(1, 0, 90), task(2, 1, 95), task(3, 1, 97)
    lines = [
        decision(100, "worker_idle", 0, tasks=(a,), begins=(1, 0, 9), cores=1),
        decision(
            101, "worker_idle", 2, tasks=(c,), workers=(worker(0, 1, 1),), begins=(3, 0, 9), cores=3
        ),
        # The first ends its query at 120: the third has what is left of the second's wants.
        decision(
            110, "block_end", 2, tasks=(c,), workers=(worker(0, 1, 1), worker(2, 3, 2)),
            begins=(3, 9, 10), cores=1,
        ),
        decision(
            111, "worker_idle", 1, tasks=(b,), workers=(worker(0, 1, 1), worker(2, 3, 1)),
            begins=(2, 0, 9), cores=2,
        ),
        decision(
            112, "block_end", 2, tasks=(c,), workers=(worker(0, 1, 1), worker(1, 2, 1),
            worker(2, 3, 1)), begins=(3, 10, 11), cores=2,
        ),
    ]  # fmt: skip
    found = recorded_blocks(written(tmp_path / "record", lines), {90: 120, 95: 140, 97: 150})
    parts = {(block.arrival_ns, block.layer_begin): block.parts for block in found}
    assert parts == {
        (90, 0): (Part(cores=1, ns=20),),
        (97, 0): (Part(cores=2, ns=9),),  # of the three that it wants two are free
        (97, 9): (Part(cores=1, ns=2),),
        (95, 0): (Part(cores=1, ns=9), Part(cores=2, ns=20)),
        (97, 10): (Part(cores=1, ns=28), Part(cores=2, ns=10)),
    }


def test_a_block_that_cores_are_revoked_of_goes_on_with_those_that_are_left(
    tmp_path: Path,
) -> None:
    a, b = task(1, 0, 90), task(2, 1, 95)
    lines = [
        decision(100, "worker_idle", 0, tasks=(a,), begins=(1, 0, 9), cores=3),
        decision(
            110, "worker_idle", 1, tasks=(b,), workers=(worker(0, 1, 3),), begins=(2, 0, 9),
            cores=1, revokes=(0, 2),
        ),
    ]  # fmt: skip
    found = recorded_blocks(written(tmp_path / "record", lines), {90: 150, 95: 130})
    assert [block.parts for block in found] == [
        (Part(cores=1, ns=20),),
        (Part(cores=3, ns=10), Part(cores=2, ns=20), Part(cores=3, ns=20)),
    ]


def test_waiting_at_a_boundary_is_of_no_block(tmp_path: Path) -> None:
    a, b = task(1, 0, 90), task(2, 1, 95)
    full = (worker(0, 1, 2), worker(1, 2, 1))
    lines = [
        decision(100, "worker_idle", 0, tasks=(a,), begins=(1, 0, 2), cores=2),
        decision(101, "worker_idle", 1, tasks=(b,), workers=full[:1], begins=(2, 0, 1), cores=1),
        decision(110, "block_end", 0, tasks=(a,), workers=full, begins=(1, 2, 2), action="wait"),
        decision(140, "block_end", 0, tasks=(a,), workers=full[1:], begins=(1, 2, 4), cores=2),
    ]
    found = recorded_blocks(written(tmp_path / "record", lines), {90: 160, 95: 300})
    assert [(each.layer_begin, each.took_ns) for each in found] == [(0, 10), (2, 20), (0, 199)]


def test_a_block_is_predicted_by_the_shares_of_it_that_are_done_on_its_cores() -> None:
    profile = sched.ModelProfile(
        qos_ns=1000, cores=[1, 2], levels=1, model_ns=[100, 50], variants=[1],
        layer_ns=[100, 50],
    )  # fmt: skip
    plan = sched.ModelPlan(profile, 2)
    assert plan.time_ns(0, 1, 1) == 100
    # 60 of time for 20 / 100 and 40 / 50 of the block: as predicted, so costs are all that is more.
    parts = (Part(cores=1, ns=20), Part(cores=2, ns=40))
    found = predicted_ns(of_parts(*parts), plan, boundary_ns=10, gain_ns=5)
    assert found == pytest.approx(60 * (1 + 10 / 100 + 5 / 50))
    # Twice as slow, and what it loses costs nothing.
    parts = (Part(cores=2, ns=40), Part(cores=1, ns=120))
    assert predicted_ns(of_parts(*parts), plan, boundary_ns=0, gain_ns=5) == pytest.approx(80)


def of_parts(*parts: Part, begin_ns: int = 0) -> Block:
    """A block of one layer, alone."""
    return Block(
        model="a", arrival_ns=0, layer_begin=0, layer_end=1, busy=0, begin_ns=begin_ns, parts=parts
    )


def block(begin_ns: int, end_ns: int) -> Block:
    """A block that kept its core."""
    return of_parts(Part(cores=1, ns=end_ns - begin_ns), begin_ns=begin_ns)


def test_the_pace_of_a_step_is_of_the_time_that_blocks_have_in_it() -> None:
    blocks = [block(1000, 1010), block(1005, 1020), block(1040, 1045)]
    pace = machine_pace(blocks, [5, 10, 10], from_ns=1000, step_ns=10)
    # 15 of time for 5 + 10/3 of work; the second block alone; between; the last one.
    assert pace == pytest.approx((1.8, 1.5, (2 * 1.5 + 0.5) / 3, (1.5 + 2 * 0.5) / 3, 0.5))


def test_without_blocks_no_pace_is_known() -> None:
    assert machine_pace([], [], from_ns=0, step_ns=10) == ()
