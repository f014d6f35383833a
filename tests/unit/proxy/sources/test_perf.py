"""Sources over perf_event_open: the real call by software events, hardware's answers by a stand-in.

No machine of continuous integration has the counters, so `Hardware` answers as a kernel would.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machine_trees import planted

from veltair.proxy.sources.computer import Computer
from veltair.proxy.sources.events import shared_units, software_groups, task_groups
from veltair.proxy.sources.perf import PerfTasks, PerfUnits
from veltair.proxy.sources.reading import Reading, Scope
from veltair.runtime._native import proxy
from veltair.runtime.errors import SourceError

PAGES = 2000


@dataclass
class Times:
    elapsed_ns: int = 1000
    enabled_ns: int = 1000
    running_ns: int = 1000
    by_page: bool = False


@dataclass
class Hardware:
    """What groups answer: each event the number of its place in the group, from 1."""

    times: Times = field(default_factory=Times)
    refuses: int = 0
    fails: int = 0
    opened: list[tuple[int, int]] = field(default_factory=list)
    open_now: int = 0

    def group(self, events: list[tuple[int, int, int, int, bool]], tid: int, cpu: int) -> Any:  # noqa: ANN401 # a local class
        if self.refuses:
            raise OSError(self.refuses, os.strerror(self.refuses))
        self.opened.append((tid, cpu))
        self.open_now += 1
        hardware = self

        class Group:
            def read(self, counts: np.ndarray[Any, Any]) -> Times:
                if hardware.fails:
                    raise OSError(hardware.fails, "the kernel has stopped these events")
                counts[:] = np.arange(1, len(events) + 1)
                if hardware.times.running_ns == 0:
                    counts[:] = np.nan
                return hardware.times

            def __del__(self) -> None:
                hardware.open_now -= 1

        return Group()


@pytest.fixture
def hardware(monkeypatch: pytest.MonkeyPatch) -> Hardware:
    made = Hardware()
    monkeypatch.setattr(proxy, "PerfGroup", made.group)
    return made


@pytest.fixture
def allowed() -> None:
    try:
        proxy.PerfGroup([(1, 1, 0, 0, True)], 0, -1)
    except OSError as error:
        pytest.skip(f"perf_event_open is not allowed here ({error.strerror})")


def values(reading: Reading) -> dict[tuple[str, str], float]:
    return {(count.name, count.where): count.value for count in reading.counts}


def fault() -> None:
    with mmap.mmap(-1, PAGES * mmap.PAGESIZE) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(PAGES):
            memory[page * mmap.PAGESIZE] = 1


class Clock:
    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


@pytest.mark.usefixtures("allowed")
def test_own_page_faults_are_counted_between_reads() -> None:
    source = PerfTasks("perf-software", software_groups(), [os.getpid()], Computer())
    source.read()
    fault()
    reading = source.read()
    faults, clock = (
        next(c for c in reading.counts if c.name == n) for n in ("page_faults", "task_clock")
    )
    assert faults.value >= PAGES
    assert (faults.scope, faults.unit, faults.where) == (
        Scope.TASK,
        "events",
        f"process {os.getpid()}",
    )
    assert clock.value > 0
    assert clock.unit == "ns"
    assert faults.confidence == 1.0
    assert reading.elapsed_ns > 0
    assert reading.missing == ()
    source.close()


@pytest.mark.usefixtures("allowed")
def test_threads_that_begin_and_end_are_counted() -> None:
    clock = Clock()
    source = PerfTasks("perf-software", software_groups(), [os.getpid()], Computer(), clock)
    source.read()
    begun, end = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        end.wait()
        fault()

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    clock.now_ns = 2_000_000_000
    before = source.read()  # takes it up
    end.set()
    thread.join()
    clock.now_ns = 4_000_000_000
    after = source.read()  # its last, though it has ended
    where = f"process {os.getpid()}"
    assert values(after)["task_clock", where] > 0
    assert before.elapsed_ns == 2_000_000_000
    assert values(after)["page_faults", where] >= PAGES
    source.close()


def test_counts_are_summed_with_their_weights(tmp_path: Path, hardware: Hardware) -> None:
    processor = planted("intel_icelake_sp", tmp_path).processor()
    me = os.getpid()
    source = PerfTasks("perf-task", task_groups(processor), [me], Computer())
    threads = len(list(Path(f"/proc/{me}/task").iterdir()))
    found = values(source.read())
    where = f"process {me}"
    assert found["llc_references", where] == 3 * threads
    # Places 1, 2, 3 of the first group weigh 1, 2, 4; 1, 2 of the second 8, 16.
    assert found["flops", where] == (1 * 1 + 2 * 2 + 3 * 4 + 1 * 8 + 2 * 16) * threads
    # The thread that opened them can read its own without a system call.
    assert hardware.opened.count((0, -1)) == 3
    source.close()
    assert hardware.open_now == 0


def test_a_share_of_the_time_is_told(hardware: Hardware) -> None:
    source = PerfTasks("perf-task", software_groups(), [os.getpid()], Computer())
    hardware.times = Times(running_ns=250)
    assert {count.confidence for count in source.read().counts} == {0.25}


def test_no_time_on_a_counter_is_no_number(hardware: Hardware) -> None:
    source = PerfTasks("perf-task", software_groups(), [os.getpid()], Computer())
    hardware.times = Times(running_ns=0)
    reading = source.read()
    assert reading.counts == ()
    assert {each.name for each in reading.missing} == {"task_clock", "page_faults"}
    assert "no time on the hardware's counters" in reading.missing[0].reason


def test_a_process_that_ended_ends_the_source(tmp_path: Path, hardware: Hardware) -> None:
    for tid in (71, 72):
        (tmp_path / f"proc/71/task/{tid}").mkdir(parents=True)
    clock = Clock()
    source = PerfTasks("perf-task", software_groups(), [71], Computer(root=tmp_path), clock)
    assert sorted(hardware.opened) == [(71, -1), (72, -1)]
    (tmp_path / "proc/71/task/72").rmdir()
    (tmp_path / "proc/71/task/73").mkdir()
    clock.now_ns = 1_000_000_000
    assert values(source.read())["task_clock", "process 71"] == 3  # 71, 73, and 72 a last time
    assert values(source.read())["task_clock", "process 71"] == 2
    for tid in (71, 73):
        (tmp_path / f"proc/71/task/{tid}").rmdir()
    (tmp_path / "proc/71/task").rmdir()
    clock.now_ns = 2_000_000_000
    source.read()
    assert hardware.open_now == 0
    with pytest.raises(SourceError, match="all processes that were counted have ended"):
        source.read()


def test_a_process_that_is_none() -> None:
    with pytest.raises(SourceError, match=r"process 4194305: there is none"):
        PerfTasks("perf-task", software_groups(), [4_194_305], Computer())


@pytest.mark.parametrize(
    ("number", "part"),
    [
        (errno.ENOENT, "doesn't count the event: bare metal, or a virtual PMU"),
        (errno.EACCES, "in a container, a seccomp profile"),
        (errno.ENOSYS, "CONFIG_PERF_EVENTS"),
        (errno.EMFILE, "raise ulimit -n"),
        (errno.EINVAL, "a newer kernel"),
    ],
)
def test_a_refusal_says_what_would_help(
    tmp_path: Path, hardware: Hardware, number: int, part: str
) -> None:
    computer = planted("intel_icelake_sp", tmp_path)
    (tmp_path / "proc/5/task/5").mkdir(parents=True)
    hardware.refuses = number
    with pytest.raises(SourceError, match=part):
        PerfTasks("perf-task", software_groups(), [5], computer)


def test_the_paranoid_level_that_is_needed_is_named(tmp_path: Path, hardware: Hardware) -> None:
    computer = planted("amd_zen4", tmp_path)
    hardware.refuses = errno.EACCES
    units = shared_units(computer.processor(), computer.devices)
    with pytest.raises(SourceError, match=r"perf_event_paranoid is 2.*needs 0: sysctl .*=0"):
        PerfUnits(units, [0], computer)


def test_only_the_complexes_of_the_cores_are_counted(tmp_path: Path, hardware: Hardware) -> None:
    computer = planted("amd_zen4", tmp_path)
    units = shared_units(computer.processor(), computer.devices)
    source = PerfUnits(units, [9, 15], computer)
    assert hardware.opened == [(-1, 8)]
    (accesses, misses) = source.read().counts
    assert (accesses.name, accesses.value, accesses.unit) == ("l3_accesses", 1, "events")
    assert (misses.name, misses.value) == ("l3_misses", 2)
    assert (accesses.scope, accesses.where) == (Scope.COMPLEX, "cores 8-15")
    with pytest.raises(SourceError, match="no unit counts for the cores 99"):
        PerfUnits(units, [99], computer)


def test_boxes_of_a_socket_and_channels_of_the_machine_are_summed(
    tmp_path: Path, hardware: Hardware
) -> None:
    computer = planted("intel_icelake_sp", tmp_path)
    source = PerfUnits(shared_units(computer.processor(), computer.devices), range(8), computer)
    assert values(source.read()) == {
        ("l3_accesses", "cores 0-3"): 3,
        ("l3_misses", "cores 0-3"): 6,
        ("l3_accesses", "cores 4-7"): 3,
        ("l3_misses", "cores 4-7"): 6,
        ("memory_read", "all"): 64 * 1 * 4,
        ("memory_written", "all"): 64 * 2 * 4,
    }
    assert len(hardware.opened) == 10


def test_a_core_that_goes_offline_fails_the_source(tmp_path: Path, hardware: Hardware) -> None:
    computer = planted("amd_zen2", tmp_path)
    source = PerfUnits(shared_units(computer.processor(), computer.devices), [0], computer)
    hardware.fails = errno.ENODEV
    with pytest.raises(SourceError, match="perf-uncore, cores 0-3: the kernel has stopped"):
        source.read()


def test_a_machine_that_hides_its_caches(tmp_path: Path, hardware: Hardware) -> None:
    computer = planted("amd_zen4", tmp_path)
    units = shared_units(computer.processor(), computer.devices)
    hidden = Computer(root=tmp_path / "elsewhere")
    with pytest.raises(SourceError, match="who shares the L3 of processor 0 isn't told"):
        PerfUnits(units, [0], hidden)
    assert hardware.opened == []
