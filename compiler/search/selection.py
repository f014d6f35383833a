"""Which samples of a layer become its variants.

Reference: VELTAIR, section 4.1, Algorithm 1, lines 3 and 5 to 10.

Differs: the fastest sample, or one as fast of shorter tasks, is always among the chosen, and the
first of them: a model alone on its machine must not pay for the versions. Next to it are those
without which some number of cores would be slow: few large tasks are best on few cores, and don't
divide among many; and, where another machine was measured, the next fastest, which may be the
fastest here. The paper's frontier holds the least of parallelism and block size among what meets
the QoS, and nothing in it keeps the fastest. Where no sample meets the QoS, or there is none to
meet, those near the fastest stand in for those within it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from veltair.compiler.kernels.choices import Choice

# Without a QoS, a sample this much slower than the fastest is no variant that anyone would want.
_SLOWEST_WITHOUT_QOS = 2.0
# Samples this near to the fastest are as fast: measured anew they may come in another order. Among
# them the shortest tasks decide, down to a length: a core leaves, or joins, at the end of a task.
# (sched::ModelPlan chooses among the variants by the same rule.)
_AS_FAST = 1.03
_SHORT_TASK_NS = 100_000
# Where none meets the QoS, those this near to the fastest are kept; and what another machine
# measured this near to it may be the fastest here.
_NEAR_FASTEST = 1.1
# What the chosen may take more than the fastest of all on any number of cores, alone.
_MOST_LOSS = 1.05


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A sample that has a time: what the choice is made by.

    Attributes:
        choice: the kernel's decisions.
        parallelism: parallel extent times unroll factor.
        block_bytes: working set of the cache tile.
        ns: times alone on some numbers of cores, ascending, the last on all; those of all samples
            of a layer are on the same numbers.
        task_ns: what its shortest task takes; 0 where nobody knows.
    """

    choice: Choice
    parallelism: int
    block_bytes: int
    ns: tuple[int, ...]
    task_ns: float = 0.0

    @property
    def solo_ns(self) -> int:
        """Time alone on all cores."""
        return self.ns[-1]

    @property
    def mean_ns(self) -> float:
        """Geometric mean over the core counts: what is fastest by it is fast on few cores too."""
        return geometric_mean(self.ns)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The chosen samples of a layer.

    Attributes:
        limit_ns: what a sample may take.
        missed_ns: how much the fastest is above the layer's share of the QoS; 0 if it isn't.
        within: those that take no more than the limit.
        frontier: of those, the ones that no other beats in both parallelism and block size,
            ascending by block size.
        chosen: the variants, the fastest first, then those that some numbers of cores need, the
            next fastest of what was measured elsewhere, and some of the frontier, ascending by
            block size.
    """

    limit_ns: int
    missed_ns: int
    within: tuple[Measured, ...]
    frontier: tuple[Measured, ...]
    chosen: tuple[Measured, ...]


def shares_ns(qos_ns: int, weights: Sequence[float]) -> list[int]:
    """Each layer's share of the QoS, in proportion to its weight (Algorithm 1, line 3).

    Args:
        qos_ns: the model's latency target; 0 for none, and then every share is 0.
        weights: operations, or measured times.
    """
    total = sum(weights)
    if total <= 0:
        return [0 for _ in weights]
    return [round(qos_ns * weight / total) for weight in weights]


def time_weights(flops: Sequence[int], best_ns: Sequence[int]) -> list[float]:
    """Times to share a QoS by: measured, and where a layer has none, estimated.

    A layer without samples is taken to do its operations as fast as those with samples do on the
    whole; where none has any, operations stand for times.

    Args:
        flops: of each layer.
        best_ns: of each layer's fastest sample; 0 where it has none.
    """
    measured = [(ops, ns) for ops, ns in zip(flops, best_ns, strict=True) if ns]
    operations = sum(ops for ops, _ in measured)
    rate = sum(ns for _, ns in measured) / operations if operations else 1.0
    return [float(ns or ops * rate) for ops, ns in zip(flops, best_ns, strict=True)]


def extract_dominant(samples: Sequence[Measured]) -> list[Measured]:
    """Those than which no other has less of both parallelism and block size, by block size.

    Of equals in both the fastest stays.
    """
    ordered = sorted(samples, key=lambda s: (s.block_bytes, s.parallelism, s.mean_ns))
    frontier: list[Measured] = []
    for sample in ordered:
        if not frontier or sample.parallelism < frontier[-1].parallelism:
            frontier.append(sample)
    return frontier


def uniform(samples: Sequence[Measured], count: int) -> list[Measured]:
    """At most `count` of them, evenly spread over their order (Algorithm 1, line 8)."""
    if len(samples) <= count:
        return list(samples)
    return [samples[i * len(samples) // count] for i in range(count)]


def _fastest(samples: Sequence[Measured]) -> Measured:
    limit_ns = _AS_FAST * min(s.mean_ns for s in samples)
    return min(
        (s for s in samples if s.mean_ns <= limit_ns),
        key=lambda s: (max(s.task_ns, _SHORT_TASK_NS), s.mean_ns, s.block_bytes),
    )


def _needed(samples: Sequence[Measured], first: Measured, most: int) -> list[Measured]:
    """The first, and those without which the time on some number of cores would be lost.

    Each lowers the geometric mean over the core counts of the fastest chosen the most, until none
    of them loses more than it may.
    """
    best = [min(column) for column in zip(*(s.ns for s in samples), strict=True)]
    chosen, reached = [first], first.ns
    while len(chosen) < most and any(
        ns > _MOST_LOSS * least for ns, least in zip(reached, best, strict=True)
    ):
        added = min(samples, key=lambda s: (geometric_mean(map(min, s.ns, reached)), s.mean_ns))
        chosen.append(added)
        reached = tuple(map(min, added.ns, reached))
    return chosen


def _next_fastest(samples: Sequence[Measured], chosen: Sequence[Measured]) -> list[Measured]:
    """The fastest of those that aren't chosen but are near to the first; none if there are none."""
    limit_ns = _NEAR_FASTEST * chosen[0].mean_ns
    near = [s for s in samples if s.mean_ns <= limit_ns and not any(s is each for each in chosen)]
    return sorted(near, key=lambda s: s.mean_ns)[:1]


def select(
    samples: Sequence[Measured], share_ns: int, most: int, *, elsewhere: bool = False
) -> Selection:
    """Chooses the variants of a layer.

    Args:
        samples: at least one.
        share_ns: the layer's share of the QoS; 0 for none.
        most: variants, at least 1.
        elsewhere: whether the times are of another machine.
    """
    needed = _needed(samples, _fastest(samples), most)
    if elsewhere:
        needed = [*needed, *_next_fastest(samples, needed)][:most]
    quickest_ns = min(s.solo_ns for s in samples)
    missed_ns = max(quickest_ns - share_ns, 0) if share_ns else 0
    limit_ns = share_ns
    if missed_ns:
        limit_ns = round(quickest_ns * _NEAR_FASTEST)
    elif not share_ns:
        limit_ns = round(quickest_ns * _SLOWEST_WITHOUT_QOS)
    within = [s for s in samples if s.solo_ns <= limit_ns]
    frontier = extract_dominant(within)
    further = [s for s in frontier if not any(s is each for each in needed)]
    return Selection(
        limit_ns=limit_ns,
        missed_ns=missed_ns,
        within=tuple(within),
        frontier=tuple(frontier),
        chosen=(*needed, *uniform(further, most - len(needed))),
    )
