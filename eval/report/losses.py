"""What it costs to keep fewer versions of a layer: VELTAIR, section 3.3, Fig. 7.

A layer that keeps some of its versions runs the fastest of those at each interference level; its
loss there is how much longer that takes than the fastest of all.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Times = tuple[tuple[int, ...], ...]  # [variant][level], ns
_MOST_EXACT = 12  # versions of which every choice is looked at


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The best choice of so many versions.

    Attributes:
        versions: indices, ascending.
        fastest_ns: at each level, of those.
        loss: at each level, against all versions.
    """

    versions: tuple[int, ...]
    fastest_ns: tuple[int, ...]
    loss: tuple[float, ...]

    @property
    def mean_loss(self) -> float:
        """Over the levels."""
        return sum(self.loss) / len(self.loss)


def best_choices(times: Times) -> tuple[Kept, ...]:
    """Returns the choice of least mean loss for 1, 2, ... all versions.

    Of more than a dozen versions each choice adds one to the choice before.

    Args:
        times: int64[variant][level], ns.
    """
    found: list[Kept] = []
    for size in range(1, len(times) + 1):
        before = found[-1].versions if found else ()
        kept = (_kept(times, choice) for choice in _choices(len(times), size, before))
        found.append(min(kept, key=lambda each: each.mean_loss))
    return tuple(found)


def model_losses(layers: Sequence[Times]) -> tuple[tuple[float, ...], ...]:
    """Returns float64[kept - 1][level]: the loss of all layers' sum if each keeps so many at most.

    Args:
        layers: int64[layer][variant][level], ns.
    """
    choices = [best_choices(times) for times in layers]
    best = [sum(column) for column in zip(*(c[-1].fastest_ns for c in choices), strict=True)]
    losses = []
    for kept in range(max(map(len, choices))):
        rows = [c[min(kept, len(c) - 1)].fastest_ns for c in choices]
        sums = [sum(column) for column in zip(*rows, strict=True)]
        losses.append(tuple(a / b - 1 for a, b in zip(sums, best, strict=True)))
    return tuple(losses)


def _choices(count: int, size: int, before: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    if count <= _MOST_EXACT:
        yield from itertools.combinations(range(count), size)
    else:
        yield from (tuple(sorted((*before, v))) for v in range(count) if v not in before)


def _kept(times: Times, versions: tuple[int, ...]) -> Kept:
    fastest = tuple(min(column) for column in zip(*(times[v] for v in versions), strict=True))
    best = (min(column) for column in zip(*times, strict=True))
    return Kept(
        versions=versions,
        fastest_ns=fastest,
        loss=tuple(a / b - 1 for a, b in zip(fastest, best, strict=True)),
    )
