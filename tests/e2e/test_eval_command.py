"""`veltair eval` on a real server with small models: found, kept, stopped, refused."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
from factories import write_slow_artifact

from veltair.eval.capacity.result import MEASURED, RESULT_FILE, read
from veltair.eval.children import child, python

MS = 1_000_000
WORKLOAD = """
[workload]
models = ["long", "short"]
[run]
min_seconds = 1
min_queries = 10
max_seconds = 2
[qos.small]
how = "a guess"
[qos.small.ms]
long = 300
short = 250
"""
STOP_S = 120.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of two models of a few milliseconds, and a workload of them."""
    folder = tmp_path_factory.mktemp("eval")
    for name, repeats in (("long", 40), ("short", 10)):
        write_slow_artifact(folder / "repository" / name / "1", repeats=repeats, qos_ns=MS)
    (folder / "tiny.toml").write_text(WORKLOAD)
    return folder


def arguments(folder: Path, name: str, *more: str) -> list[str]:
    """The command, with results and what it keeps under a name."""
    return python(
        "veltair.runtime.cli",
        *("eval", "--workloads", str(folder / "tiny.toml"), "-o", str(folder / name)),
        *("--repository", str(folder / "repository"), "--scratch", str(folder / f"{name}-kept")),
        *("--attempts", "1", "--wait-s", "0", "--repetitions", "1", *more),
    )


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)


def test_a_capacity_is_found_and_kept(folder: Path) -> None:
    command = arguments(folder, "whole", "--systems", "model,null", "--loads", "0.75")
    command += ["--lowest-qps", "0.5"]
    finished = run(command)
    assert finished.returncode == 0, finished.stderr
    result = read(folder / "whole")
    assert result.plan["lowest_qps"] == 0.5
    first = json.loads((folder / "whole" / RESULT_FILE).read_text())
    (capacity,) = result.capacities
    assert capacity.system == "model"
    assert capacity.state in MEASURED  # a busy machine decides nothing
    # Each query takes a core for more than a millisecond, so two cores can't serve 2000.
    assert 5 < capacity.qps[0] < 2000
    by_purpose = {each.purpose: each for each in result.trials if each.system == "model"}
    half = by_purpose["at_half"]
    assert half.rate_qps == pytest.approx(capacity.qps[0] / 2)
    assert half.core_usage is not None
    assert 0 < half.core_usage < 1.1
    assert by_purpose["sweep"].rate_qps == pytest.approx(capacity.qps[0] * 0.75)
    solos = {each.model: each.p50_ms for each in result.solos}
    assert 0 < solos["short"] < solos["long"] < 300
    null = next(each for each in result.trials if each.system == "null")
    assert null.figures["all"].p99_ms < half.figures["all"].p99_ms
    (gantt,) = result.gantts
    assert gantt.bars
    assert {bar.model for bar in gantt.bars} == {"long", "short"}
    assert all(0 <= bar.begin_ns < bar.end_ns <= 1_000_000_000 for bar in gantt.bars)
    assert "queries/s" in finished.stdout
    assert not (folder / "whole" / "logs").exists()

    began_s = time.monotonic()
    again = run(command)
    assert again.returncode == 0, again.stderr
    assert time.monotonic() - began_s < 30  # no server was started
    kept = json.loads((folder / "whole" / RESULT_FILE).read_text())
    for part in ("capacities", "trials", "solos", "gantts"):
        assert kept[part] == first[part]


def test_a_stopped_command_keeps_what_was_found(folder: Path) -> None:
    command = arguments(folder, "stopped", "--systems", "model,layer")
    kept = folder / "stopped-kept" / "points"
    with child(command, subprocess.PIPE, subprocess.STDOUT) as process:
        end_s = time.monotonic() + STOP_S
        while not list(kept.glob("*.json")) and time.monotonic() < end_s:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=STOP_S)
    assert process.returncode == 130, output
    assert "the same command goes on from there" in output
    assert (folder / "stopped" / RESULT_FILE).is_file()
    assert len(read(folder / "stopped").systems) == 2


def test_loadgen_is_asked_for_its_own_rate(folder: Path) -> None:
    pytest.importorskip("mlperf_loadgen")
    command = python(
        "veltair.eval.capacity.loadgen_check",
        *("--workload", str(folder / "tiny.toml"), "--models", "short", "--policy", "model"),
        *("--repository", str(folder / "repository"), "-o", str(folder / "checked")),
        *("--scratch", str(folder / "checked-kept"), "--percentile", "80"),
        *("--seconds", "1", "--tolerance", "0.4"),
    )
    finished = run([*command, "--repetitions", "1"])
    assert finished.returncode == 0, finished.stderr
    result = folder / "checked" / "loadgen_check.json"
    (found,) = json.loads(result.read_text())["models"]
    assert found["model"] == "short"
    assert found["sent_qps"][0] > 0
    assert found["ratio"] == pytest.approx(found["loadgen_qps"][0] / found["sent_qps"][0])
    assert found["verdict_ratio"] == pytest.approx(found["loadgen_qps"][0] / found["judged_qps"][0])
    assert "short" in finished.stdout

    kept = folder / "checked-kept" / "points"
    (first,) = kept.glob("*.json")
    measured_ns = first.stat().st_mtime_ns
    again = run([*command, "--repetitions", "2"])  # as if stopped after the first
    assert again.returncode == 0, again.stderr
    (more,) = json.loads(result.read_text())["models"]
    assert more["sent_qps"][0] == found["sent_qps"][0]
    assert len(more["sent_qps"]) == len(more["loadgen_qps"]) == 2
    assert len(list(kept.glob("*.json"))) == 2
    assert first.stat().st_mtime_ns == measured_ns
    anew = run([*command, "--repetitions", "1", "--fresh"])
    assert anew.returncode == 0, anew.stderr
    (only,) = kept.glob("*.json")
    assert only.stat().st_mtime_ns > measured_ns


def test_a_model_that_is_not_compiled_says_how(folder: Path) -> None:
    finished = run([*arguments(folder, "bad", "--systems", "ours"), "--workloads", "medium"])
    assert finished.returncode == 2
    assert "veltair" in finished.stderr
    assert not (folder / "bad").exists()


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--metric", "qps", "must be qps and a percentile"),
        ("--systems", "mode", "did you mean 'model'"),
        ("--workloads", "medum", "did you mean 'medium'"),
        ("--loads", "0.5,x", "numbers above 0"),
        ("--lowest-qps", "0", "greater than or equal to 0.01"),
        ("--lowest-qps", "nan", "--lowest-qps"),
        ("--max-seconds", "inf", "less than or equal to 86400"),
        ("--qos", "paper", "no targets"),
    ],
)
def test_bad_options_are_refused(folder: Path, option: str, value: str, said: str) -> None:
    finished = run(arguments(folder, "bad", "--systems", "model", option, value))
    assert finished.returncode == 2
    assert said in finished.stderr
