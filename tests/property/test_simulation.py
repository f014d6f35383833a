"""Whatever the load: no core is held twice, no query or layer is lost, runs repeat exactly."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veltair.runtime._native import sched, sim

if TYPE_CHECKING:
    from numpy.typing import NDArray

REFUSING = {"refuse_late": True}
POLICIES = [
    *((name, {}) for name in (*sched.policy_names(), "block-3")),
    *((name, REFUSING) for name in ("deadline", "veltair-deadline")),
]
MS = 1_000_000
UNEVEN = sim.Pace(pace=1.3, spread=0.3, memory_ns=10 * MS, seed=1)


def profile(random: np.random.Generator, layers: int, qos_ms: int, levels: int) -> Any:  # noqa: ANN401
    counts = [1, 2, 4, 8]
    base = random.integers(MS // 10, 2 * MS, (layers, 2, 1, 1))
    # [layer][variant][cores][level]
    speedup = np.array(counts) ** random.uniform(0.3, 1, (layers, 1, 1))
    slowdown = 1 + random.uniform(0, 1, (layers, 2, 1, 1)) * np.arange(levels)
    times = (base / speedup.reshape(layers, 1, len(counts), 1) * slowdown).astype(np.int64)
    return sched.ModelProfile(
        qos_ns=qos_ms * MS,
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
    cores = draw(st.integers(1, 9))
    levels = draw(st.integers(1, 3))
    models = [
        profile(random, int(random.integers(1, 9)), draw(st.sampled_from([0, 5, 20])), levels)
        for _ in range(draw(st.integers(1, 3)))
    ]
    count = draw(st.integers(1, 60))
    # Times on a coarse grid, so that many events coincide.
    times = np.sort(random.integers(0, draw(st.sampled_from([1, 20, 200])), count)) * (MS // 2)
    return {
        "models": models,
        "cores": cores,
        "workers": draw(st.integers(1, 2 * cores)),
        "arrival_ns": times,
        "model": random.integers(0, len(models), count).astype(np.int32),
        "max_queue": draw(st.sampled_from([3, 1000])),
        "conflict_ns": draw(st.sampled_from([0, 220_000])),
        "decision_ns": draw(st.sampled_from([0, 2_000])),
        "expand_if_shorter": draw(st.booleans()),
        "level": draw(st.sampled_from([None, 0, 1])),
        "pace": draw(st.sampled_from([None, UNEVEN])),
        "trace": True,
    }


def run(name: str, load: dict[str, Any], options: dict[str, Any] | None = None) -> dict[str, Any]:
    policy = sched.make_policy(name, load["cores"], load["models"], **(options or {}))
    return sim.simulate(policy=policy, **load)


def check_cores(found: dict[str, Any], cores: int) -> None:
    """No more cores are in use than there are, and a worker runs one block at a time."""
    segments = found["segments"]
    for time_ns in np.unique(segments[:, 6]):
        now = segments[(segments[:, 6] <= time_ns) & (time_ns < segments[:, 7])]
        assert now[:, 5].sum() <= cores
        assert (now[:, 5] >= 1).all()
        assert len(np.unique(now[:, 1])) == len(now)
        assert len(np.unique(now[:, 0])) == len(now)


def blocks_of(segments: NDArray[np.int64]) -> list[tuple[int, int]]:
    """The layers of each block of one query in order: a block's cores may change amid it."""
    blocks: list[tuple[int, int]] = []
    for before, each in itertools.pairwise([np.full(8, -1), *segments]):
        goes_on = (each[1:4] == before[1:4]).all() and each[6] == before[7]
        if not goes_on:
            blocks.append((int(each[2]), int(each[3])))
    return blocks


def check_layers(found: dict[str, Any], load: dict[str, Any]) -> None:
    """A served query runs each layer once, in order; a refused one stops somewhere.

    One that was put back into the queue amid its layers begins again.
    """
    returns = 0
    for query, outcome in enumerate(found["outcome"]):
        own = found["segments"][found["segments"][:, 0] == query]
        own = own[np.argsort(own[:, 6], kind="stable")]
        assert (own[1:, 6] >= own[:-1, 7]).all()
        layers = load["models"][load["model"][query]].layers
        reached = 0
        for begin, end in blocks_of(own):
            if begin == 0 < reached < layers:
                returns, reached = returns + 1, 0
            assert begin == reached < end
            reached = end
        assert reached == layers if outcome == 0 else reached < layers
        assert found["end_ns"][query] >= load["arrival_ns"][query]
    assert returns == found["machine"]["returns"]


@pytest.mark.parametrize(("name", "options"), POLICIES)
@settings(max_examples=40, deadline=None)
@given(load=loads())
def test_invariants(name: str, options: dict[str, Any], load: dict[str, Any]) -> None:
    found = run(name, load, options)
    check_cores(found, load["cores"])
    check_layers(found, load)
    again = run(name, load, options)
    for key in ("start_ns", "end_ns", "outcome", "segments"):
        assert (found[key] == again[key]).all()
    if not options:
        assert (found["outcome"] != 1).all()


@pytest.mark.parametrize("name", ["model", "layer", "block-3", "veltair-as", "veltair"])
@settings(max_examples=40, deadline=None)
@given(load=loads())
def test_work_is_conserved(name: str, load: dict[str, Any]) -> None:
    """While a query waits and a worker is free to begin it, no core is idle."""
    load = load | {"workers": 200, "max_queue": 1000}
    found = run(name, load)
    segments = found["segments"]
    begun = np.where(found["start_ns"] < 0, found["end_ns"], found["start_ns"])
    for time_ns in np.unique(segments[:, 6]):
        waiting = (load["arrival_ns"] <= time_ns) & (time_ns < begun)
        used = segments[(segments[:, 6] <= time_ns) & (time_ns < segments[:, 7]), 5].sum()
        assert used == load["cores"] or not waiting.any()


@pytest.mark.parametrize("options", [{}, REFUSING])
@pytest.mark.parametrize("name", ["deadline", "veltair-deadline"])
@settings(max_examples=40, deadline=None)
@given(load=loads())
def test_cores_are_kept_only_beside_a_block(
    name: str, options: dict[str, Any], load: dict[str, Any]
) -> None:
    """While a query is under way some block runs: idle cores are kept for that one's task."""
    load = load | {"workers": 200, "max_queue": 1000}
    found = run(name, load, options)
    segments = found["segments"]
    for time_ns in np.unique(np.concatenate([load["arrival_ns"], segments[:, 6], segments[:, 7]])):
        waiting = (load["arrival_ns"] <= time_ns) & (time_ns < found["end_ns"])
        used = segments[(segments[:, 6] <= time_ns) & (time_ns < segments[:, 7]), 5].sum()
        assert used > 0 or not waiting.any()
