"""What is made of the probe's walks; the walks themselves are tested in tests/native."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from machine_trees import planted

from veltair.proxy.sources.computer import Computer
from veltair.proxy.sources.probe import Probe, stride_bytes
from veltair.proxy.sources.reading import Reading, Scope
from veltair.proxy.topology import usable
from veltair.runtime._native import proxy
from veltair.runtime.errors import InputError, SourceError


@dataclass
class Seen:
    walks: int = 16
    interrupted: int = 0
    cpu_ns: int = 4_000
    elapsed_ns: int = 1_000_000
    low: float = 20.0
    median: float = 30.0
    high: float = 50.0
    again: float = 2.0


class Walk:
    seen = Seen()

    huge = True

    def __init__(
        self, cpus: list[int], buffer_bytes: int, stride_bytes: int, steps: int, budget: float
    ) -> None:
        self.cpus = cpus
        self.buffer_bytes = buffer_bytes
        assert buffer_bytes == stride_bytes * steps
        assert steps == 64
        assert 0 < budget < 0.005

    def reading(self) -> Seen:
        return Walk.seen


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "ProbeWalk", Walk)


def found(reading: Reading) -> dict[str, tuple[float, float]]:
    return {count.name: (count.value, count.confidence) for count in reading.counts}


@pytest.mark.usefixtures("walked")
def test_a_slow_down_is_against_the_time_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computer = planted("amd_zen4", tmp_path)
    monkeypatch.setattr(Walk, "seen", Seen())
    probe = Probe([3], computer, alone_ns=12.0)
    reading = probe.read()
    assert found(reading) == {
        "probe_walks": (16, 1.0),
        "probe_cost": (pytest.approx(0.004), 1.0),
        "probe_step": (30.0, 1.0),
        "probe_step_low": (20.0, 1.0),
        "probe_step_high": (50.0, 1.0),
        "probe_again": (2.0, 1.0),
        "probe_slowdown": (1.5, 1.0),
    }
    assert reading.elapsed_ns == 1_000_000
    assert {(count.scope, count.where) for count in reading.counts} == {(Scope.CORE, "core 3")}
    assert probe.buffer_bytes == 8 << 20  # the least, for 32 MiB among 8
    assert "probe_slowdown" not in found(Probe([3], computer).read())


@pytest.mark.usefixtures("walked")
def test_few_and_interrupted_walks_are_believed_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Walk, "seen", Seen(walks=4, interrupted=4))
    reading = Probe([3], planted("amd_zen4", tmp_path)).read()
    assert found(reading)["probe_step"] == (30.0, 0.25)
    monkeypatch.setattr(Walk, "huge", False)
    reading = Probe([3], planted("amd_zen4", tmp_path)).read()
    assert found(reading)["probe_step"] == (30.0, 0.125)


@pytest.mark.usefixtures("walked")
def test_without_a_walk_there_is_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Walk, "seen", Seen(walks=0, interrupted=2, median=0.0))
    reading = Probe([3], planted("amd_zen4", tmp_path), alone_ns=12.0).read()
    assert set(found(reading)) == {"probe_walks", "probe_cost"}
    (lack,) = reading.missing
    assert lack.name == "probe_step"
    assert "2 interrupted" in lack.reason


@pytest.mark.usefixtures("walked")
@pytest.mark.parametrize(
    ("cores", "scope"), [([2, 5], Scope.COMPLEX), ([2, 9], Scope.MACHINE), ([2], Scope.CORE)]
)
def test_it_sees_the_caches_where_it_floats(
    tmp_path: Path, cores: list[int], scope: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Walk, "seen", Seen())
    reading = Probe(cores, planted("amd_zen4", tmp_path)).read()
    assert {count.scope for count in reading.counts} == {scope}


@pytest.mark.usefixtures("walked")
def test_the_buffer_where_caches_are_not_told_or_boasted_of(tmp_path: Path) -> None:
    assert Probe([0], Computer(root=tmp_path)).buffer_bytes == 8 << 20
    computer = planted("amd_zen4", tmp_path)
    (tmp_path / "sys/devices/system/cpu/cpu0/cache/index3/size").write_text("900M\n")
    assert Probe([0], computer).buffer_bytes == 32 << 20


def test_the_real_one_walks_and_ends() -> None:
    probe = Probe(usable(), Computer())
    reading = probe.read()
    while reading.missing:  # however busy the machine is
        reading = probe.read()
    assert found(reading)["probe_step"][0] > 0
    probe.close()


def test_cores_that_cannot_be_used() -> None:
    with pytest.raises(SourceError, match="probe on the cores 99999: cpu 99999 can't be used"):
        Probe([99_999], Computer())


@pytest.mark.parametrize("alone_ns", [0.0, -1.0, float("nan")])
def test_a_time_alone_that_is_none(alone_ns: float) -> None:
    with pytest.raises(InputError, match="give a time above 0"):
        Probe([0], Computer(), alone_ns=alone_ns)


def test_the_lines_cover_the_share_within_bounds() -> None:
    assert [stride_bytes(mib << 20) >> 10 for mib in (1, 8, 16, 30, 32, 900)] == [
        128,
        128,
        256,
        256,
        512,
        512,
    ]
