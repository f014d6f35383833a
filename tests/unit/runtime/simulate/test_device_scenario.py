"""`veltair simulate` and `veltair capacity` on scenarios of emulated devices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from veltair.runtime.cli import app
from veltair.runtime.simulate.arrivals import make_arrivals
from veltair.runtime.simulate.device_scenario import parse_device_scenario
from veltair.runtime.simulate.device_simulation import DeviceModel, DevicePolicy, simulate_devices
from veltair.runtime.simulate.scenario import read_table

EXAMPLE = Path(__file__).parents[4] / "eval" / "scenarios" / "symphony_resnet50.toml"
FEW = ("--set", "arrivals.queries=4000", "--set", "arrivals.warmup_queries=100")


def call(*arguments: object) -> Any:  # noqa: ANN401 # typer's result
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_figures_are_those_of_the_device_simulator(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    result = call("simulate", EXAMPLE, "--json", out, *FEW, "--set", "policy.max_batch=6")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("deferred, 8 devices")
    figures = json.loads(out.read_text())
    overrides = ["arrivals.queries=4000", "arrivals.warmup_queries=100"]
    model = DeviceModel(
        name="resnet50", alpha_ns=1_053_000, beta_ns=5_072_000, slo_ns=25_000_000, max_batch=6
    )
    expected = simulate_devices(
        [model],
        make_arrivals(parse_device_scenario(read_table(EXAMPLE, overrides))),
        devices=8,
        policy=DevicePolicy(batching="deferred"),
        warmup_queries=100,
    ).summary()
    assert figures == json.loads(json.dumps(expected))
    assert figures["batch_size_median"] <= 6


def test_more_devices_have_more_capacity(tmp_path: Path) -> None:
    found = []
    for devices in (2, 4):
        out = tmp_path / f"{devices}.json"
        arguments = ("--seeds", 1, "--percentile", 99, "--json", out, *FEW)
        result = call("capacity", EXAMPLE, *arguments, "--set", f"machine.devices={devices}")
        assert result.exit_code == 0, result.output
        found.append(json.loads(out.read_text())["capacity_qps"])
    assert 1.8 < found[1] / found[0] < 2.6


def test_a_trace_of_devices_is_refused(tmp_path: Path) -> None:
    result = call("simulate", EXAMPLE, *FEW, "--trace", tmp_path / "trace.json")
    assert result.exit_code == 2
    assert "only machines of cores have one" in result.stderr
