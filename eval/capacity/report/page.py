"""Renders an evaluation as one HTML page that needs nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from veltair.eval.capacity.report import figures, gantt, summary
from veltair.eval.capacity.report.findings import UNDER_LOAD, Findings
from veltair.eval.capacity.report.tables import all_tables
from veltair.eval.page import document
from veltair.eval.page.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from veltair.eval.capacity.result import Result


def render(result: Result) -> str:
    """Returns the page: style, script and figures are in it, and it may fetch nothing."""
    found = Findings(result)
    tables = all_tables(found)
    return document.render(
        "veltair.eval.capacity.report",
        result=result,
        found=found,
        tables=tables,
        measured_on=summary.measured_on(found),
        by_workload=summary.by_workload(found),
        in_all=summary.in_all(found),
        notes=summary.notes(found),
        failed_queries=summary.failed_queries(found),
        figures={
            name: {
                workload: drawn
                for workload in found.workloads
                if (drawn := draw(found, workload)) is not None
            }
            for name, draw in (
                ("capacity", figures.capacities),
                ("over_solo", figures.over_solo),
                ("core_costs", figures.core_costs),
                ("sweeps", figures.sweeps),
            )
        },
        at_keys={"capacity": figures.plain_key("c7"), "half": figures.plain_key("c7 hollow")},
        model_keys=figures.series(found.models),
        system_keys={
            name: look
            for name, look in figures.series(found.compared).items()
            if any(found.trials(w, name, at) for w in found.workloads for at in UNDER_LOAD)
        },
        latencies={name: _of_workload(tables["latency"], name) for name in found.workloads},
        charts=[gantt.chart(each, found.models, found.cores or 0) for each in result.gantts],
        patterns=gantt.PATTERNS,
        shades=gantt.SHADES,
        origin=list(flat(result.origin)),
        plan=list(flat(result.plan)),
    )


def flat(facts: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yields the values of a tree by their paths, as words."""
    for key, value in facts.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        elif isinstance(value, list | tuple):
            yield f"{prefix}{key}", ", ".join(map(str, value)) or "none"
        else:
            yield f"{prefix}{key}", "none" if value is None else str(value)


def _of_workload(table: Table, workload: str) -> Table:
    """The rows of one workload, without saying so in each."""
    return Table(
        name=f"{table.name}-{workload}",
        title=table.title,
        columns=table.columns[1:],
        rows=tuple(row[1:] for row in table.rows if row[0] == workload),
    )
