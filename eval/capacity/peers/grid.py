"""Settings of the peers: how many sessions share the cores, with how many threads each."""

from __future__ import annotations

from dataclasses import dataclass

BLOCKING = "blocking"


@dataclass(frozen=True, kw_only=True)
class Split:
    """Cores divided among sessions.

    Attributes:
        sessions: that compute one query each.
        threads: of each.
        spinning: whether threads spin while they wait for a part of a query.
    """

    sessions: int
    threads: int
    spinning: bool = True

    def __str__(self) -> str:
        """As the results name it: `1x2` is one session of two threads."""
        name = f"{self.sessions}x{self.threads}"
        return name if self.spinning else f"{name}-{BLOCKING}"


def splits(cores: int) -> tuple[Split, ...]:
    """Returns each way to give all cores to sessions of equal size, the fewest sessions first."""
    return tuple(
        Split(sessions=sessions, threads=cores // sessions)
        for sessions in range(1, cores + 1)
        if cores % sessions == 0
    )


def parse_split(text: str) -> Split:
    """Reads what `str` of a split gives."""
    counts, _, way = text.partition("-")
    sessions, threads = map(int, counts.split("x"))
    return Split(sessions=sessions, threads=threads, spinning=way != BLOCKING)


def places(split: Split, cpus: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Returns the processors of each session: none is in two of them."""
    step = split.threads
    return tuple(cpus[first * step : (first + 1) * step] for first in range(split.sessions))
