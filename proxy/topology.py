"""Which processors share a cache, and which of them are for bubbles."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from veltair.runtime.errors import InputError
from veltair.runtime.machine import size_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_CPUS = Path("/sys/devices/system/cpu")
_SHARED_LEVEL = "3"
_BUBBLE_PART = 4  # one of so many processors of a shared cache has a bubble


@dataclass(frozen=True, kw_only=True)
class Sides:
    """How a machine is divided while interference is measured.

    Attributes:
        quiet: processors that are measured, ascending.
        bubbles: those that disturb: of each shared cache the last quarter, one at least.
        per_cache: the most bubbles that share one cache.
    """

    quiet: tuple[int, ...]
    bubbles: tuple[int, ...]
    per_cache: int


def divided(cpus: Sequence[int], root: Path = _CPUS) -> Sides:
    """Divides processors so that each that is measured shares its cache with a bubble.

    Args:
        cpus: that this process may use.
        root: where Linux describes them.

    Raises:
        InputError: no two of them share a cache.
    """
    groups: dict[str, list[int]] = {}
    for cpu in sorted(cpus):
        groups.setdefault(_shared_with(root / f"cpu{cpu}"), []).append(cpu)
    quiet: list[int] = []
    bubbles: list[int] = []
    most = 0
    for group in groups.values():
        count = max(1, len(group) // _BUBBLE_PART)
        if len(group) > 1:  # a processor that shares with none can't be disturbed: left out
            quiet += group[:-count]
            bubbles += group[-count:]
            most = max(most, count)
    if not bubbles:
        raise InputError(
            f"interference needs two processors that share a cache, one for a bubble; this process "
            f"may use {', '.join(map(str, sorted(cpus)))}: measure with --levels 1, or allow more"
        )
    return Sides(quiet=tuple(sorted(quiet)), bubbles=tuple(sorted(bubbles)), per_cache=most)


@dataclass(frozen=True, kw_only=True)
class SharedCache:
    """A last cache, and who shares it.

    Attributes:
        size_bytes: of all of it.
        cpus: processors that share it, ascending.
    """

    size_bytes: int
    cpus: tuple[int, ...]

    @property
    def share_bytes(self) -> int:
        """What each of them would have of it if all had the same."""
        return self.size_bytes // len(self.cpus)


def shared_cache(cpu: int, root: Path = _CPUS) -> SharedCache | None:
    """Returns the L3 of a processor; None where Linux doesn't say.

    Args:
        cpu: its number.
        root: where Linux describes them.
    """
    index = _last_cache(root / f"cpu{cpu}")
    if index is None:
        return None
    return SharedCache(
        size_bytes=size_of((index / "size").read_text().strip()),
        cpus=cpu_list((index / "shared_cpu_list").read_text().strip()),
    )


def core_complexes(cpus: Sequence[int], root: Path = _CPUS) -> tuple[int, ...]:
    """Returns the core complex of each processor, counted from 0: those that share a last cache.

    Args:
        cpus: in any order.
        root: where Linux describes them; all are of one complex where it doesn't say.
    """
    numbers: dict[str, int] = {}
    return tuple(numbers.setdefault(_shared_with(root / f"cpu{cpu}"), len(numbers)) for cpu in cpus)


def cpu_list(text: str) -> tuple[int, ...]:
    """Parses Linux's lists of processors, `0-3,8`, ascending; empty text names none."""
    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))


def cpu_ranges(cpus: Sequence[int]) -> str:
    """Writes processors as Linux does: `0-3,8`."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and cpu == parts[-1][-1] + 1:
            parts[-1].append(cpu)
        else:
            parts.append([cpu])
    return ",".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)


def usable() -> tuple[int, ...]:
    """Returns the processors that this process may use, ascending."""
    return tuple(sorted(os.sched_getaffinity(0)))


def _shared_with(cpu: Path) -> str:
    """Linux's list of who shares the last cache; one for all where it doesn't say."""
    index = _last_cache(cpu)
    return "" if index is None else (index / "shared_cpu_list").read_text().strip()


def _last_cache(cpu: Path) -> Path | None:
    for index in sorted(cpu.glob("cache/index*")):
        if (index / "level").read_text().strip() == _SHARED_LEVEL:
            return index
    return None
