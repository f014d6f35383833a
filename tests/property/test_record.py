"""Whatever the load: a record of a simulation replays to the same decisions, and tells apart."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veltair.runtime._native import devices, sched, sim
from veltair.runtime.record import Line, PolicyLine, make_batcher_line, make_header, recording
from veltair.runtime.replay import replay

MS = 1_000_000
POLICIES = [*sched.policy_names(), "block-3"]


def make_profile(random: np.random.Generator, levels: int) -> sched.ModelProfile:
    layers, counts = int(random.integers(1, 9)), [1, 2, 4, 8]
    base = random.integers(MS // 10, 2 * MS, (layers, 2, 1, 1))
    times = base // np.array(counts).reshape(1, 1, 4, 1) * np.arange(1, levels + 1)
    return sched.ModelProfile(
        qos_ns=int(random.choice([0, 5, 20])) * MS,
        cores=counts,
        levels=levels,
        model_ns=times[:, 0].sum(axis=0).ravel().tolist(),
        variants=[2] * layers,
        layer_ns=times.ravel().tolist(),
        priority=int(random.integers(1, 4)),
    )


@st.composite
def loads(draw: st.DrawFn) -> dict[str, Any]:
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    levels = draw(st.integers(1, 3))
    models = [make_profile(random, levels) for _ in range(draw(st.integers(1, 3)))]
    count = draw(st.integers(1, 60))
    span = draw(st.sampled_from([1, 20, 200]))
    return {
        "models": models,
        "cores": draw(st.integers(1, 9)),
        "workers": draw(st.integers(1, 12)),
        "arrival_ns": np.sort(random.integers(0, span, count)) * (MS // 2),
        "model": random.integers(0, len(models), count).astype(np.int32),
        "max_queue": 1000,
        "conflict_ns": 1000,
        "decision_ns": 0,
        "expand_if_shorter": draw(st.booleans()),
        "level": draw(st.sampled_from([None, 0, 1])),
        "trace": False,
    }


def record(path: Path, name: str, load: dict[str, Any]) -> dict[str, Any]:
    """Simulates into a record; returns the machine's sums."""
    models = [(f"m{index}", profile) for index, profile in enumerate(load["models"])]
    lines: list[Line] = [
        make_header("simulated", cores=load["cores"], workers=load["workers"], models=models),
        PolicyLine(epoch=0, name=name, options={"max_block_ns": MS}),
    ]
    policy = sched.make_policy(name, load["cores"], load["models"], max_block_ns=MS)
    with recording(path, lines, field="record") as descriptor:
        found = sim.simulate(policy=policy, record=descriptor, **load)
    machine: dict[str, Any] = found["machine"]
    return machine


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=25, deadline=None)
@given(load=loads())
def test_scheduling_replays(name: str, load: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record"
        machine = record(path, name, load)
        report = replay(path)
    assert (report.asked, report.differing) == (machine["decisions"], 0)
    assert (report.skipped, report.missing, report.torn, report.unasked) == (0, 0, 0, 0)


@pytest.mark.parametrize("name", ["layer", "prema", "veltair", "veltair-deadline"])
@settings(max_examples=15, deadline=None)
@given(load=loads(), data=st.data())
def test_any_change_to_a_decision_shows(
    name: str, load: dict[str, Any], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record"
        record(path, name, load)
        lines = [json.loads(text) for text in path.read_text().splitlines()]
        place = data.draw(st.integers(2, len(lines) - 1))
        decision = lines[place]["decision"]
        field = data.draw(st.sampled_from(sorted(decision)))
        decision[field] = f"{decision[field]}!" if isinstance(decision[field], str) else -7
        path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
        report = replay(path)
    assert (report.asked, report.differing) == (len(lines) - 2, 1)
    difference = report.differences[0]
    assert (difference.line, difference.sequence) == (place + 1, place - 2)


@pytest.mark.parametrize("batching", sched.batching_names())
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 100),
    executors=st.integers(1, 4),
    queue_limit=st.sampled_from([2, 100]),
    slo_ms=st.sampled_from([0, 8, 30]),
)
def test_batching_replays(
    batching: str, seed: int, count: int, executors: int, queue_limit: int, slo_ms: int
) -> None:
    random = np.random.default_rng(seed)
    costs = [
        sched.BatchCost(alpha_ns=MS, beta_ns=5 * MS, timeout_ns=2 * MS, least_percent=70),
        sched.BatchCost(alpha_ns=MS // 3, beta_ns=MS, max_batch=3),
    ]
    line = make_batcher_line(
        batching,
        "first-fit",
        queue_limit=queue_limit,
        costs=costs,
        executors=["device"] * executors,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record"
        with recording(path, [make_header("simulated"), line], field="record") as descriptor:
            run = devices.run_devices(
                batching=batching,
                placement="first-fit",
                costs=costs,
                slo_ns=[slo_ms * MS] * 2,
                devices=executors,
                queue_limit=queue_limit,
                arrival_ns=np.sort(random.integers(0, 50, count)) * MS,
                model=random.integers(0, 2, count).astype(np.int32),
                record=descriptor,
            )
        report = replay(path)
    assert (report.asked, report.differing) == (run.events, 0)
    assert report.asked >= count
