"""What machine this is, for profiles and results: read from Linux's text files."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator

    from veltair.runtime.config import EngineConfig

_CPUINFO = Path("/proc/cpuinfo")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class _GroupFiles(NamedTuple):
    """How a version of control groups names a group's memory: limit, use, and what can go of it."""

    limit: str
    used: str
    inactive: str


_GROUPS_1 = _GroupFiles("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_GROUPS_2 = _GroupFiles("memory.max", "memory.current", "inactive_file")


def cpu_flags() -> frozenset[str]:
    """Instruction set flags of the first processor, as Linux names them."""
    return frozenset(_cpuinfo_field("flags").split())


def usable_cores() -> int:
    """Cores of this process."""
    return len(os.sched_getaffinity(0))


def core_steps(cores: int) -> tuple[int, ...]:
    """Numbers of cores to look at on a machine of so many: one, two, four, ... all."""
    return (*(1 << power for power in range((cores - 1).bit_length())), cores)


def machine_facts() -> dict[str, str | int]:
    """Processor model, cores that this process may use, cache sizes in bytes, kernel."""
    facts: dict[str, str | int] = {
        "cpu": _cpuinfo_field("model name") or platform.machine(),
        "cores": usable_cores(),
        "kernel": platform.release(),
    }
    for index in sorted(_CACHES.glob("index*")):
        level = (index / "level").read_text().strip()
        kind = (index / "type").read_text().strip()
        if kind != "Instruction":
            facts[f"l{level}_bytes"] = size_of((index / "size").read_text().strip())
    return facts


def available_memory_bytes() -> int:
    """Memory that this process may still take: of the machine, and within its container's limit."""
    return min((psutil.virtual_memory().available, *_left_in_groups(_OWN_GROUPS, _GROUPS)))


def _left_in_groups(own: Path, mounted: Path) -> Iterator[int]:
    """What is left to this process's control groups that have a limit, and to those around them.

    Args:
        own: the list of its groups.
        mounted: where they are mounted; within a container its own group may be the root there.
    """
    for line in own.read_text().splitlines() if own.is_file() else ():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, files = mounted, _GROUPS_2
        elif "memory" in controllers.split(","):
            root, files = mounted / "memory", _GROUPS_1
        else:
            continue
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(root) and (folder / files.limit).is_file():
                left = _left_in(folder, files)
                if left is not None:
                    yield left


def _left_in(folder: Path, files: _GroupFiles) -> int | None:
    """What is left to one group; None where it has no limit."""
    limit = (folder / files.limit).read_text().strip()
    if limit == "max":
        return None
    fields = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    used = int((folder / files.used).read_text()) - int(fields.get(files.inactive, 0))
    return max(int(limit) - used, 0)


SPARE_WORKERS = 2  # beyond the cores: some tasks wait between their blocks


def cores_to_serve(engine: EngineConfig) -> tuple[int, ...]:
    """Numbers of the cores that a server of this configuration has, ascending where it chooses."""
    if engine.virtual_cores:
        return tuple(range(engine.virtual_cores))
    return engine.cores or tuple(sorted(os.sched_getaffinity(0)))


def _cpuinfo_field(name: str) -> str:
    for line in _CPUINFO.read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def size_of(text: str) -> int:
    """Parses a size as Linux writes it, `32768K`, into bytes."""
    unit = _UNITS.get(text[-1:], 1)
    return int(text.rstrip("KMG")) * unit
