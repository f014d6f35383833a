"""What a source says: counts with their unit, scope and confidence, and what it can't say."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Scope(str, Enum):
    """Whose events a count has."""

    TASK = "task"  # the threads of some processes, wherever they ran
    CORE = "core"
    COMPLEX = "core complex"  # cores that share an L3
    MACHINE = "machine"


@dataclass(frozen=True, kw_only=True)
class Count:
    """One named number.

    Attributes:
        name: what was counted; a name has the same unit in all sources.
        value: since the last read, or, of a state (`l3_occupancy`, all of `probe_*`), as of now.
        unit: of the value.
        scope: whose it is.
        where: which of them: `process 71`, `cores 0-7`.
        confidence: from 0 to 1: the share of the time that the counter ran, the rest being
            extrapolated; of a probe, how many walks it had of those that a reading should have.
    """

    name: str
    value: float
    unit: str
    scope: Scope
    where: str
    confidence: float


@dataclass(frozen=True, kw_only=True)
class Missing:
    """A number that a source has but can't give now: it is never guessed.

    Attributes:
        name: as of the count that it would be.
        where: as there.
        reason: why.
    """

    name: str
    where: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What one source saw since it was last read.

    Attributes:
        time_ns: when it was read, on the monotonic clock; of a recording, then.
        elapsed_ns: since the last read, or since the source was opened.
        counts: that are known.
        missing: counts that this read lacks.
    """

    time_ns: int
    elapsed_ns: int
    counts: tuple[Count, ...]
    missing: tuple[Missing, ...] = ()


class Source(Protocol):
    """A source that is open. One thread reads it; `close` gives back what it holds.

    A source that fails as a whole raises `SourceError`; one number that can't be had is `missing`
    from the reading.
    """

    @property
    def name(self) -> str:
        """As in the table of `veltair counters`."""

    def read(self) -> Reading:
        """Returns what was counted since the last read.

        Raises:
            SourceError: it has failed; the message says why, and what would help.
        """

    def close(self) -> None:
        """Ends it."""


class Stopwatch:
    """The times of a source's readings, from one clock."""

    def __init__(self, now_ns: int) -> None:
        """Begins."""
        self._last_ns = now_ns

    def lap(self, now_ns: int) -> tuple[int, int]:
        """Returns the time, and what has passed since the last lap."""
        elapsed_ns = now_ns - self._last_ns
        self._last_ns = now_ns
        return now_ns, elapsed_ns
