"""`veltair counters`: the table, readings, recordings, and what it refuses, on any machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from veltair.runtime.cli import app

COMMAND = [sys.executable, "-m", "veltair.runtime.cli", "counters"]
TRACE = Path(__file__).parents[1] / "data/traces/amd_perf_uncore.jsonl"
SOURCES = ["perf-task", "perf-uncore", "resctrl", "probe", "self", "perf-software"]


def counters(*arguments: object) -> Any:  # noqa: ANN401 # typer has its own result class
    return CliRunner().invoke(app, ["counters", *map(str, arguments)])


def test_every_source_is_listed_with_what_would_enable_it(tmp_path: Path) -> None:
    result = counters("--json", tmp_path / "found.json")
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "found.json").read_text())
    assert [row["source"] for row in found["sources"]] == SOURCES
    for row in found["sources"]:
        assert (row["works"] == "yes") == (row["reason"] == "") == (row["remedy"] == "")
        assert row["works"] in ("yes", "partly", "no")
        assert f"{row['source']:<15}{row['works']:<8}{row['counts']}" in result.stdout
    works = [row["source"] for row in found["sources"] if row["works"] == "yes"]
    assert found["chosen"] == works[0]
    assert {"probe", "self"} <= set(works)  # everywhere
    assert f"chosen: {works[0]}, and self" in result.stdout


def test_readings_are_recorded_and_replayed(tmp_path: Path) -> None:
    trace, saved = tmp_path / "trace.jsonl", tmp_path / "read.json"
    result = counters(
        "--source", "probe", "--read", 1, "--every", 0.3, "--record", trace, "--json", saved
    )
    assert result.exit_code == 0, result.output
    found = json.loads(saved.read_text())
    assert found["source"] == "probe"
    names = {count["name"] for reading in found["readings"] for count in reading["counts"]}
    assert {"probe_step", "probe_cost"} <= names
    assert "probe_step" in result.stdout
    again = counters("--replay", trace, "--json", tmp_path / "again.json")
    assert again.exit_code == 0, again.output
    assert json.loads((tmp_path / "again.json").read_text())["readings"] == found["readings"]


def test_the_best_source_says_what_it_passed_over(tmp_path: Path) -> None:
    result = counters("--read", 0.2, "--json", tmp_path / "read.json")
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "read.json").read_text())
    assert list(found["passed_over"]) == SOURCES[: SOURCES.index(found["source"])]
    assert all(found["passed_over"].values())


def test_a_trace_of_another_machine(tmp_path: Path) -> None:
    result = counters("--replay", TRACE)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("replay of perf-uncore\n")
    assert "events of the core complex (cores 8-15), confidence 1.00" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--read", "0"], "--read 0: give seconds above 0"),
        (["--read", "nan"], "--read nan:"),
        (["--read", "1", "--every", "0"], "--every 0:"),
        (["--source", "probe"], "--source is of use with --read SECONDS"),
        (["--record", "x"], "--record is of use with --read SECONDS"),
        (["--replay", "x", "--read", "1"], "--replay and --read exclude each other"),
        (["--replay", "none.jsonl"], "none.jsonl: can't be read"),
        (["--read", "1", "--source", "preb"], "did you mean 'probe'"),
        (["--json", "/there/is/none.json"], "there is no folder /there/is"),
        (["--read", "1", "--record", "/there/is/none"], "there is no folder /there/is"),
    ],
)
def test_what_is_refused(arguments: list[str], part: str) -> None:
    result = counters(*arguments)
    assert result.exit_code == 2
    assert part in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_process_that_is_none() -> None:
    result = counters("--read", 1, "--source", "perf-software", "--pid", 4_194_305)
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    # Where perf_event_open is forbidden that is said first.
    assert "4194305: there is none" in result.stderr or "doesn't work here" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order(tmp_path: Path, number: int) -> None:
    path = tmp_path / "read.json"
    process = subprocess.Popen(
        [*COMMAND, "--source", "probe", "--read", "600", "--every", "0.1", "--json", str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "reading probe\n"
        process.stdout.readline()
        process.send_signal(number)
        process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0
    assert json.loads(path.read_text())["source"] == "probe"
