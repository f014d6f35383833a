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

    def quietest(
        self, measure: Callable[[], _T], stood_still: Callable[[_T], bool] = lambda _: False
    ) -> tuple[_T, Disturbance]:
        """Measures until nothing else disturbs; returns the least disturbed, and by how much.

        Only what others did decides, never what was measured.

        Args:
            measure: is called once an attempt.
            stood_still: whether the machine did for a while amid a measurement, as a virtual one
                does whose host has other work; its own counters don't tell.
        """
        found: list[tuple[bool, float, _T, Disturbance]] = []
        while len(found) < self.attempts:
            wait_for_quiet(self.wait_s)
            watch = Watch()
            measured = measure()
            seen, still = watch.seen(), stood_still(measured)
            found.append((still, seen.others + seen.steal, measured, seen))
            if not still and not seen.is_notable:
                break
        _, _, quietest, disturbance = min(found, key=lambda each: each[:2])
        return quietest, disturbance
