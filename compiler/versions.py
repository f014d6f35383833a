"""Which versions of a layer are worth keeping: VELTAIR, sections 3.3 and 4.1, Fig. 7.

A layer that keeps some of its versions runs the fastest of those on each number of cores and at
each interference level; its loss there is how much longer that takes than the fastest of all.

Differs: the first version, the fastest alone, always stays, and what a layer may lose alone is less
than what it may lose beside others: a model alone on its machine must not pay for the versions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from veltair.runtime.manifest import Profile

MOST_LOSS = 0.10
MOST_LOSS_ALONE = 0.05
_MOST_EXACT = 12  # versions of which every choice is looked at

Times = tuple[tuple[int, ...], ...]  # [version][condition], ns


@dataclass(frozen=True, kw_only=True)
class Condition:
    """Under what versions were measured: an index of a profile's core counts, and of its levels."""

    cores: int
    level: int

    @property
    def most_loss(self) -> float:
        """What a layer may lose under it for having fewer versions."""
        return MOST_LOSS if self.level else MOST_LOSS_ALONE


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The best choice of so many versions.

    Attributes:
        versions: indices, ascending; the first is always among them.
        fastest_ns: under each condition, of those.
        loss: under each condition, against all versions.
        worst: the largest loss in parts of what may be lost; at most 1 where the choice will do.
    """

    versions: tuple[int, ...]
    fastest_ns: tuple[int, ...]
    loss: tuple[float, ...]
    worst: float

    @property
    def mean_loss(self) -> float:
        """Over the conditions."""
        return sum(self.loss) / len(self.loss)


def conditions_of(profile: Profile) -> tuple[Condition, ...]:
    """All that was measured, and not estimated from something else."""
    made = profile.interference
    return tuple(
        Condition(cores=column, level=level)
        for column, count in enumerate(profile.cores)
        for level in range(len(profile.levels))
        if level == 0 or made is None or count <= made.measured_cores
    )


def best_choices(times: Times, conditions: Sequence[Condition]) -> tuple[Kept, ...]:
    """The choice of least loss for 1, 2, ... all versions.

    Of more than a dozen versions each choice adds one to the choice before.

    Args:
        times: int64[version][condition], ns.
        conditions: of the times.
    """
    found: list[Kept] = []
    for size in range(1, len(times) + 1):
        before = found[-1].versions if found else (0,)
        kept = (_kept(times, conditions, choice) for choice in _choices(len(times), size, before))
        found.append(min(kept, key=lambda each: (each.worst, each.mean_loss)))
    return tuple(found)


def fewest(choices: Sequence[Kept]) -> Kept:
    """The first choice that loses no more than it may; that of all versions loses nothing."""
    return next(kept for kept in choices if kept.worst <= 1)


def model_losses(layers: Sequence[Sequence[Kept]]) -> tuple[tuple[float, ...], ...]:
    """Returns float64[kept - 1][condition]: the sum's loss if each layer keeps so many at most.

    Args:
        layers: `best_choices` of each.
    """
    best = [sum(column) for column in zip(*(c[-1].fastest_ns for c in layers), strict=True)]
    losses = []
    for kept in range(max(map(len, layers))):
        rows = [c[min(kept, len(c) - 1)].fastest_ns for c in layers]
        sums = [sum(column) for column in zip(*rows, strict=True)]
        losses.append(tuple(a / b - 1 for a, b in zip(sums, best, strict=True)))
    return tuple(losses)


def _choices(count: int, size: int, before: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    if count <= _MOST_EXACT:
        yield from ((0, *rest) for rest in itertools.combinations(range(1, count), size - 1))
    elif size == 1:
        yield (0,)
    else:
        yield from (tuple(sorted((*before, v))) for v in range(count) if v not in before)


def _kept(times: Times, conditions: Sequence[Condition], versions: tuple[int, ...]) -> Kept:
    fastest = tuple(min(column) for column in zip(*(times[v] for v in versions), strict=True))
    best = (min(column) for column in zip(*times, strict=True))
    loss = tuple(a / b - 1 for a, b in zip(fastest, best, strict=True))
    return Kept(
        versions=versions,
        fastest_ns=fastest,
        loss=loss,
        worst=max(part / c.most_loss for part, c in zip(loss, conditions, strict=True)),
    )


def condition_times(
    tables: Sequence[Sequence[Sequence[int]]], conditions: Sequence[Condition]
) -> Times:
    """The times of a layer's versions under some conditions.

    Args:
        tables: int64[version][cores][level], ns.
        conditions: which of them.
    """
    return tuple(tuple(table[c.cores][c.level] for c in conditions) for table in tables)
