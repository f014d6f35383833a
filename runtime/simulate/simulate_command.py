"""`veltair simulate`: runs a scenario on a simulated machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from veltair.runtime.errors import InputError
from veltair.runtime.files import write_whole
from veltair.runtime.simulate.device_scenario import (
    DeviceScenario,
    has_devices,
    parse_device_scenario,
    run_devices,
)
from veltair.runtime.simulate.metrics import report
from veltair.runtime.simulate.run import simulate
from veltair.runtime.simulate.scenario import Scenario, parse_scenario, read_table
from veltair.runtime.simulate.trace import write_trace

SCENARIO = typer.Argument(help="The scenario, a TOML file.", metavar="SCENARIO.toml")
SET = typer.Option("--set", help="Override a field: policy.scheduling=layer; repeatable.")
JSON = typer.Option("--json", help="Where to save the figures.")

Lines = tuple[tuple[str, str, int, str], ...]  # label, figure, factor, unit

_LATENCIES: Lines = (
    ("satisfied", "satisfied_share", 100, "%"),
    ("satisfied rate", "satisfied_qps", 1, "queries/s"),
    ("mean", "mean_ms", 1, "ms"),
    ("p50", "p50_ms", 1, "ms"),
    ("p95", "p95_ms", 1, "ms"),
    ("p99", "p99_ms", 1, "ms"),
)
_LINES: Lines = (
    *_LATENCIES,
    ("conflicts", "conflict_rate", 100, "%"),
    ("cores in use", "average_cores", 1, ""),
)
_DEVICE_LINES: Lines = (
    *_LATENCIES,
    ("batch, median", "batch_size_median", 1, ""),
    ("batch, mean", "batch_size_mean", 1, ""),
)


def command(
    scenario_file: Annotated[Path, SCENARIO],
    json_file: Annotated[Path | None, JSON] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="Where to save a trace that Perfetto opens.")
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option("--record", help="Where to record each decision, for `veltair replay`."),
    ] = None,
    overrides: Annotated[list[str] | None, SET] = None,
) -> None:
    """Run a scenario on a simulated machine, under the server's own policies."""
    check_writable("--json", json_file)
    check_writable("--trace", trace)
    check_writable("--record", record)
    scenario = read_any(scenario_file, overrides or [])
    if isinstance(scenario, DeviceScenario):
        if trace is not None:
            raise InputError(f"--trace {trace}: only machines of cores have one; leave it out")
        figures = run_devices(scenario, record=record).summary()
        machine, lines = f"{scenario.machine.devices} devices", _DEVICE_LINES
    else:
        found = simulate(scenario, trace=trace is not None, record=record)
        figures = report(scenario, found)
        machine, lines = f"{scenario.machine.cores} cores", _LINES
        if trace is not None:
            write_trace(trace, scenario, found)
    if json_file is not None:
        write_json(json_file, figures)
    print(f"{decider(scenario)}, {machine}")
    _print_figures("all", figures, lines)
    for name, of_model in figures["models"].items() if len(figures["models"]) > 1 else ():
        _print_figures(name, of_model, lines)


def read_any(path: Path, overrides: Sequence[str]) -> Scenario | DeviceScenario:
    """Reads and checks a scenario, of cores or of devices; raises as `read_scenario`."""
    table = read_table(path, overrides)
    parse = parse_device_scenario if has_devices(table) else parse_scenario
    return parse(table, folder=path.parent, source=str(path))


def decider(scenario: Scenario | DeviceScenario) -> str:
    """The policy that a scenario is about."""
    if isinstance(scenario, DeviceScenario):
        return scenario.policy.batching
    return scenario.policy.scheduling


def check_writable(option: str, path: Path | None) -> None:
    """Refuses a file that can't be made before anything is simulated.

    Raises:
        InputError: it is a folder, or lies in none.
    """
    if path is None:
        return
    if path.is_dir():
        raise InputError(f"{option} {path}: a folder; name a file")
    if not path.parent.is_dir():
        raise InputError(f"{option} {path}: there is no folder {path.parent}; create it first")


def write_json(path: Path, figures: dict[str, Any]) -> None:
    """Writes a command's figures.

    Raises:
        InputError: the file can't be written.
    """
    try:
        write_whole(path, (json.dumps(figures, indent=1, allow_nan=False) + "\n").encode())
    except OSError as error:
        raise InputError(f"--json {path}: can't be written ({error.strerror})") from error


def _print_figures(name: str, figures: dict[str, Any], lines: Lines) -> None:
    drops = sum(figures["drops"].values())
    print(f"{name}: {figures['queries']} queries, {drops} refused")
    for label, key, factor, unit in lines:
        value = figures.get(key)
        print(f"  {label:<16}{'-' if value is None else f'{value * factor:.2f} {unit}'}")
