"""Bubbles: co-runners of a set footprint and bandwidth, one on each of some processors."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from veltair.proxy.co_runners import CoRunners
from veltair.runtime._native import proxy
from veltair.runtime.errors import InputError
from veltair.runtime.machine import available_memory_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

BYTES_PER_MB = 1_000_000
BYTES_PER_GB = 1_000_000_000
_HIGHEST_GBPS = 1_000_000  # beyond any machine, within 64 bits
_FULL_SPEED = _HIGHEST_GBPS * BYTES_PER_GB
_FULL_SPEED_S = 0.1
_MEMORY_KEPT = 0.1  # of what is available: for everybody else


@dataclass(frozen=True, kw_only=True)
class BubbleSettings:
    """What each bubble does.

    Attributes:
        footprint_bytes: memory that it touches: all of it, again and again, and nothing else.
        bytes_per_s: that it reads and writes together; 0 rests.
    """

    footprint_bytes: int
    bytes_per_s: int


@dataclass(frozen=True, kw_only=True)
class Achieved:
    """What one bubble did.

    Attributes:
        cpu: where.
        bytes: read and written.
        elapsed_ns: meanwhile.
        missed_ns: of its schedule, given up because it was too far behind.
    """

    cpu: int
    bytes: int
    elapsed_ns: int
    missed_ns: int

    @property
    def bytes_per_s(self) -> float:
        """The rate that it achieved."""
        return self.bytes * 1e9 / max(self.elapsed_ns, 1)


class Bubbles(CoRunners):
    """One bubble on each of some processors, for the length of a `with`."""

    def __init__(self, cpus: Sequence[int], footprint_bytes: int) -> None:
        """Makes them at rest, their memory present.

        Args:
            cpus: numbers of the processors.
            footprint_bytes: of each.

        Raises:
            InputError: the memory isn't there.
        """
        check_memory(len(cpus), footprint_bytes)
        try:
            self._bubbles = [proxy.Bubble(cpu, footprint_bytes) for cpu in cpus]
        except (ValueError, MemoryError) as error:
            raise InputError(f"bubbles on the processors {list(cpus)}: {error}") from error

    def end(self) -> None:
        """Ends them and gives their memory back."""
        self._bubbles.clear()

    def set_rate(self, rate: int) -> None:
        """Sets the rate of each, in bytes a second; 0 rests. Their readings begin anew."""
        for bubble in self._bubbles:
            bubble.set_rate(rate)

    def highest_rate(self) -> int:
        """Returns the bytes a second that the slowest reaches at full speed; all rest after it."""
        self.set_rate(_FULL_SPEED)
        time.sleep(_FULL_SPEED_S)
        highest = min(each.bytes_per_s for each in self.achieved())
        self.set_rate(0)
        return round(highest)

    def achieved(self) -> list[Achieved]:
        """Returns what each has done since its rate was last set."""
        found = []
        for bubble in self._bubbles:
            seen = bubble.reading()
            found.append(
                Achieved(
                    cpu=bubble.cpu,
                    bytes=seen.bytes,
                    elapsed_ns=seen.elapsed_ns,
                    missed_ns=seen.missed_ns,
                )
            )
        return found


def check_memory(count: int, footprint_bytes: int) -> None:
    """Refuses bubbles that the memory can't hold.

    Raises:
        InputError: together they want more than is available.
    """
    available = int(available_memory_bytes() * (1 - _MEMORY_KEPT))
    if count * footprint_bytes > available:
        raise InputError(
            f"{count} bubble{'s' if count > 1 else ''} of {footprint_bytes / BYTES_PER_MB:g} MB: "
            f"the memory has room for {available // BYTES_PER_MB} MB in all; give a smaller "
            "footprint or fewer cores"
        )


def settings_of(footprint_mb: float, gbps: float) -> BubbleSettings:
    """Returns the settings that a person gave, in MB (10^6 bytes) and GB/s.

    Raises:
        InputError: one is out of range.
    """
    least_mb = proxy.PAGE_BYTES / BYTES_PER_MB
    if not least_mb <= footprint_mb < math.inf:
        raise InputError(
            f"--footprint-mb {footprint_mb:g}: a bubble touches whole pages; give a number from "
            f"{least_mb:g}"
        )
    if not 1 / BYTES_PER_GB <= gbps <= _HIGHEST_GBPS:
        raise InputError(
            f"--gbps {gbps:g}: give a number above 0, up to {_HIGHEST_GBPS}; a rate beyond the "
            "machine's is reported as missed"
        )
    footprint = round(footprint_mb * BYTES_PER_MB)
    return BubbleSettings(
        footprint_bytes=footprint - footprint % proxy.PAGE_BYTES,
        bytes_per_s=round(gbps * BYTES_PER_GB),
    )
