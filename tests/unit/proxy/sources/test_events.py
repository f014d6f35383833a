"""Which events each maker's processors have for what we count."""

from __future__ import annotations

from pathlib import Path

import pytest
from machine_trees import planted

from veltair.proxy.sources.computer import Processor
from veltair.proxy.sources.events import shared_units, task_groups


def processor(maker: str, family: int, model: int) -> Processor:
    return Processor(maker=maker, family=family, model=model, hypervisor=False)


def names(of: Processor) -> list[list[str]]:
    return [[event.name for event in group] for group in task_groups(of)]


def test_intel_counts_its_last_cache_in_the_cores() -> None:
    llc = ["instructions", "cycles", "llc_references", "llc_misses"]
    assert names(processor("GenuineIntel", 6, 0x6A)) == [llc, ["flops"] * 3, ["flops"] * 2]
    assert names(processor("GenuineIntel", 6, 0x2D)) == [llc]  # Sandy Bridge counts them otherwise
    assert names(processor("Unknown", 7, 1)) == [llc]


def test_a_vector_of_16_counts_16_operations() -> None:
    groups = task_groups(processor("GenuineIntel", 6, 0x8F))
    weights = {event.config: event.weight for group in groups[1:] for event in group}
    assert weights == {0x03C7: 1, 0x04C7: 2, 0x18C7: 4, 0x60C7: 8, 0x80C7: 16}


@pytest.mark.parametrize(
    ("family", "model", "mask"),
    [(0x17, 0x31, 0xFF), (0x19, 0x01, 0x0F), (0x19, 0x11, 0x1F), (0x19, 0x61, 0x1F), (0x1A, 2, 15)],
)
def test_amd_has_no_last_cache_in_the_cores(family: int, model: int, mask: int) -> None:
    core, flops = task_groups(processor("AuthenticAMD", family, model))
    assert [event.name for event in core] == ["instructions", "cycles"]
    assert [(event.config, event.weight) for event in flops] == [(0x03 | mask << 8, 1)]


def test_a_tasks_events_leave_the_kernel_out() -> None:
    for maker in ("GenuineIntel", "AuthenticAMD"):
        groups = task_groups(processor(maker, 6 if maker == "GenuineIntel" else 0x19, 0x6A))
        assert all(event.user_only for group in groups for event in group)


@pytest.mark.parametrize(
    ("machine", "codes"),
    [
        ("amd_zen2", {"l3_accesses": (15, 0xFF04, 0), "l3_misses": (15, 0x0106, 0)}),
        ("amd_zen4", {"l3_accesses": (15, 0xFF04, 0), "l3_misses": (15, 0x0104, 0)}),
    ],
)
def test_amd_counts_each_complex(
    tmp_path: Path, machine: str, codes: dict[str, tuple[int, int, int]]
) -> None:
    computer = planted(machine, tmp_path)
    (unit,) = shared_units(computer.processor(), computer.devices)
    assert unit.per_complex
    assert {e.name: (e.type, e.config, e.config1) for e in unit.group} == codes
    assert not any(event.user_only for event in unit.group)


@pytest.mark.parametrize(
    ("machine", "misses"),
    [
        ("intel_skylake_sp", (0x2135, 0x3B << 32)),
        ("intel_icelake_sp", (0x0135 | 0xC001FE << 32, 0)),
    ],
)
def test_intel_counts_boxes_and_channels(
    tmp_path: Path, machine: str, misses: tuple[int, int]
) -> None:
    computer = planted(machine, tmp_path)
    units = shared_units(computer.processor(), computer.devices)
    assert [(unit.device.name, unit.per_complex) for unit in units] == [
        ("uncore_cha_0", True),
        ("uncore_cha_1", True),
        ("uncore_cha_2", True),
        ("uncore_imc_0", False),
        ("uncore_imc_1", False),
    ]
    missed = units[0].group[1]
    assert (missed.name, missed.config, missed.config1) == ("l3_misses", *misses)
    traffic = units[3].group
    assert [(e.name, e.unit, e.weight) for e in traffic] == [
        ("memory_read", "bytes", 64),
        ("memory_written", "bytes", 64),
    ]


def test_a_scale_that_is_no_line_is_left_out(tmp_path: Path) -> None:
    computer = planted("intel_icelake_sp", tmp_path)
    for number in (0, 1):
        events = computer.devices / f"uncore_imc_{number}/events"
        (events / "cas_count_read.scale").write_text("1e-5\n")
        (events / "cas_count_write.unit").write_text("Joules\n")
    units = shared_units(computer.processor(), computer.devices)
    assert {unit.device.name for unit in units} == {"uncore_cha_0", "uncore_cha_1", "uncore_cha_2"}


def test_an_unknown_model_has_no_units(tmp_path: Path) -> None:
    computer = planted("intel_icelake_sp", tmp_path)
    assert shared_units(processor("GenuineIntel", 6, 0x2D), computer.devices) == ()
    assert shared_units(processor("HygonGenuine", 24, 1), computer.devices) == ()
