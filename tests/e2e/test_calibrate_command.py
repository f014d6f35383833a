"""`veltair calibrate`: what it refuses at once, what a stop keeps, and that it goes on."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from calibrations import header, turn
from factories import write_tiny_artifact
from proxy_models import count, reading
from typer.testing import CliRunner

from veltair.proxy.calibrate_command import identities
from veltair.proxy.calibration_record import CalibrationRecord, record_path
from veltair.proxy.features import Feature
from veltair.proxy.proxy_file import ProxyFile
from veltair.runtime.cli import app
from veltair.runtime.machine import machine_facts

COMMAND = [sys.executable, "-m", "veltair.runtime.cli", "calibrate"]
BEGIN_S, TURN_S = 300, 60

pytestmark = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="nothing runs beside on one processor"
)


def test_what_cannot_be_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    tiny = tmp_path / "tiny" / "1"
    write_tiny_artifact(tiny)
    for arguments, message in (
        (["-o", tmp_path / "no" / "p.json"], "there is no folder"),
        (["-o", tmp_path / "p.json", "--artifacts", tmp_path / "none"], "not an artifact"),
        (["-o", tmp_path / "p.json", "--artifacts", tiny], "layers can be measured here"),
        (["-o", tmp_path / "p.json", "--artifacts", tiny, "--artifacts", tiny], "given twice"),
    ):
        result = CliRunner().invoke(app, ["calibrate", *map(str, arguments)])
        assert result.exit_code in (2, 4), result.output
        assert message in " ".join(result.output.split())
        assert not record_path(tmp_path / "p.json").exists()
    other = record_path(tmp_path / "p.json")
    other.write_text("{}\n")
    result = CliRunner().invoke(
        app, ["calibrate", "-o", str(tmp_path / "p.json"), "--artifacts", str(tiny)]
    )
    assert "no record of a calibration" in " ".join(result.output.split())
    assert other.read_text() == "{}\n"


def stopped_after_a_turn(output: Path, before: int) -> CalibrationRecord:
    """Runs the command until its record has another turn, and stops it as a person would."""
    with subprocess.Popen(
        [*COMMAND, "-o", str(output), "--minutes", "0.1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        end_s = time.monotonic() + BEGIN_S + TURN_S
        while lines(record_path(output)) <= before + 1 and time.monotonic() < end_s:
            assert process.poll() is None
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=TURN_S)
    assert process.returncode == 130
    assert "ended early" in said
    assert "run the same command to go on" in said
    return CalibrationRecord.read(record_path(output))


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_a_stop_keeps_what_is_measured(tmp_path: Path) -> None:
    output = tmp_path / "proxy.json"
    first = stopped_after_a_turn(output, 0)
    assert len(first.turns) >= 1
    assert first.header.machine == machine_facts()  # all of it, not the part that is measured
    assert {work.model for work in first.header.works} == {"calibration/1"}
    second = stopped_after_a_turn(output, len(first.turns))
    assert second.header == first.header
    assert second.turns[: len(first.turns)] == first.turns
    done = [(turn.round, turn.work) for turn in second.turns]
    assert len(set(done)) == len(done) > len(first.turns)
    sources = set(second.turns[0].slots[0].readings)
    assert "probe" in sources
    assert "self" in first.header.sources
    assert not output.exists()


def test_a_record_of_other_co_runners_is_not_gone_on_with(tmp_path: Path) -> None:
    tiny, output = tmp_path / "tiny" / "1", tmp_path / "proxy.json"
    write_tiny_artifact(tiny)
    head = msgspec.structs.replace(header(8), artifacts=identities([tiny]))
    before = CalibrationRecord.begin(record_path(output), head).path.read_bytes()
    arguments = ["calibrate", "-o", str(output), "--artifacts", str(tiny), "--co-runner"]
    result = CliRunner().invoke(app, [*arguments, "evictors"])
    assert result.exit_code == 2
    said = " ".join(result.output.split())
    assert "is the record of a calibration with bubbles; go on with --co-runner bubbles" in said
    result = CliRunner().invoke(app, [*arguments, "fish"])
    assert "--co-runner fish: unknown" in " ".join(result.output.split())
    assert record_path(output).read_bytes() == before


def test_a_record_that_is_whole_is_trained_on_at_once(tmp_path: Path) -> None:
    tiny, output = tmp_path / "tiny" / "1", tmp_path / "proxy.json"
    write_tiny_artifact(tiny)
    head = msgspec.structs.replace(header(8), artifacts=identities([tiny]))
    made = CalibrationRecord.begin(record_path(output), head)
    for number, of in itertools.product(range(8), range(8)):
        made.add(
            turn(
                number,
                of=of,
                sensitivity=0.3 + 0.1 * of,
                reading=lambda level: reading(count("probe_step", 100 + 50 * level)),
            )
        )
    arguments = ["calibrate", "-o", str(output), "--artifacts", str(tiny), "--minutes", "0.1"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    trained = ProxyFile.read(output)
    assert trained.doubt() == ""
    assert {model.sources for model in trained.models} == {
        ("probe",),
        ("self",),
    }  # each tells it all
    step = Feature(value=125.0, confidence=1.0)
    estimate = trained.estimate({"probe_step": step}, "probe")
    assert estimate.level == pytest.approx(0.5)
    assert estimate.confidence == pytest.approx(1.0)
    assert trained.alone["probe_step"] == 100.0
    for part in ("bubbles of 1.05 MB at 2 GB/s", "principal components of", "probe + self"):
        assert part in result.output
