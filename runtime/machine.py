"""What machine this is, for profiles and results: read from Linux's text files."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from veltair.runtime.config import EngineConfig

_CPUINFO = Path("/proc/cpuinfo")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def cpu_flags() -> frozenset[str]:
    """Instruction set flags of the first processor, as Linux names them."""
    return frozenset(_cpuinfo_field("flags").split())


def machine_facts() -> dict[str, str | int]:
    """Processor model, cores that this process may use, cache sizes in bytes, kernel."""
    facts: dict[str, str | int] = {
        "cpu": _cpuinfo_field("model name") or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
    }
    for index in sorted(_CACHES.glob("index*")):
        level = (index / "level").read_text().strip()
        kind = (index / "type").read_text().strip()
        if kind != "Instruction":
            facts[f"l{level}_bytes"] = _bytes((index / "size").read_text().strip())
    return facts


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


def _bytes(text: str) -> int:
    unit = _UNITS.get(text[-1:], 1)
    return int(text.rstrip("KMG")) * unit
