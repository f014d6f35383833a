"""What an evaluation prints at its end: a table, and who is ahead where that is decided."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from rich.table import Table

from veltair.eval.capacity.report.findings import Findings
from veltair.eval.capacity.report.summary import by_workload
from veltair.eval.capacity.report.summary import notes as capacity_notes
from veltair.eval.page.text import number_text

if TYPE_CHECKING:
    from veltair.eval.capacity.result import Capacity, Result


def table(result: Result) -> Table:
    """Returns each system's capacity for each workload: the median, and the range about it."""
    rows = Table(title=f"Queries a second with {result.percentile:g} % of each model's in time")
    rows.add_column("system")
    for workload in result.workloads:
        rows.add_column(workload.name, justify="right")
    found = {(each.workload, each.system): each for each in result.capacities}
    for system in result.systems:
        cells = [found.get((workload.name, system.name)) for workload in result.workloads]
        if system.kind != "null":
            rows.add_row(system.name, *(_cell(each) for each in cells))
    return rows


def notes(result: Result) -> list[str]:
    """Returns what the page says too: of each workload who is ahead, and what is to be known."""
    found = Findings(result)
    lines = [
        f"{workload}: {ahead}. {said}" if ahead else f"{workload}: {said}"
        for workload, ahead, said in by_workload(found)
    ]
    return [*lines, *capacity_notes(found)]


def _cell(capacity: Capacity | None) -> str:
    if capacity is None:
        return "-"
    if not capacity.qps:
        return capacity.state
    low, high = min(capacity.qps), max(capacity.qps)
    text = number_text(statistics.median(capacity.qps))
    text = f"{text} ({number_text(low)} to {number_text(high)})"
    return f"{text} {capacity.state}" if capacity.state != "found" else text
