"""`veltair simulate`: runs a scenario on a simulated machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from veltair.runtime.errors import InputError
from veltair.runtime.simulate.metrics import report
from veltair.runtime.simulate.run import simulate
from veltair.runtime.simulate.scenario import read_scenario
from veltair.runtime.simulate.trace import write_trace

SCENARIO = typer.Argument(help="The scenario, a TOML file.", metavar="SCENARIO.toml")
SET = typer.Option("--set", help="Override a field: policy.scheduling=layer; repeatable.")
JSON = typer.Option("--json", help="Where to save the figures.")

_LINES = (
    ("satisfied", "satisfied_share", 100, "%"),
    ("satisfied rate", "satisfied_qps", 1, "queries/s"),
    ("mean", "mean_ms", 1, "ms"),
    ("p50", "p50_ms", 1, "ms"),
    ("p95", "p95_ms", 1, "ms"),
    ("p99", "p99_ms", 1, "ms"),
    ("conflicts", "conflict_rate", 100, "%"),
    ("cores in use", "average_cores", 1, ""),
)


def command(
    scenario_file: Annotated[Path, SCENARIO],
    json_file: Annotated[Path | None, JSON] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="Where to save a trace that Perfetto opens.")
    ] = None,
    overrides: Annotated[list[str] | None, SET] = None,
) -> None:
    """Run a scenario on a simulated machine, under the server's own policies."""
    scenario = read_scenario(scenario_file, overrides or [])
    found = simulate(scenario, trace=trace is not None)
    figures = report(scenario, found)
    if trace is not None:
        write_trace(trace, scenario, found)
    if json_file is not None:
        write_json(json_file, figures)
    print(f"{scenario.policy.scheduling}, {scenario.machine.cores} cores")
    _print_figures("all", figures)
    for name, of_model in figures["models"].items() if len(figures["models"]) > 1 else ():
        _print_figures(name, of_model)


def write_json(path: Path, figures: dict[str, Any]) -> None:
    """Writes a command's figures.

    Raises:
        InputError: the file can't be written.
    """
    try:
        path.write_text(json.dumps(figures, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"--json {path}: can't be written ({error.strerror})") from error


def _print_figures(name: str, figures: dict[str, Any]) -> None:
    drops = sum(figures["drops"].values())
    print(f"{name}: {figures['queries']} queries, {drops} refused")
    for label, key, factor, unit in _LINES:
        value = figures[key]
        print(f"  {label:<16}{'-' if value is None else f'{value * factor:.2f} {unit}'}")
