"""The tables about an evaluation, shown on its page and written as CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING

from veltair.eval.capacity.report import run_tables
from veltair.eval.capacity.report.verdicts import against, verdict
from veltair.eval.page.table import Table, counts, numbers, shares, words

if TYPE_CHECKING:
    from veltair.eval.capacity.report.findings import Findings
    from veltair.eval.page.table import Value

    Row = tuple[Value, ...]

_WORKLOAD, _SYSTEM, _MODEL = words("workload"), words("system"), words("model")


def all_tables(found: Findings) -> dict[str, Table]:
    """Returns every table by its name."""
    tables = (
        workloads(found),
        systems(found),
        comparison(found),
        ratios(found),
        capacity(found),
        run_tables.latency(found),
        run_tables.core_usage(found),
        run_tables.sweep(found),
        run_tables.grid(found),
        solo(found),
        run_tables.trials(found),
        gantt(found),
    )
    return {table.name: table for table in tables}


def workloads(found: Findings) -> Table:
    """What was asked of the systems."""
    return Table(
        name="workloads",
        title="Workloads",
        columns=(
            _WORKLOAD,
            _MODEL,
            shares("share", "of the queries"),
            numbers("qos_ms", "target, ms"),
            words("targets", "how the targets came about"),
        ),
        rows=tuple(
            (each.name, model.name, model.share, model.qos_ns / 1e6, each.targets)
            for each in found.result.workloads
            for model in each.models
        ),
    )


def systems(found: Findings) -> Table:
    """What was compared, and what became of it."""
    columns = (_SYSTEM, words("kind"), words("version"), words("state"), words("error", "why"))
    return Table(
        name="systems",
        title="Systems",
        columns=(*columns, words("log")),
        rows=tuple(
            (each.name, each.kind, each.version, found.system_state(name), each.error, each.log)
            for name, each in found.systems.items()
        ),
    )


def comparison(found: Findings) -> Table:
    """The best of ours against the best of the others."""
    rows: list[Row] = []
    for workload in found.workloads:
        each = verdict(found, workload)
        ours, rival, ratio = each.ours, each.rival, each.ratio
        winner = "" if ratio is None or each.undecided else _winner(ratio.median > 1)
        rows.append(
            (
                workload,
                ours.system if ours else None,
                ours.qps.median if ours else None,
                rival.system if rival else None,
                rival.setting if rival else None,
                rival.qps.median if rival else None,
                ratio.median if ratio else None,
                ratio.least if ratio else None,
                ratio.most if ratio else None,
                winner,
                each.undecided,
            )
        )
    return Table(
        name="comparison",
        title="The best of ours against the best of the others",
        columns=(
            _WORKLOAD,
            words("ours"),
            numbers("ours_qps", "queries/s"),
            words("other"),
            words("other_setting", "its setting"),
            numbers("other_qps", "queries/s"),
            numbers("ratio_median", "times"),
            numbers("ratio_least", "least"),
            numbers("ratio_most", "most"),
            words("ahead"),
            words("undecided", "why undecided"),
        ),
        rows=tuple(rows),
    )


def ratios(found: Findings) -> Table:
    """Each of ours against each of the others."""
    rows: list[Row] = []
    for workload in found.workloads:
        for system in found.ours:
            for rival in found.rivals:
                ratio = against(found, workload, system, rival)
                if ratio is not None:
                    rows.append((workload, system, rival, ratio.median, ratio.least, ratio.most))
    return Table(
        name="ratios",
        title="Each of ours against each of the others",
        columns=(
            _WORKLOAD,
            words("ours"),
            words("other"),
            numbers("ratio_median", "times"),
            numbers("ratio_least", "least"),
            numbers("ratio_most", "most"),
        ),
        rows=tuple(rows),
    )


def _winner(ours: bool) -> str:
    return "ours" if ours else "other"


def capacity(found: Findings) -> Table:
    """Fig. 12, and the means over models of Fig. 13."""
    rows: list[Row] = []
    for workload in found.workloads:
        for system in found.compared:
            qps = found.qps(workload, system)
            known = found.capacity(workload, system)
            rows.append(
                (
                    workload,
                    system,
                    found.systems[system].kind,
                    known.setting if known else None,
                    found.state(workload, system),
                    qps.median if qps else None,
                    qps.least if qps else None,
                    qps.most if qps else None,
                    qps.runs if qps else None,
                    *(found.mean_over_solo(workload, system, at) for at in run_tables.AT),
                    found.why(workload, system),
                )
            )
    return Table(
        name="capacity",
        title="Capacity (Fig. 12)",
        columns=(
            _WORKLOAD,
            _SYSTEM,
            words("kind"),
            words("setting"),
            words("state"),
            numbers("capacity_median_qps", "queries/s"),
            numbers("capacity_least_qps", "least"),
            numbers("capacity_most_qps", "most"),
            counts("repetitions"),
            numbers("over_solo_at_capacity", "latency over solo"),
            numbers("over_solo_at_half", "at half"),
            words("note"),
        ),
        rows=tuple(rows),
    )


def solo(found: Findings) -> Table:
    """Latencies of models alone."""
    return Table(
        name="solo",
        title="Alone on all cores",
        columns=(_MODEL, _SYSTEM, numbers("mean_ms", "mean, ms"), numbers("p50_ms", "p50, ms")),
        rows=tuple((e.model, e.system, e.mean_ms, e.p50_ms) for e in found.result.solos),
    )


def gantt(found: Findings) -> Table:
    """Blocks of a second under load."""
    return Table(
        name="gantt",
        title="A second under load",
        columns=(
            _WORKLOAD,
            _SYSTEM,
            numbers("rate_qps", "offered, queries/s"),
            _MODEL,
            counts("query"),
            words("cores"),
            counts("first_layer"),
            counts("last_layer"),
            counts("version"),
            numbers("begin_ms"),
            numbers("end_ms"),
        ),
        rows=tuple(
            (
                each.workload,
                each.system,
                each.rate_qps,
                bar.model,
                bar.query,
                " ".join(map(str, bar.cores)),
                *bar.layers,
                bar.version,
                bar.begin_ns / 1e6,
                bar.end_ns / 1e6,
            )
            for each in found.result.gantts
            for bar in each.bars
        ),
    )
