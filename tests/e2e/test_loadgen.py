"""`veltair loadgen` as a user meets it, against real ranks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from veltair.eval.served import serving

pytest.importorskip("mlperf_loadgen")

COMMAND = (sys.executable, "-m", "veltair.runtime.cli", "loadgen")


def loadgen(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def address(repository: Path) -> Iterator[str]:
    with serving(repository, workers=1) as url:
        yield url


def report(
    folder: Path, *arguments: object
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    file = folder / "report.json"
    done = loadgen(*arguments, "--json", file)
    assert done.returncode == 0, done.stderr
    return done, json.loads(file.read_bytes())


def test_starts_a_server_loads_it_and_stops_it(repository: Path, tmp_path: Path) -> None:
    done, result = report(
        tmp_path,
        *("--repository", repository, "--model", "photo", "--workers", 1),
        *("--scenario", "Server", "--qps", 150, "--duration", 2, "--latency-ms", 900),
        *("--log-dir", tmp_path / "logs"),
    )
    for part in ("LoadGen", "Veltair", "null model", "scheduled QPS", "QoS satisfied", "p99, ms"):
        assert part in done.stdout
    assert result["loadgen"]["verdict"] == result["ours"]["verdict"] == "VALID"
    assert result["ours"]["satisfied"] >= 0.95
    assert result["ours"]["scheduled_qps"] == pytest.approx(150, rel=0.3)
    assert result["ours"]["scheduled_qps"] == pytest.approx(
        result["loadgen"]["scheduled_qps"], rel=1e-3
    )
    assert result["failures"] == {}
    assert 0 < result["overhead"]["mean_ns"] < result["plan"]["latency_ns"]
    assert (tmp_path / "logs" / "mlperf_log_summary.txt").exists()


def test_a_target_that_no_query_can_meet_is_not_met(address: str, tmp_path: Path) -> None:
    _, result = report(
        tmp_path,
        *("--attach", address, "--model", "photo", "--scenario", "Server"),
        *("--qps", 40, "--duration", 1, "--latency-ms", 0.001),
    )
    assert result["ours"]["satisfied"] == 0
    assert result["ours"]["verdict"] == result["loadgen"]["verdict"] == "INVALID"


@pytest.mark.parametrize("scenario", ["SingleStream", "Offline"])
def test_attaches_for_the_other_scenarios(address: str, tmp_path: Path, scenario: str) -> None:
    _, result = report(
        tmp_path,
        *("--attach", address, "--model", "photo", "--scenario", scenario),
        *("--qps", 100, "--duration", 1, "--seed", 3),
    )
    assert result["ours"]["queries"] > 50
    assert result["failures"] == {}
    assert result["plan"]["latency_ns"] == 50_000_000  # the model's own target


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        (["--model", "photo", "--qps", "1"], 2, ["--repository is None", "give one of them"]),
        (["--qps", "0"], 2, ["--qps is 0", "from 0.01"]),
        ([], 2, ["--qps is not given", "e.g. --qps 20"]),
        (["--qps", "1", "--percentile", "101"], 2, ["--percentile is 101", "to 99.99"]),
        (["--qps", "1", "--scenario", "Multi"], 2, ["'Multi'", "Server, SingleStream or Offline"]),
        (["--qps", "1", "--model", "nix"], 1, ["'nix' is not served", "photo", "correct --model"]),
        (["--qps", "1", "--model", "damaged"], 1, ["'damaged' is unavailable", "weights.bin"]),
        (["--qps", "1", "--model", "pair"], 2, ["without a QoS target", "--latency-ms"]),
        (
            ["--qps", "1", "--attach", "127.0.0.1:9"],
            1,
            ["HTTP port 9", "start it with `veltair serve`"],
        ),
    ],
)
def test_wrong_options_are_one_line(
    address: str, arguments: list[str], code: int, parts: list[str]
) -> None:
    given = list(arguments)
    if "--model" not in given:
        given += ["--model", "photo"]
    if "--attach" not in given and parts[0] != "--repository is None":
        given += ["--attach", address]
    done = loadgen(*given)
    assert done.returncode == code, done.stderr
    [line] = done.stderr.strip().splitlines()
    for part in parts:
        assert part in line


def descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_load_leaves_nothing_running(
    repository: Path, tmp_path: Path, number: signal.Signals
) -> None:
    arguments = ("--repository", repository, "--model", "photo", "--workers", 1)
    load = ("--qps", 20, "--duration", 60, "--log-dir", tmp_path)
    process = subprocess.Popen(
        [*COMMAND, *map(str, (*arguments, *load))],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        end_s = time.monotonic() + 60
        while not (tmp_path / "plan.json").exists():  # the real test has begun
            assert time.monotonic() < end_s
            time.sleep(0.1)
        time.sleep(0.5)
        family = descendants(process.pid)
        assert len(family) >= 4  # the test, veltair serve, mpirun, the ranks
        os.kill(process.pid, number)
        code = process.wait(40)
    finally:
        process.kill()
    if number != signal.SIGKILL:
        assert code == 130
    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []
