"""The source that is always there: how long our own blocks take against the profile.

Nothing is read from the machine: who runs blocks says how long each took, how long its profile says
that it takes alone, and how sensitive it is: by how much it is longer at a slow-down of 1. A block
that nothing disturbs much says little of the level, and a block that memory holds up says all of
it, so the level is the slow-down that fits the blocks best, by least squares.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from veltair.proxy.sources.reading import Count, Missing, Reading, Scope, Stopwatch
from veltair.runtime._native import ipc
from veltair.runtime.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """Sums over blocks.

    Attributes:
        blocks: how many.
        took_ns: their times.
        alone_ns: their times alone, by their profiles.
        excess: (took - alone) * sensitivity, ns².
        weight: sensitivity², ns².
    """

    blocks: int = 0
    took_ns: int = 0
    alone_ns: int = 0
    excess: float = 0.0
    weight: float = 0.0

    def __add__(self, other: Blocks) -> Blocks:
        """Returns the sums over both."""
        return Blocks(
            blocks=self.blocks + other.blocks,
            took_ns=self.took_ns + other.took_ns,
            alone_ns=self.alone_ns + other.alone_ns,
            excess=self.excess + other.excess,
            weight=self.weight + other.weight,
        )

    @property
    def totals(self) -> ipc.BlockTotals:
        """The same, as native code takes them."""
        return ipc.BlockTotals(
            blocks=self.blocks,
            took_ns=self.took_ns,
            alone_ns=self.alone_ns,
            excess=self.excess,
            weight=self.weight,
        )


class OwnBlocks:
    """Slow-down of the blocks that ended since the last read, and the level that it tells."""

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        """Begins.

        Args:
            clock: monotonic, in ns.
        """
        self.name = "self"
        self._clock = clock
        self._watch = Stopwatch(clock())
        self._sums = Blocks()

    def add(self, block_ns: int, alone_ns: int, sensitivity_ns: float = 0.0) -> None:
        """Takes a block in.

        Args:
            block_ns: how long it took.
            alone_ns: how long its profile says that it takes alone, on as many cores.
            sensitivity_ns: by how much longer it takes at a slow-down of 1; 0 if its profile
                doesn't say.

        Raises:
            InputError: a time isn't above 0, or the sensitivity below it.
        """
        if block_ns <= 0 or alone_ns <= 0 or sensitivity_ns < 0:
            raise InputError(
                f"a block of {block_ns} ns that takes {alone_ns} ns alone and {sensitivity_ns:g} "
                "ns longer at a slow-down of 1: times are above 0; an artifact without a profile "
                "has no time alone, measure it (`veltair profile`)"
            )
        self._sums += Blocks(
            blocks=1,
            took_ns=block_ns,
            alone_ns=alone_ns,
            excess=(block_ns - alone_ns) * sensitivity_ns,
            weight=sensitivity_ns**2,
        )

    def read(self) -> Reading:
        """Returns `block_slowdown`, (time now / time alone) - 1, `block_level`, and `blocks`.

        Without a block since the last read there is no slow-down to tell, and without a sensitive
        one no level.
        """
        time_ns, elapsed_ns = self._watch.lap(self._clock())
        sums, self._sums = self._sums, Blocks()
        return reading({"own blocks": sums}, time_ns, elapsed_ns)

    def close(self) -> None:
        """Holds nothing."""


def reading(sums: Mapping[str, Blocks], time_ns: int, elapsed_ns: int) -> Reading:
    """Returns what blocks say that ended since the last read.

    Args:
        sums: by place; with more than one, each is a core complex.
        time_ns: see `Reading`; likewise the next.
        elapsed_ns: see `Reading`.
    """
    scope = Scope.TASK if len(sums) == 1 else Scope.COMPLEX
    counts: list[Count] = []
    for where, blocks in sums.items():
        told = [("blocks", float(blocks.blocks), "blocks", 1.0)]
        level, slowdown = ipc.own_features(blocks.totals)  # the rules are native code's
        if slowdown.confidence > 0:
            told.append(("block_slowdown", slowdown.value, "ratio", slowdown.confidence))
        if level.confidence > 0:
            told.append(("block_level", level.value, "ratio", level.confidence))
        counts += [
            Count(name=name, value=value, unit=unit, scope=scope, where=where, confidence=share)
            for name, value, unit, share in told
        ]
    return Reading(
        time_ns=time_ns,
        elapsed_ns=elapsed_ns,
        counts=tuple(counts),
        missing=tuple(_missing({count.name for count in counts})),
    )


def _missing(told: set[str]) -> list[Missing]:
    reasons = {
        "block_slowdown": "no block has ended since the last read",
        "block_level": "no block has ended since the last read whose profile has several levels "
        "(`veltair profile --levels`)",
    }
    return [
        Missing(name=name, where="own blocks", reason=reason)
        for name, reason in reasons.items()
        if name not in told
    ]
