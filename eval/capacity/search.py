"""The highest rate at which a system keeps a workload's targets, and what repetitions say of it."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import bdtrc

from veltair.eval.outcomes import Allowance
from veltair.runtime.simulate.bisection import bisect, bracket

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from veltair.eval.capacity.result import State, WorkloadFacts
    from veltair.eval.latency_figures import Figures
    from veltair.runtime.simulate.arrivals import Arrivals

LOWEST_QPS = 1.0  # what can't be kept at it can't be kept, unless a lower one is asked for
HIGHEST_QPS = 20_000.0  # more than one thread sends in time
FIRST_STEP = 1.5  # from a rate that is a guess
NEXT_STEP = 1.1  # from one that another repetition found

_CHANCE = 0.05  # of so many late ones, below which they are no chance

_NS_PER_S = 1e9


def guess_qps(facts: WorkloadFacts, lowest_qps: float) -> float:
    """Returns where a search begins when nothing is known: targets are about three solo times."""
    target_s = sum(model.share * model.qos_ns for model in facts.models) / _NS_PER_S
    return max(1.5 / target_s, lowest_qps)


def highest_qps(
    holds: Callable[[float], bool],
    begin_qps: float,
    *,
    step: float,
    tolerance: float,
    lowest_qps: float = LOWEST_QPS,
) -> float:
    """Returns the highest rate that holds; 0: not even `lowest_qps` does.

    Args:
        holds: asked of a rate; taken to hold below each rate for which it does.
        begin_qps: where the search begins.
        step: from one rate to the next until one holds and one doesn't.
        tolerance: how well the rate is known then, as a share of it.
        lowest_qps: no lower rate is asked of.
    """
    low, high = bracket(holds, max(begin_qps, lowest_qps), lowest_qps, HIGHEST_QPS, step)
    if math.isinf(high):
        return low
    if low == 0:
        if high <= lowest_qps or not holds(lowest_qps):
            return 0.0
        low = lowest_qps
    return bisect(holds, low, high, tolerance=tolerance)


def too_few_to_say(figures: Mapping[str, Figures], min_queries: int, percentile: float) -> bool:
    """Returns whether a run that doesn't hold may do so by chance: longer, it might have held.

    So it is where all models that had too many late queries had few queries, and so many late ones
    come in more than 1 of 20 runs of a system that keeps just the share that is asked for.

    Args:
        figures: of the run, by model, and of `all`.
        min_queries: how many are few.
        percentile: of each model's queries that must be in time.
    """
    for name, each in figures.items():
        if name == "all" or not each.satisfied_share * 100 < percentile:
            continue
        late = round(each.queries * (1 - each.satisfied_share))
        if not _may_be_chance(late, each.queries, min_queries, percentile):
            return False
    return True


def allowance(
    facts: WorkloadFacts, arrivals: Arrivals, min_queries: int, percentile: float
) -> Allowance:
    """Returns how many queries may be late before a run can neither hold nor be too short to say.

    Args:
        facts: targets, by the models' indices.
        arrivals: of the run.
        min_queries: as of `too_few_to_say`.
        percentile: the same.
    """
    queries = np.bincount(arrivals.model, minlength=len(facts.models)).tolist()
    return Allowance(
        qos_ns=tuple(model.qos_ns for model in facts.models),
        most_late=tuple(_most_late(count, min_queries, percentile) for count in queries),
    )


def _most_late(queries: int, min_queries: int, percentile: float) -> int:
    late = 0
    while late < queries and (
        (queries - late - 1) / queries * 100 >= percentile
        or _may_be_chance(late + 1, queries, min_queries, percentile)
    ):
        late += 1
    return late


def _may_be_chance(late: int, queries: int, min_queries: int, percentile: float) -> bool:
    """Whether so many of few, or more, are not unlikely where just the share asked for is kept."""
    if queries >= min_queries:
        return False
    return bool(bdtrc(late - 1, queries, 1 - percentile / 100) > _CHANCE)


def state_of(found: Sequence[float], noise: float) -> State:
    """Returns what the repetitions' rates come to.

    Args:
        found: by `highest_qps`, one or more.
        noise: the widest spread, as a share of the median, that still bears a decision.
    """
    if max(found) == 0:
        return "unmeetable"
    return "found" if spread(found) <= noise else "noisy"


def spread(found: Sequence[float]) -> float:
    """Returns the range of some rates as a share of their median; infinite where that is 0."""
    median = statistics.median(found)
    return (max(found) - min(found)) / median if median else math.inf
