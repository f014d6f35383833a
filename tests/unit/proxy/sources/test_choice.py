"""Which source is taken on which machine, and what is said of the others."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from machine_trees import planted

from veltair.proxy.sources.choice import open_best, open_source
from veltair.proxy.sources.computer import Computer
from veltair.proxy.sources.kinds import KINDS, Verdict, Works
from veltair.runtime._native import proxy
from veltair.runtime.errors import InputError, SourceError

ME = [os.getpid()]
NAMES = ["perf-task", "perf-uncore", "resctrl", "probe", "self", "perf-software"]

Answer = Callable[[int], int]  # from the cpu, -1 for a thread's events, to an errno, or 0


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answer], None]:
    """Sets what perf_event_open answers."""

    def set_answer(answer: Answer) -> None:
        def group(_events: object, _tid: int, cpu: int) -> object:
            number = answer(cpu)
            if number:
                raise OSError(number, os.strerror(number))
            return object()

        monkeypatch.setattr(proxy, "PerfGroup", group)

    return set_answer


def allows_all(_cpu: int) -> int:
    return 0


def allows_threads(cpu: int) -> int:
    return errno.EACCES if cpu >= 0 else 0


def verdict(name: str, computer: Computer) -> Verdict:
    (kind,) = (kind for kind in KINDS if kind.name == name)
    return kind.look(computer, [0])


def with_resctrl(computer: Computer, *folders: str) -> Computer:
    for folder in folders:
        (computer.resctrl / folder).mkdir(parents=True)
    return computer


def with_me(computer: Computer) -> Computer:
    (computer.processes / f"{ME[0]}/task/{ME[0]}").mkdir(parents=True)
    return computer


def test_the_order_is_best_first() -> None:
    assert [kind.name for kind in KINDS] == NAMES


@pytest.mark.parametrize(
    ("machine", "chosen"),
    [
        ("intel_icelake_sp", "perf-task"),
        ("intel_skylake_sp", "perf-task"),
        ("amd_zen4", "perf-uncore"),
        ("amd_zen2", "perf-uncore"),
        ("virtual", "probe"),
    ],
)
def test_the_best_that_works_is_taken(
    tmp_path: Path, machine: str, chosen: str, kernel: Callable[[Answer], None]
) -> None:
    kernel(allows_all)
    found = open_best([0], ME, with_me(planted(machine, tmp_path)))
    found.source.close()
    assert found.source.name == chosen
    assert list(found.passed_over) == NAMES[: NAMES.index(chosen)]


def test_without_rights_a_worse_one_is_taken(
    tmp_path: Path, kernel: Callable[[Answer], None]
) -> None:
    kernel(allows_threads)
    computer = planted("amd_zen4", tmp_path)
    found = open_best([0], ME, computer)
    found.source.close()
    assert found.source.name == "probe"
    assert "perf_event_paranoid is 2" in found.passed_over["perf-uncore"]


def test_they_are_tried_in_the_order_of_their_names(
    tmp_path: Path, kernel: Callable[[Answer], None]
) -> None:
    kernel(allows_all)
    computer = with_me(planted("intel_icelake_sp", tmp_path))
    for names in (["perf-uncore"], ["perf-uncore", "perf-task"], ["resctrl", "perf-uncore"]):
        found = open_best([0], ME, computer, names)
        assert found.source.name == "perf-uncore"
        assert list(found.passed_over) == names[: names.index("perf-uncore")]


def test_one_that_cannot_be_opened_is_passed_over(
    tmp_path: Path, kernel: Callable[[Answer], None]
) -> None:
    kernel(allows_all)
    found = open_best([0], [4_194_305], planted("intel_icelake_sp", tmp_path))
    assert found.source.name == "perf-uncore"
    assert "there is none" in found.passed_over["perf-task"]


def test_none_is_left(tmp_path: Path, kernel: Callable[[Answer], None]) -> None:
    kernel(allows_all)
    computer = planted("virtual", tmp_path)
    with pytest.raises(SourceError, match=r"no source works here .*resctrl: "):
        open_best([0], ME, computer, ["resctrl"])
    with pytest.raises(SourceError, match="none was named"):
        open_best([0], ME, computer, [])


def test_a_source_can_be_forced(tmp_path: Path, kernel: Callable[[Answer], None]) -> None:
    kernel(allows_all)
    computer = with_me(planted("amd_zen4", tmp_path))
    for name in ("perf-task", "perf-software", "self", "probe"):
        source = open_source(name, [0], ME, computer)
        assert source.name == name
        source.close()
    with pytest.raises(SourceError, match="resctrl doesn't work here: resctrl is not mounted; ena"):
        open_source("resctrl", [0], ME, computer)
    with pytest.raises(InputError, match="did you mean 'probe'"):
        open_source("prob", [0], ME, computer)


def test_amds_cores_lack_what_says_most(tmp_path: Path, kernel: Callable[[Answer], None]) -> None:
    kernel(allows_all)
    found = verdict("perf-task", planted("amd_zen4", tmp_path))
    assert found.works is Works.PARTLY
    assert "not this maker" in found.reason


@pytest.mark.parametrize(
    ("number", "reason", "remedy"),
    [
        (errno.EACCES, "forbidden here, though kernel.perf_event_paranoid 0", "seccomp"),
        (errno.ENOENT, "doesn't count the event", "virtual PMU"),
        (errno.ENOSYS, "no perf events", "CONFIG_PERF_EVENTS"),
    ],
)
@pytest.mark.parametrize("name", ["perf-task", "perf-uncore", "perf-software"])
def test_a_refusal_is_explained(
    tmp_path: Path,
    kernel: Callable[[Answer], None],
    name: str,
    number: int,
    reason: str,
    remedy: str,
) -> None:
    kernel(lambda _cpu: number)
    found = verdict(name, planted("intel_icelake_sp", tmp_path))
    assert found.works is Works.NO
    assert reason in found.reason
    assert remedy in found.remedy


def test_a_virtual_machine_has_no_units(tmp_path: Path) -> None:
    computer = planted("virtual", tmp_path)
    for name, unit in (("perf-task", "cpu"), ("perf-uncore", "amd_l3")):
        found = verdict(name, computer)
        assert found.works is Works.NO
        assert f"this virtual machine shows no {unit}" in found.reason
        assert "bare metal" in found.remedy


def test_cores_of_two_kinds(tmp_path: Path) -> None:
    computer = planted("intel_icelake_sp", tmp_path)
    (computer.devices / "cpu").rename(computer.devices / "cpu_core")
    assert "two kinds" in verdict("perf-task", computer).reason


def test_a_processor_that_is_not_in_the_table(tmp_path: Path) -> None:
    computer = planted("intel_icelake_sp", tmp_path)
    info = computer.processes / "cpuinfo"
    info.write_text(info.read_text().replace(": 106", ": 45"))
    assert "not in our table" in verdict("perf-uncore", computer).reason


@pytest.mark.parametrize(
    ("machine", "folders", "reason", "remedy"),
    [
        ("virtual", [], "this kernel or processor has no resctrl", "CONFIG_X86_CPU_RESCTRL"),
        ("amd_zen4", [], "not mounted", "mount -t resctrl resctrl /sys/fs/resctrl"),
        ("amd_zen4", ["info"], "doesn't monitor its L3", "CMT"),
        ("amd_zen4", ["info/L3_MON"], "may not make monitoring groups", "run as root"),
    ],
)
def test_what_resctrl_lacks(
    tmp_path: Path, machine: str, folders: list[str], reason: str, remedy: str
) -> None:
    computer = with_resctrl(planted(machine, tmp_path), *folders)
    found = verdict("resctrl", computer)
    assert found.works is Works.NO
    assert reason in found.reason
    assert remedy in found.remedy


def test_resctrl_is_taken_where_counters_are_forbidden(
    tmp_path: Path, kernel: Callable[[Answer], None]
) -> None:
    kernel(lambda _cpu: errno.EACCES)
    computer = with_resctrl(planted("intel_icelake_sp", tmp_path), "info/L3_MON", "mon_groups")
    assert verdict("resctrl", computer).works is Works.YES
