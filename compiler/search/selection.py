"""Which samples of a layer become its variants.

Reference: VELTAIR, section 4.1, Algorithm 1, lines 3 and 5 to 10.

Differs: the fastest sample, or one as fast of shorter tasks, is always among the chosen, and the
first of them: a model alone on its machine must not pay for the versions. The paper's frontier
holds the least of parallelism and block size among what meets the QoS, and nothing in it keeps the
fastest. Where no sample meets the QoS, or there is none to meet, those near the fastest stand in
for those within it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from veltair.compiler.kernels.choices import Choice

# Without a QoS, a sample this much slower than the fastest is no variant that anyone would want.
_SLOWEST_WITHOUT_QOS = 2.0
# Samples this near to the fastest are as fast: measured anew they may come in another order. Among
# them the shortest tasks decide, down to a length: a core leaves, or joins, at the end of a task.
# (sched::ModelPlan chooses among the variants by the same rule.)
_AS_FAST = 1.03
_SHORT_TASK_NS = 100_000
# Where none meets the QoS, those this near to the fastest are kept.
_NEAR_FASTEST = 1.1


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A sample that has a time: what the choice is made by.

    Attributes:
        choice: the kernel's decisions.
        parallelism: parallel extent times unroll factor.
        block_bytes: working set of the cache tile.
        solo_ns: time alone on all cores.
        mean_ns: geometric mean of the times alone over the core counts: what is fastest by it is
            fast on few cores too.
        task_ns: what its shortest task takes; 0 where nobody knows.
    """

    choice: Choice
    parallelism: int
    block_bytes: int
    solo_ns: int
    mean_ns: float
    task_ns: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The chosen samples of a layer.

    Attributes:
        limit_ns: what a sample may take.
        missed_ns: how much the fastest is above the layer's share of the QoS; 0 if it isn't.
        within: those that take no more than the limit.
        frontier: of those, the ones that no other beats in both parallelism and block size,
            ascending by block size.
        chosen: the variants, the fastest first, then ascending by block size.
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


def select(samples: Sequence[Measured], share_ns: int, most: int) -> Selection:
    """Chooses the variants of a layer.

    Args:
        samples: at least one.
        share_ns: the layer's share of the QoS; 0 for none.
        most: variants, at least 1.
    """
    fastest = _fastest(samples)
    quickest_ns = min(s.solo_ns for s in samples)
    missed_ns = max(quickest_ns - share_ns, 0) if share_ns else 0
    limit_ns = share_ns
    if missed_ns:
        limit_ns = round(quickest_ns * _NEAR_FASTEST)
    elif not share_ns:
        limit_ns = round(quickest_ns * _SLOWEST_WITHOUT_QOS)
    within = [s for s in samples if s.solo_ns <= limit_ns]
    frontier = extract_dominant(within)
    others = uniform([s for s in frontier if s is not fastest], most - 1) if most > 1 else []
    return Selection(
        limit_ns=limit_ns,
        missed_ns=missed_ns,
        within=tuple(within),
        frontier=tuple(frontier),
        chosen=(fastest, *others),
    )
