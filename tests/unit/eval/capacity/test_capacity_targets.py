"""Targets that are measured: what follows from a latency, and where it is written."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from veltair.eval.capacity import targets
from veltair.eval.capacity.result import ModelTarget
from veltair.eval.capacity.targets import MOST_SLOWER, Fastest, slowness, with_targets
from veltair.eval.capacity.workloads import read_workload
from veltair.runtime.errors import InputError

BEGIN = """# What it is.
[workload]
models = ["a", "b"]

[qos.paper]
how = "table 2"

[qos.paper.ms]
a = 10
b = 20
"""
FOUND = {
    "a": Fastest(peer="openvino 1", ms=3.301, others=0.01),
    "b": Fastest(peer="onnxruntime 2", ms=5.0, others=0.0),
}
MACHINE = {"cpu": "a processor", "cores": 4}


def test_a_target_is_three_times_the_latency_rounded_up() -> None:
    assert FOUND["a"].target_ms == 10
    assert FOUND["b"].target_ms == 15
    assert Fastest(peer="p", ms=5.001, others=0.0).target_ms == 16


def test_the_section_is_added_and_then_replaced(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(BEGIN)
    once = with_targets(read_workload(str(path)), FOUND, MACHINE)
    assert once.startswith(BEGIN)
    path.write_text(once)
    workload = read_workload(str(path))
    assert workload.qos["small"].ms == {"a": 10, "b": 15}
    how = workload.qos["small"].how
    assert "all 4 processors" in how
    assert "a processor" in how
    assert "openvino 1: 3.301 ms, others used 1.0%" in once
    assert with_targets(workload, FOUND, MACHINE) == once
    slower = FOUND | {"b": Fastest(peer="p", ms=7.0, others=0.0)}
    path.write_text(with_targets(workload, slower, MACHINE))
    assert read_workload(str(path)).qos["small"].ms == {"a": 10, "b": 21}


def test_a_section_that_is_not_the_last_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    middle = '[qos.small]\nhow = "x"\n[qos.small.ms]\na = 1\nb = 1\n[run]\nseed = 2\n'
    path.write_text(BEGIN + middle)
    with pytest.raises(InputError, match="not the last section"):
        with_targets(read_workload(str(path)), FOUND, MACHINE)


def test_how_slow_the_machine_is_by_targets_that_were_derived() -> None:
    assert slowness(FOUND, {"a": 3 * 3.301, "b": 15}) == pytest.approx(1)
    assert slowness(FOUND, {"a": 3 * 3.301 / 2, "b": 30}) == pytest.approx(1)
    assert slowness(FOUND, {"a": 3 * 3.301 / 2, "b": 7.5}) == pytest.approx(2)


@pytest.mark.parametrize("slower", [1.0, MOST_SLOWER + 0.05])
def test_a_check_writes_nothing_and_fails_on_a_slow_machine(
    slower: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(BEGIN + "[qos.small]\nhow = 'once'\n[qos.small.ms]\na = 9.903\nb = 15\n")
    written = path.read_bytes()

    def found(model: ModelTarget, *_: object) -> Fastest:
        fastest = FOUND[model.name]
        return Fastest(peer=fastest.peer, ms=fastest.ms * slower, others=0.0)

    monkeypatch.setattr(targets, "_fastest", found)
    monkeypatch.setattr(targets, "candidates", lambda facts, *_: facts.models)
    monkeypatch.setattr(targets, "PEERS", ("numpy",))
    if slower > MOST_SLOWER:
        with pytest.raises(typer.Exit) as exit_:
            targets.command(str(path), check=True)
        assert exit_.value.exit_code == 1
    else:
        targets.command(str(path), check=True)
    said = capsys.readouterr().out
    assert f"{slower:.2f} times as slow" in said
    assert ("derive them anew" in said) == (slower > MOST_SLOWER)
    assert path.read_bytes() == written
