"""Times the first run after a time in which nothing ran, beside runs back to back.

Engines take turns, as in `interleave`. A turn is a pause, in which the threads of the engine before
fall asleep, some runs that aren't counted, some that are, one after the other, and then, for each
time of idleness, one run that isn't counted, the idleness, and the run that is.

`time_causes` makes the same idleness in several ways, which tells a core that slept from a cache
that lost its content.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from veltair.eval.record import spread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

_EVICT_BYTES = 64 << 20  # well above a core's own caches, well below a large shared one
_READ_BYTES = 8 << 20


@dataclass(frozen=True, kw_only=True)
class IdlePlan:
    """How to measure.

    Attributes:
        budget_ns: time for one comparison; decides the number of rounds.
        idle_ns: the times of idleness.
        hot_runs: counted runs back to back, a round.
        warm_runs: runs before them that aren't counted.
        pause_ns: before a turn.
        fewest_rounds: however long they take.
        most_rounds: however short they are.
    """

    budget_ns: int
    idle_ns: tuple[int, ...] = (50_000_000, 200_000_000)
    hot_runs: int = 5
    warm_runs: int = 3
    pause_ns: int = 30_000_000
    fewest_rounds: int = 5
    most_rounds: int = 40


def time_idleness(runs: Sequence[Callable[[], object]], plan: IdlePlan) -> NDArray[np.int64]:
    """Times every engine of `runs` in turns.

    Returns:
        int64[engines, rounds, 1 + idle times], ns: the median of runs back to back, then the first
        run after each idleness.
    """
    begin_ns = time.monotonic_ns()
    for run in runs:  # the first run of an engine may still prepare things
        run()
        _turn(run, plan)
    rounds = _rounds(time.monotonic_ns() - begin_ns, plan)
    times = np.empty((len(runs), rounds, 1 + len(plan.idle_ns)), np.int64)
    for index in range(rounds):
        for turn in range(len(runs)):
            engine = (index + turn) % len(runs)
            times[engine, index] = _turn(runs[engine], plan)
    return times


def summary(times: NDArray[np.int64], plan: IdlePlan) -> dict[str, Any]:
    """Returns one engine's spreads.

    Args:
        times: int64[rounds, 1 + idle times], ns.
        plan: that they were taken by.

    Returns:
        `hot_ns`, and for each idleness `run_ns` and its `penalty`, the run over the round's runs
        back to back.
    """
    after = [
        {
            "idle_ns": idle_ns,
            "run_ns": spread(times[:, 1 + index]),
            "penalty": spread(times[:, 1 + index] / times[:, 0]),
        }
        for index, idle_ns in enumerate(plan.idle_ns)
    ]
    return {"hot_ns": spread(times[:, 0]), "after": after}


def time_causes(
    layers: Callable[[], NDArray[np.int64]], idle_ns: int, rounds: int
) -> dict[str, dict[str, Any]]:
    """Times runs, and plain reads of memory, after several kinds of idleness.

    `hot`: none. `asleep`: the thread sleeps. `awake`: it spins as long, so its core neither sleeps
    nor changes its clock nor runs anything else of ours. `evicted`: no idleness, but a walk through
    a buffer that the core's own caches can't hold; what it pushes out, a shared cache may keep.

    Args:
        layers: runs a model and returns int64[layers], ns.
        idle_ns: how long.
        rounds: of all kinds in turns.

    Returns:
        For each kind `run_ns`, `layer_ns` (medians) and `read_bytes_per_s`, of a buffer of
        `_READ_BYTES` that was read before the idleness.
    """
    evicting = np.ones(_EVICT_BYTES // 8, np.int64)
    read = np.ones(_READ_BYTES // 8, np.int64)
    kinds: dict[str, Callable[[], object]] = {
        "hot": lambda: None,
        "asleep": lambda: time.sleep(idle_ns / 1e9),
        "awake": lambda: _stay_awake(idle_ns),
        "evicted": evicting.sum,
    }
    layer_ns: dict[str, list[NDArray[np.int64]]] = {kind: [] for kind in kinds}
    read_ns: dict[str, list[int]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, idle in kinds.items():
            for _ in range(2):
                layers()
            idle()
            layer_ns[kind].append(layers())
            read.sum()
            read.sum()
            idle()
            read_ns[kind].append(_timed(read.sum))
    return {
        kind: {
            "run_ns": spread(np.array(layer_ns[kind]).sum(axis=1)),
            "layer_ns": np.median(np.array(layer_ns[kind]), axis=0).astype(int).tolist(),
            "read_bytes_per_s": spread(_READ_BYTES * 1e9 / np.array(read_ns[kind])),
        }
        for kind in kinds
    }


def _rounds(round_ns: int, plan: IdlePlan) -> int:
    fitting = plan.budget_ns // max(round_ns, 1)
    return int(min(max(fitting, plan.fewest_rounds), plan.most_rounds))


def _turn(run: Callable[[], object], plan: IdlePlan) -> list[int]:
    time.sleep(plan.pause_ns / 1e9)
    for _ in range(plan.warm_runs):
        run()
    times = [int(np.median([_timed(run) for _ in range(plan.hot_runs)]))]
    for idle_ns in plan.idle_ns:
        run()
        time.sleep(idle_ns / 1e9)
        times.append(_timed(run))
    return times


def _timed(run: Callable[[], object]) -> int:
    begin_ns = time.perf_counter_ns()
    run()
    return time.perf_counter_ns() - begin_ns


def _stay_awake(ns: int) -> None:
    end_ns = time.perf_counter_ns() + ns
    while time.perf_counter_ns() < end_ns:
        pass
