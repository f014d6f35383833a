"""resctrl by a planted tree: what the kernel does to a group's folder, `Kernel` does."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from veltair.proxy.sources.computer import Computer
from veltair.proxy.sources.reading import Reading, Scope
from veltair.proxy.sources.resctrl import Folders, Resctrl
from veltair.runtime.errors import SourceError

FILES = {"llc_occupancy": "1000", "mbm_total_bytes": "5000", "mbm_local_bytes": "4000"}


class Kernel(Folders):
    """Fills a new group as the kernel does, and removes it with what is in it."""

    def __init__(self, caches: tuple[str, ...] = ("mon_L3_00", "mon_L3_01")) -> None:
        self.caches = caches
        self.made: list[Path] = []

    def make(self, group: Path) -> None:
        super().make(group)
        self.made.append(group)
        (group / "tasks").touch()
        (group / "mon_data").mkdir()
        for cache in self.caches:
            (group / "mon_data" / cache).mkdir()
            for name, value in FILES.items():
                (group / "mon_data" / cache / name).write_text(f"{value}\n")

    def remove(self, group: Path) -> None:
        shutil.rmtree(group)


class Full(Folders):
    def __init__(self, number: int) -> None:
        self.number = number

    def make(self, group: Path) -> None:
        raise OSError(self.number, os.strerror(self.number), str(group))


@pytest.fixture
def computer(tmp_path: Path) -> Computer:
    (tmp_path / "sys/fs/resctrl/mon_groups").mkdir(parents=True)
    for pid, tids in {7: (7, 8), 9: (9,)}.items():
        for tid in tids:
            (tmp_path / f"proc/{pid}/task/{tid}").mkdir(parents=True)
    return Computer(root=tmp_path)


def put(group: Path, cache: str, name: str, value: str) -> None:
    (group / "mon_data" / cache / name).write_text(f"{value}\n")


def found(reading: Reading) -> dict[tuple[str, str], float]:
    return {
        (count.name, count.where.rpartition(" in ")[2]): count.value for count in reading.counts
    }


def test_bytes_are_since_the_last_read_and_occupancy_is_now(computer: Computer) -> None:
    kernel = Kernel()
    source = Resctrl([7, 9], computer, folders=kernel)
    (group,) = kernel.made
    assert group.parent == computer.resctrl / "mon_groups"
    assert (group / "tasks").read_text().split() == ["7", "8", "9"]
    put(group, "mon_L3_00", "mbm_total_bytes", "5700")
    put(group, "mon_L3_01", "mbm_local_bytes", "4001")
    put(group, "mon_L3_01", "llc_occupancy", "64")
    reading = source.read()
    assert found(reading) == {
        ("l3_occupancy", "L3 0"): 1000,
        ("memory_moved", "L3 0"): 700,
        ("memory_moved_local", "L3 0"): 0,
        ("l3_occupancy", "L3 1"): 64,
        ("memory_moved", "L3 1"): 0,
        ("memory_moved_local", "L3 1"): 1,
    }
    assert {(count.unit, count.scope) for count in reading.counts} == {("bytes", Scope.COMPLEX)}
    assert reading.counts[0].where == "processes 7, 9 in L3 0"
    assert found(source.read())["memory_moved", "L3 0"] == 0
    source.close()
    assert not group.exists()
    source.close()


@pytest.mark.parametrize("said", ["Unavailable", "Error", ""])
def test_what_the_kernel_cannot_say_is_missing(computer: Computer, said: str) -> None:
    kernel = Kernel(("mon_L3_00",))
    source = Resctrl([7], computer, folders=kernel)
    put(kernel.made[0], "mon_L3_00", "mbm_total_bytes", said)
    reading = source.read()
    assert ("memory_moved", "L3 0") not in found(reading)
    (lack,) = reading.missing
    assert lack.name == "memory_moved"
    assert f"the kernel says {said!r}" in lack.reason
    # The next value has nothing to be counted from; the one after it has.
    put(kernel.made[0], "mon_L3_00", "mbm_total_bytes", "9000")
    (lack,) = source.read().missing
    assert "no value before this one" in lack.reason
    put(kernel.made[0], "mon_L3_00", "mbm_total_bytes", "9001")
    assert found(source.read())["memory_moved", "L3 0"] == 1


def test_a_count_that_goes_back_is_missing(computer: Computer) -> None:
    kernel = Kernel(("mon_L3_00",))
    source = Resctrl([7], computer, folders=kernel)
    put(kernel.made[0], "mon_L3_00", "mbm_total_bytes", "4999")
    (lack,) = source.read().missing
    assert lack.reason == "the count went back, from 5000 to 4999"


def test_a_processor_that_counts_occupancy_alone(computer: Computer) -> None:
    kernel = Kernel(("mon_L3_00",))
    source = Resctrl([7], computer, folders=kernel)
    for name in ("mbm_total_bytes", "mbm_local_bytes"):
        (kernel.made[0] / "mon_data/mon_L3_00" / name).unlink()
    reading = source.read()
    assert found(reading) == {("l3_occupancy", "L3 0"): 1000}
    assert reading.missing == ()


def test_a_group_that_was_removed(computer: Computer) -> None:
    kernel = Kernel()
    source = Resctrl([7], computer, folders=kernel)
    shutil.rmtree(kernel.made[0])
    with pytest.raises(SourceError, match="the group was removed or resctrl unmounted"):
        source.read()
    source.close()


def test_a_process_that_is_none_leaves_no_group(computer: Computer) -> None:
    with pytest.raises(SourceError, match="process 11: there is none"):
        Resctrl([7, 11], computer, folders=Kernel())
    assert list((computer.resctrl / "mon_groups").iterdir()) == []


def test_a_machine_without_monitored_caches(computer: Computer) -> None:
    with pytest.raises(SourceError, match="no L3 is monitored"):
        Resctrl([7], computer, folders=Kernel(()))
    assert list((computer.resctrl / "mon_groups").iterdir()) == []


@pytest.mark.parametrize(
    ("number", "part"),
    [
        (errno.ENOSPC, "all monitoring groups that the hardware has are in use"),
        (errno.EACCES, "run as root"),
        (errno.EEXIST, "is there already"),
        (errno.ENOENT, "is resctrl mounted"),
    ],
)
def test_a_group_that_cannot_be_made(computer: Computer, number: int, part: str) -> None:
    with pytest.raises(SourceError, match=part):
        Resctrl([7], computer, folders=Full(number))
