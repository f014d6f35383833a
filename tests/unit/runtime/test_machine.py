from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import pytest

from veltair.runtime import machine
from veltair.runtime.machine import available_memory_bytes, core_steps

if TYPE_CHECKING:
    from pathlib import Path

MB = 1 << 20
NO_LIMIT = 2**63 - 4096  # as version 1 writes it


def group(folder: Path, limit: object, used: int, inactive: int, *, version: int) -> None:
    names = {
        1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        2: ("memory.max", "memory.current", "inactive_file"),
    }[version]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"cache 1\n{names[2]} {inactive}\n")


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(machine, "_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(machine, "_OWN_GROUPS", tmp_path / "own")
    return tmp_path / "cgroup"


def test_without_groups_it_is_the_machines(mounted: Path) -> None:
    assert not mounted.exists()
    assert available_memory_bytes() == pytest.approx(psutil.virtual_memory().available, rel=0.2)


@pytest.mark.parametrize("version", [1, 2])
def test_a_containers_limit_counts(mounted: Path, version: int) -> None:
    line = {1: "4:cpu,memory:/all/one", 2: "0::/all/one"}[version]
    mounted.parent.joinpath("own").write_text(f"9:name=systemd:/\n{line}\n")
    root = mounted / "memory" if version == 1 else mounted
    none = NO_LIMIT if version == 1 else "max"
    group(root / "all" / "one", none, 5 * MB, 0, version=version)
    group(root / "all", 30 * MB, 22 * MB, 2 * MB, version=version)
    assert available_memory_bytes() == 10 * MB
    group(root / "all" / "one", 20 * MB, 21 * MB, 0, version=version)
    assert available_memory_bytes() == 0


def test_within_a_container_its_group_is_the_root(mounted: Path) -> None:
    mounted.parent.joinpath("own").write_text("0::/as/the/host/sees/it\n")
    group(mounted, 8 * MB, 3 * MB, 0, version=2)
    assert available_memory_bytes() == 5 * MB


@pytest.mark.parametrize(
    ("cores", "steps"),
    [(1, (1,)), (2, (1, 2)), (3, (1, 2, 3)), (16, (1, 2, 4, 8, 16)), (20, (1, 2, 4, 8, 16, 20))],
)
def test_the_steps_of_cores_double_and_end_at_all(cores: int, steps: tuple[int, ...]) -> None:
    assert core_steps(cores) == steps
