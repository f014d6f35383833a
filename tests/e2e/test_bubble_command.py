"""`veltair bubble`: what it refuses, reports, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from veltair.runtime.cli import app

COMMAND = [sys.executable, "-m", "veltair.runtime.cli", "bubble"]
SETTINGS = ["--footprint-mb", "4", "--gbps", "0.02"]


def bubble(*arguments: str) -> Any:  # noqa: ANN401 # typer has its own result class
    return CliRunner().invoke(app, ["bubble", *arguments])


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--footprint-mb", "0", "--gbps", "1"], "--footprint-mb 0:"),
        (["--footprint-mb", "4", "--gbps", "-1"], "--gbps -1:"),
        ([*SETTINGS, "--cores", "0"], "--cores 0: this process may use"),
        ([*SETTINGS, "--cores", "-2"], "--cores -2: this process may use"),
        ([*SETTINGS, "--cores", "100000"], "--cores 100000: this process may use"),
        (["--footprint-mb", "1e9", "--gbps", "1"], "the memory has room for"),
        ([*SETTINGS, "--seconds", "0"], "--seconds 0:"),
        ([*SETTINGS, "--seconds", "-1"], "--seconds -1:"),
        ([*SETTINGS, "--seconds", "nan"], "--seconds nan:"),
        ([*SETTINGS, "--json", "/there/is/none.json"], "there is no folder /there/is"),
    ],
)
def test_what_is_refused(arguments: list[str], part: str) -> None:
    result = bubble(*arguments)
    assert result.exit_code == 2
    assert part in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""


def test_what_is_achieved_is_told(tmp_path: Path) -> None:
    path = tmp_path / "bubble.json"
    result = bubble(*SETTINGS, "--seconds", "0.6", "--json", str(path))
    assert result.exit_code == 0, result.output
    told = json.loads(path.read_text())
    assert told["wanted_gbps"] == 0.02
    assert told["footprint_bytes"] == 3_997_696
    (one,) = told["bubbles"]
    assert one["cpu"] == max(os.sched_getaffinity(0))
    assert one["elapsed_ns"] >= 0.6e9
    assert told["achieved_gbps"] == pytest.approx(one["bytes"] / one["elapsed_ns"])
    assert told["error"] == pytest.approx(told["achieved_gbps"] / 0.02 - 1)
    assert told["slowest_window_gbps"] <= told["fastest_window_gbps"]
    assert f"achieved {told['achieved_gbps']:.4g} GB/s" in result.stdout


def test_a_rate_beyond_the_machine_is_told() -> None:
    result = bubble("--footprint-mb", "16", "--gbps", "500000", "--seconds", "0.3")
    assert result.exit_code == 0, result.output
    assert "of the schedule was missed: the machine can't reach this rate" in result.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order(tmp_path: Path, number: int) -> None:
    path = tmp_path / "bubble.json"
    process = subprocess.Popen(
        [*COMMAND, *SETTINGS, "--json", str(path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert "bubbles on the processors" in process.stdout.readline()
        process.send_signal(number)
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0
    assert said.startswith("achieved ")
    assert json.loads(path.read_text())["footprint_bytes"] > 0
    assert [child.name for child in tmp_path.iterdir()] == ["bubble.json"]


def test_it_ends_with_its_parent() -> None:
    script = (
        "import os, subprocess, sys, time\n"
        f"child = subprocess.Popen({[*COMMAND, *SETTINGS, '--parent']!r} + [str(os.getpid())],"
        " stdout=subprocess.PIPE, text=True)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        assert child.is_running()
        parent.kill()
        parent.wait()
        child.wait(60)
    finally:
        parent.kill()
        parent.wait()
    assert not child.is_running()


def test_a_parent_that_is_none() -> None:
    finished = subprocess.run(
        [*COMMAND, *SETTINGS, "--parent", "1"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert finished.returncode == 1
    assert f"--parent 1: the parent of this process is {os.getpid()}" in finished.stderr
