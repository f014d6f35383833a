"""Machines' files: what ships is complete, what is written is read, what is wrong is named."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import msgspec
import pytest
from factories import disturbed_profile, machine_table

from veltair.proxy.machine_file import (
    FIGURES,
    SHIPPED,
    find_machine,
    machine_measured_on,
    parse_machine,
    read_machine,
    shipped_machines,
    to_toml,
)
from veltair.runtime.errors import ConfigError
from veltair.runtime.manifest import Profile


@pytest.mark.parametrize(
    "name",
    [
        *("threadripper_3990x", "epyc_9654", "xeon_8480"),
        *("amd_epyc_vm", "amd_epyc_zen1_vm", "amd_epyc_zen3_vm", "intel_xeon_vm"),
    ],
)
def test_what_ships_has_a_source_for_each_figure(name: str) -> None:
    machine = find_machine(name, Path(), "machine")
    assert set(machine.sources) == set(FIGURES)
    assert name in shipped_machines()


@pytest.mark.parametrize(
    ("name", "cores", "l3_mib", "gflops"),
    [
        # 64 x 2.9 GHz x 8 lanes x 2 pipes x 2; 96 x 3.55 x 16 x 1 x 2; 56 x 2.0 x 16 x 2 x 2
        ("threadripper_3990x", 64, 256, 5939.2),
        ("epyc_9654", 96, 384, 10905.6),
        ("xeon_8480", 56, 105, 7168.0),
    ],
)
def test_published_processors_are_those(name: str, cores: int, l3_mib: int, gflops: float) -> None:
    machine = find_machine(name, Path(), "machine")
    core = machine.processor
    assert core.cores == cores
    assert core.complexes * machine.caches.l3_mib == l3_mib
    assert cores * machine.peak_gflops == pytest.approx(gflops)
    assert machine.complex_cores * core.complexes == cores


def profile_on(cpu: str, l2_kib: int, l3_mib: int) -> Profile:
    machine: dict[str, str | int] = {"cpu": cpu, "l2_bytes": l2_kib << 10, "l3_bytes": l3_mib << 20}
    return msgspec.structs.replace(disturbed_profile(), machine=machine)


@pytest.mark.parametrize(
    ("l2_kib", "l3_mib", "name"),
    [(1024, 32, "amd_epyc_vm"), (512, 8, "amd_epyc_zen1_vm"), (512, 32, "amd_epyc_zen3_vm")],
)
def test_the_machine_of_profiles_is_found_by_processor_and_caches(
    l2_kib: int, l3_mib: int, name: str
) -> None:
    # Virtual machines on each generation call the processor the same.
    found = machine_measured_on("", [profile_on("AMD EPYC", l2_kib, l3_mib)] * 2, "--machine")
    assert found == find_machine(name, Path(), "machine")


def test_profiles_of_no_shipped_machine_ask_for_its_file(tmp_path: Path) -> None:
    zen4 = profile_on("AMD EPYC", 1024, 32)
    path = tmp_path / "mine.toml"
    path.write_text(to_toml(parse_machine(machine_table()), "Made up."))
    assert machine_measured_on(str(path), [zen4], "--machine") == read_machine(path)
    with pytest.raises(ConfigError, match=r"on Z80 \(L2 0 KiB, .*, and no machine .*--machine"):
        machine_measured_on("", [profile_on("Z80", 0, 0)], "--machine")
    with pytest.raises(ConfigError, match=r"on AMD EPYC \(L2 1024 KiB, L3 4 MiB\), and no machine"):
        machine_measured_on("", [profile_on("AMD EPYC", 1024, 4)], "--machine")
    with pytest.raises(ConfigError, match=r"AMD EPYC \(.*\) and Z80"):
        machine_measured_on("", [profile_on("Z80", 0, 0), zen4], "--machine")
    with pytest.raises(ConfigError, match=r"on test \(L2 0 KiB, L3 0 MiB\)"):
        machine_measured_on("", [disturbed_profile()], "--machine")


def test_a_file_that_was_written_is_read_again(tmp_path: Path) -> None:
    machine = parse_machine(machine_table())
    path = tmp_path / "mine.toml"
    path.write_text(to_toml(machine, "Made up.\n\nFor a test."))
    assert read_machine(path) == machine
    assert find_machine("mine.toml", tmp_path, "machine.model") == machine
    assert "# Made up.\n#\n# For a test.\n" in path.read_text()


def changed(section: str, **fields: object) -> dict[str, Any]:
    table = copy.deepcopy(machine_table())
    table.setdefault(section, {}).update(fields)
    for name, value in fields.items():
        if value is None:
            del table[section][name]
    return table


@pytest.mark.parametrize(
    ("table", "parts"),
    [
        (changed("processor", cores=0), ["processor.cores = 0", ">= 1", "physical cores"]),
        (changed("processor", complexes=3), ["cores = 4, complexes = 3", "as many cores"]),
        (changed("processor", coers=4), ["processor.coers", "did you mean 'cores'"]),
        (changed("caches", l3_mib=None), ["caches.l3_mib is missing"]),
        (changed("caches", l3_mib=float("inf")), ["caches.l3_mib", "finite"]),
        (changed("memory", core_gbps=-1.0), ["memory.core_gbps = -1.0", "> 0"]),
        (changed("memory", core_gbps=50.0), ["memory.core_gbps = 50", "memory.complex_gbps"]),
        (changed("memory", complex_gbps=80.0), ["memory.complex_gbps = 80", "total_gbps"]),
        (changed("caches", l3_core_gbps=5.0), ["memory.core_gbps = 10", "caches.l3_core_gbps"]),
        (changed("launch", base_ns="1"), ["launch.base_ns = '1'"]),
        (changed("sources", **{"launch.base_ns": " "}), ['"launch.base_ns"', "where the figure"]),
        (changed("sources", **{"launch.bse_ns": "x"}), ["launch.bse_ns", "'launch.base_ns'"]),
        (changed("memroy", core_gbps=1.0), ["[memroy]", "did you mean 'memory'"]),
        ({**machine_table(), "sources": []}, ["sources = []", "section of texts"]),
    ],
)
def test_what_is_wrong_is_named(table: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_machine(table, "mine.toml")
    for part in ("mine.toml", *parts):
        assert part in str(refused.value)


def test_a_machine_that_there_is_not_names_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"machine\.model = 'xeon': neither .*xeon_8480"):
        find_machine("xeon", tmp_path, "machine.model")
    (tmp_path / "cut.toml").write_text("[processor\n")
    with pytest.raises(ConfigError, match=r"cut\.toml: not TOML"):
        find_machine("cut.toml", tmp_path, "machine.model")
    assert (SHIPPED / "epyc_9654.toml").is_file()
