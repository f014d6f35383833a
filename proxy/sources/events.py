"""Which events a processor has for what we want to know.

| count | Intel | AMD Zen |
|---|---|---|
| `instructions`, `cycles` | architectural, by the kernel's names | the same |
| `llc_references`, `llc_misses` | architectural, 2Eh/4Fh and 2Eh/41h | the cores have none |
| `flops` | C7h FP_ARITH_INST_RETIRED, by width; FMA counts twice | 03h Retired SSE/AVX FLOPs |
| `l3_accesses` | CHA, 35h TOR_INSERTS.IA | `amd_l3`, 04h/FFh; Zen 1: 01h/80h |
| `l3_misses` | CHA, 35h TOR_INSERTS.IA_MISS | `amd_l3`, 04h/01h; before Zen 3: 06h/01h |
| `memory_read`, `memory_written` | IMC, the kernel's `cas_count_*` | none here |

The kernel's own `cache-references` are the second level's on AMD, so they are not taken for the
last one's.

Reference: Intel's Performance Monitoring Events (perfmon-events.intel.com) and uncore guides of
each Xeon; AMD's Processor Programming References; the tables of both makers in Linux,
tools/perf/pmu-events/arch/x86.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from veltair.proxy.sources.computer import AMD, INTEL
from veltair.proxy.sources.event_device import devices_named

if TYPE_CHECKING:
    from pathlib import Path

    from veltair.proxy.sources.computer import Processor
    from veltair.proxy.sources.event_device import EventDevice

EVENTS = "events"
BYTES = "bytes"
FLOPS = "floating-point operations"

_HARDWARE = 0  # perf_event_open's types
_SOFTWARE = 1
_RAW = 4
_AMD_L3 = "amd_l3"
_LINE_BYTES = 64
_UNIT_BYTES = {"MiB": 1 << 20}

# FP_ARITH_INST_RETIRED's masks, and operations a count, two groups of them: not all processors have
# five free counters.
_INTEL_FLOPS = (((0x03, 1), (0x04, 2), (0x18, 4)), ((0x60, 8), (0x80, 16)))
# Models of family 6 that have it: Broadwell to Granite Rapids. Others are left without `flops`.
_INTEL_FLOPS_MODELS = frozenset(
    {0x3D, 0x47, 0x4F, 0x56, 0x4E, 0x5E, 0x55, 0x8E, 0x9E, 0xA5, 0xA6, 0x7D, 0x7E, 0x6A, 0x6C}
    | {0x8C, 0x8D, 0xA7, 0x8F, 0xCF, 0xAD, 0xAE}
)
_FILTERED = "filter_loc,filter_rem,filter_all_op,filter_nm,filter_not_nm"
_SKYLAKE_SP = {
    "l3_accesses": f"event=0x35,umask=0x31,{_FILTERED}",
    "l3_misses": f"event=0x35,umask=0x21,{_FILTERED}",
}
_ICELAKE_SP = {
    "l3_accesses": "event=0x35,umask=0xc001ff01",
    "l3_misses": "event=0x35,umask=0xc001fe01",
}
_CHA_MODELS = {
    0x55: _SKYLAKE_SP,  # and Cascade Lake, Cooper Lake
    0x6A: _ICELAKE_SP,
    0x6C: _ICELAKE_SP,
    0x8F: _ICELAKE_SP,  # Sapphire Rapids
    0xCF: _ICELAKE_SP,  # Emerald Rapids
    0xAD: _ICELAKE_SP,  # Granite Rapids
    0xAE: _ICELAKE_SP,
}


@dataclass(frozen=True, kw_only=True)
class Event:
    """An event to count, and what it is counted for.

    Attributes:
        name: of the count that it is a part of.
        unit: of that count.
        type: of the event, as perf_event_open takes it.
        config: the same.
        config1: the same.
        weight: what one of it adds to the count.
        user_only: leave out what the kernel did, as paranoid level 2 demands of a task's events.
    """

    name: str
    unit: str
    type: int
    config: int
    config1: int = 0
    weight: float = 1.0
    user_only: bool = True


Group = tuple[Event, ...]  # counted together, or not at all


def has_llc(processor: Processor) -> bool:
    """Whether a core counts its own references to the last cache."""
    return processor.maker != AMD


def task_groups(processor: Processor) -> tuple[Group, ...]:
    """What is counted for each thread of a task.

    Args:
        processor: where; of one that isn't known only what all have.
    """
    common = [("instructions", 1), ("cycles", 0)]
    if has_llc(processor):
        common += [("llc_references", 2), ("llc_misses", 3)]
    groups = [
        tuple(Event(name=name, unit=EVENTS, type=_HARDWARE, config=code) for name, code in common)
    ]
    if processor.maker == INTEL and processor.family == 6:
        if processor.model in _INTEL_FLOPS_MODELS:
            groups += [tuple(_flops(0xC7, *each) for each in part) for part in _INTEL_FLOPS]
    elif processor.maker == AMD and processor.family in _AMD_FLOPS:
        groups.append((_flops(0x03, _amd_flops(processor), 1),))
    return tuple(groups)


# Masks of the additions, multiplications, divisions and multiply-additions, by family.
_AMD_FLOPS = {0x17: 0xFF, 0x19: 0x0F, 0x1A: 0x0F}
_ZEN4_MODELS = (range(0x10, 0x20), range(0x60, 0xB0))  # of family 19h; they count bfloat16 too


def _amd_flops(processor: Processor) -> int:
    if processor.family == 0x19 and any(processor.model in models for models in _ZEN4_MODELS):
        return 0x1F
    return _AMD_FLOPS[processor.family]


def _flops(event: int, mask: int, operations: int) -> Event:
    return Event(
        name="flops", unit=FLOPS, type=_RAW, config=event | mask << 8, weight=float(operations)
    )


def software_groups() -> tuple[Group, ...]:
    """What the kernel counts for a thread itself, on every machine."""
    return (
        (
            Event(name="task_clock", unit="ns", type=_SOFTWARE, config=1),
            Event(name="page_faults", unit=EVENTS, type=_SOFTWARE, config=2),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class UnitEvents:
    """Events of one unit that cores share.

    Attributes:
        device: that counts them.
        group: what.
        per_complex: whether it is of a core complex; otherwise of the machine.
    """

    device: EventDevice
    group: Group
    per_complex: bool


def shared_units(processor: Processor, devices: Path) -> tuple[UnitEvents, ...]:
    """What is counted where cores meet; nothing on a processor whose events we don't know.

    Args:
        processor: where.
        devices: Linux's folder of units that count.

    Raises:
        SourceError: the kernel describes a unit in a way that lacks what we need.
    """
    if processor.maker == AMD:
        return tuple(
            UnitEvents(device=each, group=_group(each, _amd_l3(processor)), per_complex=True)
            for each in devices_named(devices, _AMD_L3)
        )
    codes = _CHA_MODELS.get(processor.model) if processor.family == 6 else None
    if processor.maker != INTEL or codes is None:
        return ()
    boxes = tuple(
        UnitEvents(device=each, group=_group(each, codes), per_complex=True)
        for each in devices_named(devices, r"uncore_cha_\d+")
    )
    channels = tuple(
        UnitEvents(device=each, group=_traffic(each), per_complex=False)
        for each in devices_named(devices, r"uncore_imc_\d+")
    )
    return boxes + tuple(each for each in channels if each.group)


def _amd_l3(processor: Processor) -> dict[str, str]:
    zen1 = processor.family == 0x17 and processor.model < 0x30
    zen2 = processor.family == 0x17 and not zen1
    # The kernel counts all cores, threads and slices where their fields are left out.
    return {
        "l3_accesses": "event=0x01,umask=0x80" if zen1 else "event=0x04,umask=0xff",
        "l3_misses": "event=0x06,umask=0x01" if zen1 or zen2 else "event=0x04,umask=0x01",
    }


def _group(device: EventDevice, codes: dict[str, str]) -> Group:
    return tuple(_shared(device, name, EVENTS, text, 1.0) for name, text in codes.items())


def _traffic(device: EventDevice) -> Group:
    """The bytes of a memory channel, from the events that the kernel names and scales."""
    found = []
    for name in device.names():
        kind = re.fullmatch(r"cas_count_(read|write)(_sch\d)?", name)
        event = device.named(name)
        if kind is None or event is None:
            continue
        bytes_each = event.scale * _UNIT_BYTES.get(event.unit, 0)
        if round(bytes_each) == _LINE_BYTES:  # else the kernel means something else by it
            count = "memory_read" if kind[1] == "read" else "memory_written"
            found.append(_shared(device, count, BYTES, event.text, bytes_each))
    return tuple(found)


def _shared(device: EventDevice, name: str, unit: str, text: str, weight: float) -> Event:
    code = device.encode(text)
    return Event(
        name=name,
        unit=unit,
        type=code.type,
        config=code.config,
        config1=code.config1,
        weight=weight,
        user_only=False,  # a unit doesn't know on whose behalf it is used
    )
