"""What to try next: estimates first, then the neighbours of what was fast."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence

import msgspec
import numpy as np

from veltair.compiler.kernels.choices import Choice
from veltair.compiler.search.candidates import Candidate, Space

# How much an estimate counts: a candidate 10 % behind another is drawn e**-1 times as often.
_STEEPNESS = 10.0
_PARENTS = 4
_NEAR_FIELDS = 2  # decisions in which a neighbour may differ


def draw_order(space: Space, key: str, hints: Sequence[Choice] = ()) -> tuple[Candidate, ...]:
    """The default first, then the hints, then the others by a draw that prefers good estimates.

    The same for the same key and hints, so that a search that was ended goes on where it was.

    Args:
        space: the layer's.
        key: the layer's.
        hints: choices that are promising for another reason than their estimate; the space of
            another machine may have some that this one's has not.
    """
    first, *drawn = _draw(space, key)
    known = {candidate.choice: candidate for candidate in drawn}
    slowest = max(candidate.cycles for candidate in space.candidates)
    hinted = {
        choice: known.get(choice, Candidate(choice=choice, cycles=slowest))
        for choice in hints
        if choice != first.choice
    }
    return (first, *hinted.values(), *(c for c in drawn if c.choice not in hinted))


def missing_trials(order: Sequence[Candidate], tried: Collection[Choice], trials: int) -> int:
    """How many are left to try until a layer has so many, or all that there are."""
    left = sum(candidate.choice not in tried for candidate in order)
    return max(0, min(trials - len(tried), left))


def _draw(space: Space, key: str) -> tuple[Candidate, ...]:
    first, *others = space.candidates
    if not others:
        return (first,)
    cycles = np.array([c.cycles for c in others])
    rng = np.random.default_rng(zlib.crc32(key.encode()))
    # Gumbel noise on logarithmic weights draws without replacement in proportion to the weights.
    scores = rng.gumbel(size=len(others)) - _STEEPNESS * np.log(cycles / cycles.min())
    return (first, *(others[i] for i in np.argsort(-scores, kind="stable")))


def propose(
    order: Sequence[Candidate],
    times_ns: Mapping[Choice, float],
    tried: Collection[Choice],
    count: int,
) -> list[Choice]:
    """The next candidates to measure.

    Args:
        order: all, as drawn.
        times_ns: of those that were measured.
        tried: all that were, failed ones too.
        count: how many are wanted.

    Returns:
        Half neighbours of the fastest, half new draws; all draws while nothing was measured.
    """
    left = [c for c in order if c.choice not in tried]
    draws = count if not times_ns else count - count // 2
    drawn = [c.choice for c in left[:draws]]
    wanted = count - len(drawn)
    if not times_ns or wanted <= 0:
        return drawn
    parents = sorted(times_ns, key=lambda choice: times_ns[choice])[:_PARENTS]
    near = _neighbours([c for c in left if c.choice not in drawn], parents)
    return drawn + near[:wanted]


def _neighbours(left: Sequence[Candidate], parents: Sequence[Choice]) -> list[Choice]:
    """Candidates by how little they differ from a parent, then by parent and estimate."""
    fields = [(type(parent), msgspec.structs.astuple(parent)) for parent in parents]
    ranked = []
    for number, candidate in enumerate(left):
        kind, values = type(candidate.choice), msgspec.structs.astuple(candidate.choice)
        for rank, (parent_kind, parent) in enumerate(fields):
            if kind is not parent_kind:
                continue
            differing = sum(a != b for a, b in zip(values, parent, strict=True))
            if differing <= _NEAR_FIELDS:
                ranked.append((rank + 2 * differing, candidate.cycles, number))
                break
    return [left[number].choice for _, _, number in sorted(ranked)]
