"""The source that is always there: how long our own blocks take against the profile.

Nothing is read from the machine: who runs blocks says how long each took and how long its profile
says that it takes alone.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from veltair.proxy.sources.reading import Count, Missing, Reading, Scope, Stopwatch
from veltair.runtime.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

_ENOUGH = 8  # blocks a reading


class OwnBlocks:
    """Slow-down of the blocks that ended since the last read, weighed by their time alone."""

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        """Begins.

        Args:
            clock: monotonic, in ns.
        """
        self.name = "self"
        self._clock = clock
        self._watch = Stopwatch(clock())
        self._forget()

    def add(self, block_ns: int, alone_ns: int) -> None:
        """Takes a block in.

        Args:
            block_ns: how long it took.
            alone_ns: how long its profile says that it takes alone, on as many cores.

        Raises:
            InputError: one isn't above 0.
        """
        if block_ns <= 0 or alone_ns <= 0:
            raise InputError(
                f"a block of {block_ns} ns that takes {alone_ns} ns alone: both are above 0; an "
                "artifact without a profile has no time alone, measure it (`veltair profile`)"
            )
        self._blocks += 1
        self._block_ns += block_ns
        self._alone_ns += alone_ns

    def read(self) -> Reading:
        """Returns `block_slowdown`, (time now / time alone) - 1, and the `blocks` that it is of.

        Without a block since the last read there is no slow-down to tell.
        """
        time_ns, elapsed_ns = self._watch.lap(self._clock())
        confidence = min(1.0, self._blocks / _ENOUGH)
        counts = [self._count("blocks", float(self._blocks), "blocks", 1.0)]
        missing = []
        if self._blocks:
            slowdown = self._block_ns / self._alone_ns - 1
            counts.append(self._count("block_slowdown", slowdown, "ratio", confidence))
        else:
            reason = "no block has ended since the last read"
            missing.append(Missing(name="block_slowdown", where="own blocks", reason=reason))
        self._forget()
        return Reading(
            time_ns=time_ns, elapsed_ns=elapsed_ns, counts=tuple(counts), missing=tuple(missing)
        )

    def close(self) -> None:
        """Holds nothing."""

    def _forget(self) -> None:
        self._blocks = 0
        self._block_ns = 0
        self._alone_ns = 0

    @staticmethod
    def _count(name: str, value: float, unit: str, confidence: float) -> Count:
        return Count(
            name=name,
            value=value,
            unit=unit,
            scope=Scope.TASK,
            where="own blocks",
            confidence=confidence,
        )
