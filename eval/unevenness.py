"""How uneven a machine is from one query to the next, told by single queries between runs."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# What `machine.pace_memory_ms` takes, and the longest that queries of a second or two can tell.
LEAST_MEMORY_NS = 10_000_000
MOST_MEMORY_NS = 2_000_000_000


@dataclass(frozen=True, kw_only=True)
class ProbeQuery:
    """A query that was sent for the time that it takes.

    Attributes:
        model: name.
        begin_ns: when it was sent, on a monotonic clock.
        compute_ns: from its first block's begin to its end.
    """

    model: str
    begin_ns: int
    compute_ns: int


@dataclass(frozen=True, kw_only=True)
class Unevenness:
    """What a simulated machine's pace is given.

    Attributes:
        spread: standard deviation of the pace's logarithm, `machine.pace_spread`.
        memory_ns: its time constant, `machine.pace_memory_ms`.
    """

    spread: float
    memory_ns: int


def unevenness(groups: Sequence[Sequence[Sequence[ProbeQuery]]]) -> Unevenness:
    """Estimates the pace's spread and memory.

    Deviations are of the logarithm of each query's time from its group's mean for the model: what
    changes from group to group is left out. So the queries of a group all have as many others
    beside them. The memory is told by how alike the deviations of two queries in a row are, and the
    spread by all of them, with what a query as long as these evens out of such a pace by itself.

    Args:
        groups: of some seconds each, as series of queries in the order in which they ran.
    """
    squares, products, freedom, pairs = 0.0, 0.0, 0, 0
    gaps_ns: list[int] = []
    lengths_ns: list[int] = []
    for group in groups:
        for series, deviations in zip(group, _deviations(group), strict=True):
            squares += sum(each * each for each in deviations)
            freedom += len(deviations)
            lengths_ns += [query.compute_ns for query in series]
            products += sum(a * b for a, b in itertools.pairwise(deviations))
            pairs += max(len(deviations) - 1, 0)
            gaps_ns += [_middle_ns(b) - _middle_ns(a) for a, b in itertools.pairwise(series)]
        freedom -= len({query.model for series in group for query in series})  # the means
    if freedom < 1 or pairs < 1 or squares == 0:
        return Unevenness(spread=0.0, memory_ns=LEAST_MEMORY_NS)
    variance = squares / freedom
    alike = products / pairs / variance
    gap_ns = sum(gaps_ns) / len(gaps_ns)
    memory_ns = gap_ns / -math.log(alike) if 0 < alike < 1 else math.inf if alike >= 1 else 0.0
    memory_ns = min(max(memory_ns, LEAST_MEMORY_NS), MOST_MEMORY_NS)
    left = sum(_left(length_ns / memory_ns) for length_ns in lengths_ns) / len(lengths_ns)
    return Unevenness(spread=math.sqrt(variance / left), memory_ns=round(memory_ns))


def _deviations(group: Sequence[Sequence[ProbeQuery]]) -> Iterator[list[float]]:
    times: dict[str, list[float]] = {}
    for query in itertools.chain.from_iterable(group):
        times.setdefault(query.model, []).append(math.log(query.compute_ns))
    means = {model: sum(logs) / len(logs) for model, logs in times.items()}
    for series in group:
        yield [math.log(query.compute_ns) - means[query.model] for query in series]


def _middle_ns(query: ProbeQuery) -> int:
    return query.begin_ns + query.compute_ns // 2


def _left(length: float) -> float:
    """Of the pace's variance, what is left in its mean over a time; 1: its memory's time."""
    return 2 * (length - 1 + math.exp(-length)) / length**2
