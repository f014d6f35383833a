"""Times several engines on one model in turns, so that all meet the same machine.

One round times a block of runs of each engine, one engine after the other, and each round begins
with another engine. Engines keep threads spinning for a while after a run, which slows whoever runs
next; switching that off would slow the engine itself and not be how it is used. So each block
begins with a pause, in which spinning ends, and with one run that isn't counted, which wakes the
engine's threads and brings its weights back into the caches.

Times are paired by round: a round's ratio divides the medians of its two blocks, so that what the
machine does for seconds at a time falls out of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How to measure.

    Attributes:
        budget_ns: time for one comparison; decides the number of rounds.
        block_runs: counted runs of an engine a round.
        pause_ns: before each block.
        fewest_rounds: however long they take.
        most_rounds: however short they are.
    """

    budget_ns: int
    block_runs: int = 5
    pause_ns: int = 30_000_000
    fewest_rounds: int = 5
    most_rounds: int = 40

    def rounds(self, round_ns: int) -> int:
        """Returns how many rounds of `round_ns` fit into the budget and the bounds."""
        fitting = self.budget_ns // max(round_ns, 1)
        return int(min(max(fitting, self.fewest_rounds), self.most_rounds))


def time_blocks(runs: Sequence[Callable[[], object]], plan: Plan) -> NDArray[np.int64]:
    """Times every engine of `runs` in turns.

    Returns:
        int64[engines, rounds, plan.block_runs], ns of each counted run.
    """
    for run in runs:  # the first run of an engine may still prepare things
        run()
    begin_ns = time.monotonic_ns()
    for run in runs:
        _time_block(run, plan)
    rounds = plan.rounds(time.monotonic_ns() - begin_ns)
    times = np.empty((len(runs), rounds, plan.block_runs), np.int64)
    for round_index in range(rounds):
        for turn in range(len(runs)):
            engine = (round_index + turn) % len(runs)
            times[engine, round_index] = _time_block(runs[engine], plan)
    return times


def ratios(times: NDArray[np.int64], engine: int, peer: int) -> NDArray[np.float64]:
    """Returns float64[rounds]: the engine's block median over the peer's, below 1 is faster."""
    medians = np.median(times, axis=2)
    return np.asarray(medians[engine] / medians[peer])


def _time_block(run: Callable[[], object], plan: Plan) -> list[int]:
    time.sleep(plan.pause_ns / 1e9)
    run()
    times = []
    for _ in range(plan.block_runs):
        begin_ns = time.perf_counter_ns()
        run()
        times.append(time.perf_counter_ns() - begin_ns)
    return times
