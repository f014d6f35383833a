"""What `veltair simulate` and `veltair capacity` say to bad input: exit 2, and which field."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from veltair.runtime._native import devices, sim
from veltair.runtime.cli import app

CORES = """
[machine]
cores = 4
[[model]]
name = "small"
profile = "small.csv"
qos_ms = 4.0
[[model]]
name = "large"
profile = "large.csv"
qos_ms = 40.0
[arrivals]
queries = 100
"""
DEVICES = """
[machine]
devices = 2
[[model]]
name = "small"
alpha_ms = 1.0
beta_ms = 2.0
qos_ms = 9.0
[[model]]
name = "large"
alpha_ms = 2.0
beta_ms = 5.0
qos_ms = 40.0
[arrivals]
queries = 100
"""
COMMANDS = ("simulate", "capacity")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.csv").write_text("layer,us_1c,us_2c,us_4c\na,1000,600,400\n")
    (tmp_path / "large.csv").write_text("layer,us_1c,us_4c\na,10000,3000\n")
    (tmp_path / "lacking.csv").write_text("layer,us_1c,us_4c\na,10000,3000\nb,9000\n")
    (tmp_path / "nan.csv").write_text("layer,us_1c\na,NaN\n")
    (tmp_path / "recorded.csv").write_text("arrival_ns,model\n5,medium\n")
    (tmp_path / "cores.toml").write_text(CORES)
    (tmp_path / "devices.toml").write_text(DEVICES)
    return tmp_path


def call(*arguments: object) -> Any:  # noqa: ANN401 # typer's result
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def check_refused(result: Any, part: str) -> None:  # noqa: ANN401 # typer's result
    assert result.exit_code == 2
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert result.stderr.startswith("veltair: ")
    assert result.stderr.count("\n") == 1
    assert part in result.stderr


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("overrides", "part"),
    [
        (["model.large.profile=unknown.csv"], "model[1].profile = 'unknown.csv'"),
        (["model.medium.qos_ms=1"], "--set model.medium.qos_ms=1: 0 models are meant"),
        (["model.large.name=small"], "model name = 'small' twice"),
        (["arrivals.rate_qps=-5"], "arrivals.rate_qps = -5"),
        (["arrivals.rate_qps=NaN"], "arrivals.rate_qps = nan"),
        (["arrivals.rate_qps=1e-9", "arrivals.queries=100000000"], "arrivals.rate_qps = 1e-09"),
        (["machine.cores=0"], "machine.cores = 0"),
        (["machine.cores=99999999999999999999"], "machine.cores = 99999999999999999999"),
        (["machine.cores=four"], "machine.cores = 'four'"),
        (["machine.pace=0"], "machine.pace = 0"),
        (["machine.pace_spread=-0.1"], "machine.pace_spread = -0.1"),
        (["machine.pace_memory_ms=9"], "machine.pace_memory_ms = 9"),
        (["machine.pace_seed=-1"], "machine.pace_seed = -1"),
        (["policy.scheduling=block-0"], "policy.scheduling = 'block-0'"),
        (["policy.margin_percent=0"], "policy.margin_percent = 0"),
        (["policy.late_percent=0"], "policy.late_percent = 0"),
        (["policy.late_percent=101"], "policy.late_percent = 101"),
        (["policy.max_block_us=0"], "policy.max_block_us = 0"),
        (["policy.max_block_us=Infinity"], "policy.max_block_us = inf"),
        (["policy.scheduling=partition", "policy.partition_cores=5"], "partition_cores = 5"),
        (["policy.limit=1"], "policy.limit: unknown field"),
        (["model.small.qos_ms=0.39"], "model[0].qos_ms = 0.39: below 0.400 ms"),
        (["model.small.qos_ms=1e300"], "model[0].qos_ms = 1e+300"),
        (["model.small.core_step=5"], "model[0].core_step = 5"),
        (["model.large.profile=lacking.csv"], "layer 2 (b) has 1 times for 2 core counts"),
        (["model.large.profile=nan.csv"], "model[1].profile: "),
        (["model.large.profile=."], "model[1].profile = '.'"),
        (["policy=3"], "--set policy=3"),
        (["arrivals.process=fractal"], "arrivals.process = 'fractal'"),
        (["arrivals.shape=1e-9"], "arrivals.shape = 1e-09"),
        (["arrivals.warmup_queries=100"], "warmup_queries must be less than queries"),
    ],
)
def test_on_cores(folder: Path, command: str, overrides: list[str], part: str) -> None:
    sets = [word for override in overrides for word in ("--set", override)]
    check_refused(call(command, folder / "cores.toml", *sets), part)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("machine.devices=0", "machine.devices = 0"),
        ("machine.cores=4", "a machine has cores or emulated devices"),
        ("model.medium.qos_ms=1", "0 models are meant"),
        ("model.small.profile=small.csv", "model[0].profile: unknown field"),
        ("policy.batching=lazy", "expected one of 'none', 'timeout', 'eager', 'deferred'"),
        ("policy.scheduling=layer", "policy.scheduling: unknown field"),
        ("policy.timeout_ms=-1", "policy.timeout_ms = -1"),
        ("policy.max_batch=-1", "policy.max_batch = -1"),
        ("policy.least_batch_percent=101", "policy.least_batch_percent = 101"),
        ("policy.queue_limit=0", "policy.queue_limit = 0"),
        ("model.large.alpha_ms=-1", "model[1].alpha_ms = -1"),
        ("model.large.alpha_ms=NaN", "model[1].alpha_ms = nan"),
        ("model.large.beta_ms=1e300", "model[1].beta_ms = 1e+300"),
        ("model.large.beta_ms=Infinity", "model[1].beta_ms = inf"),
        (
            "model.large.qos_ms=6.9",
            "model[1].qos_ms = 6.9: below the time of one query alone, 7 ms",
        ),
        ("arrivals.rate_qps=-5", "arrivals.rate_qps = -5"),
    ],
)
def test_on_devices(folder: Path, command: str, override: str, part: str) -> None:
    check_refused(call(command, folder / "devices.toml", "--set", override), part)


def test_a_batch_that_takes_no_time(folder: Path) -> None:
    sets = ("--set", "model.small.alpha_ms=0", "--set", "model.small.beta_ms=0")
    check_refused(call("simulate", folder / "devices.toml", *sets), "model[0].alpha_ms = 0")


@pytest.mark.parametrize("kind", ["cores", "devices"])
def test_recorded_arrivals_of_an_unknown_model(folder: Path, kind: str) -> None:
    sets = ("--set", "arrivals.process=file", "--set", "arrivals.file=recorded.csv")
    result = call("simulate", folder / f"{kind}.toml", *sets)
    check_refused(result, "arrivals.file = 'recorded.csv': 'medium'")
    check_refused(call("capacity", folder / f"{kind}.toml", *sets), 'arrivals.process = "file"')


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "no [[model]]"),
        (b"machine = 3\n[[model]]\nname = 'a'\nprofile = 'small.csv'\n", "machine = 3"),
        (b"model = 'a'\n[machine]\ncores = 4\n", "no [[model]]"),
        (b"model = ['a']\n[machine]\ncores = 4\n", "model[0] = 'a'"),
        (b"machine.devices = 'two'\n[[model]]\nname = 'a'\n", "machine.devices = 'two'"),
        (b"\xff\xfe", "not TOML"),
        (b"[machine\n", "not TOML"),
        (None, "can't be read"),
    ],
)
def test_a_file_that_is_no_scenario(
    tmp_path: Path, command: str, content: bytes | None, part: str
) -> None:
    file = tmp_path / "scenario.toml"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    check_refused(call(command, file), part)
    check_refused(call(command, tmp_path / "none.toml"), "can't be read")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_result_that_could_not_be_written_is_refused_first(folder: Path, command: str) -> None:
    # More queries than a test has time for: the refusal comes before they are simulated.
    sets = ("--set", "arrivals.queries=50000000", "--set", "model.small.qos_ms=0")
    options = ("--json", "--trace") if command == "simulate" else ("--json",)
    for option in options:
        for place, part in ((folder, "a folder"), (folder / "none" / "a.json", "create it first")):
            result = call(command, folder / "cores.toml", option, place, *sets)
            check_refused(result, f"{option} {place}: ")
            assert part in result.stderr


@pytest.mark.parametrize("option", ["--json", "--trace"])
def test_a_full_disk_is_said_and_leaves_no_file(folder: Path, option: str) -> None:
    """A file may be no longer than 1 KiB, so the write fails as it does on a full disk."""
    out = folder / "out"
    limit = "import resource as r; r.setrlimit(r.RLIMIT_FSIZE, (1024, 1024))"
    script = f"{limit}; from veltair.runtime.cli import main; main()"
    finished = subprocess.run(
        [sys.executable, "-c", script, "simulate", folder / "cores.toml", option, out],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.returncode == 2, finished.stderr
    assert f"{option} {out}: can't be written (File too large)" in finished.stderr
    assert sorted(entry.name for entry in folder.iterdir()) == [
        *("cores.toml", "devices.toml", "lacking.csv", "large.csv", "nan.csv", "recorded.csv"),
        "small.csv",
    ]


@pytest.mark.parametrize("option", ["--json", "--trace"])
def test_a_full_device_is_said_and_stays(folder: Path, option: str) -> None:
    result = call("simulate", folder / "cores.toml", option, "/dev/full")
    check_refused(result, f"{option} /dev/full: can't be written (No space left on device)")
    assert Path("/dev/full").is_char_device()


@pytest.mark.parametrize("kind", ["cores", "devices"])
def test_ctrl_c_ends_a_long_simulation(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """One of seconds or minutes in the native loop; the signal comes soon after its begin."""
    lines = "".join(f"{layer},1000\n" for layer in range(1000))
    (folder / "deep.csv").write_text(f"layer,us_1c\n{lines}")
    text = CORES.replace("small.csv", "deep.csv").replace("qos_ms = 4.0", "qos_ms = 9000.0")
    (folder / "cores.toml").write_text(text)
    module, name = (sim, "simulate") if kind == "cores" else (devices, "run_devices")
    native, began = getattr(module, name), []

    def simulate(**arguments: object) -> object:
        began.append(True)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        return native(**arguments)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, name, simulate)
    before = signal.signal(signal.SIGALRM, interrupt)
    sets = ["--set", "arrivals.queries=500000", "--set", "policy.scheduling=layer"]
    if kind == "devices":
        sets = ["--set", "arrivals.queries=10000000", "--set", "arrivals.rate_qps=100"]
    try:
        began_ns = time.monotonic_ns()
        result = call("simulate", folder / f"{kind}.toml", *sets)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert began
    assert result.exit_code == 130
    assert result.output == ""
    assert time.monotonic_ns() - began_ns < 20_000_000_000  # to its end it takes minutes


@pytest.mark.parametrize("command", COMMANDS)
def test_an_endless_file_is_refused(folder: Path, command: str) -> None:
    reason = "it is longer than 256 MiB"
    check_refused(call(command, "/dev/zero"), f"/dev/zero: the scenario can't be read ({reason})")
    profile = ("--set", "model.small.profile=/dev/zero")
    check_refused(call(command, folder / "cores.toml", *profile), reason)


def test_endless_arrivals_are_refused(folder: Path) -> None:
    sets = ("--set", "arrivals.process=file", "--set", "arrivals.file=/dev/zero")
    result = call("simulate", folder / "cores.toml", *sets)
    check_refused(result, "arrivals.file = '/dev/zero': can't be read (it is longer than 256 MiB)")
