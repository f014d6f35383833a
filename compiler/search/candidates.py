"""What candidates of a layer are: choices with estimates of their cycles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from veltair.compiler.kernels.choices import Choice

# What an estimate puts this far behind the best of its algorithm's is dropped.
MOST_BEHIND = 1.35
# Cycles to hand out a task.
_TASK_CYCLES = 200


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A choice and its estimated cycles on all cores."""

    choice: Choice
    cycles: float


@dataclass(frozen=True, kw_only=True)
class Space:
    """The candidates of a layer, the default first, and how many more were not worth building."""

    candidates: tuple[Candidate, ...]
    dropped: int


def on_cores(cycles: float, extent: int, cores: int) -> float:
    """Cycles of a layer on some cores.

    Args:
        cycles: on one core.
        extent: its tasks, of the same size.
        cores: how many; the fullest has the most tasks.
    """
    imbalance = math.ceil(extent / cores) * cores / extent
    return cycles * imbalance / cores + extent * _TASK_CYCLES / cores


def near_best(found: Sequence[Candidate]) -> list[Candidate]:
    """Those that the estimate doesn't put far behind the best."""
    best = min(c.cycles for c in found)
    return [c for c in found if c.cycles <= MOST_BEHIND * best]
