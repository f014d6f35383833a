"""Measuring again what other processes disturbed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from veltair.runtime.disturbance import Disturbance, Watch, wait_for_quiet

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Patience:
    """What to do about other processes.

    Attributes:
        attempts: measurements of one thing, at most, while they are disturbed.
        wait_s: for a quiet machine before each, at most.
    """

    attempts: int = 2
    wait_s: float = 10.0

    def quietest(self, measure: Callable[[], _T]) -> tuple[_T, Disturbance]:
        """Measures until nothing else disturbs; returns the least disturbed, and by how much.

        Only what others did decides, never what was measured.
        """
        found: list[tuple[_T, Disturbance]] = []
        while len(found) < self.attempts:
            wait_for_quiet(self.wait_s)
            watch = Watch()
            measured = measure()
            found.append((measured, watch.seen()))
            if not found[-1][1].is_notable:
                break
        return min(found, key=lambda each: each[1].others + each[1].steal)
