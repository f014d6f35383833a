"""`veltair capacity`: the highest rate at which a simulated machine keeps its targets."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from veltair.runtime.simulate.capacity import PRECISION, find_capacity
from veltair.runtime.simulate.simulate_command import (
    JSON,
    SCENARIO,
    SET,
    check_writable,
    decider,
    read_any,
    write_json,
)


def command(
    scenario_file: Annotated[Path, SCENARIO],
    percentile: Annotated[
        float,
        typer.Option(min=1, max=100, help="Of each model's queries, in time, in percent."),
    ] = 95,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Arrivals to repeat it for.")] = 3,
    json_file: Annotated[Path | None, JSON] = None,
    overrides: Annotated[list[str] | None, SET] = None,
) -> None:
    """Find the highest rate at which enough of every model's queries are in time."""
    check_writable("--json", json_file)
    scenario = read_any(scenario_file, overrides or [])
    found = find_capacity(scenario, percentile, seeds)
    spread = f"{min(found.by_seed_qps):.1f} to {max(found.by_seed_qps):.1f}"
    print(
        f"{decider(scenario)}: {found.capacity_qps:.1f} queries/s with {percentile:g} % "
        f"in time ({spread} over {seeds} seeds, each to {PRECISION:.0%})"
    )
    if json_file is not None:
        write_json(json_file, asdict(found) | {"percentile": percentile, "seeds": seeds})
