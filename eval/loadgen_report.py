"""LoadGen's verdict and ours on the same test, side by side."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from rich.table import Table

from veltair.runtime.errors import VeltairError

if TYPE_CHECKING:
    from pathlib import Path

    from veltair.eval.loadgen_plan import Plan, Record

SUMMARY_FILE = "mlperf_log_summary.txt"
PERCENTILES = (50, 95, 99)
SCHEDULE_SLACK_NS = 1_000_000
SCHEDULE_SLACK_SHARE = 0.02


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What one side found; None where it doesn't say.

    Attributes:
        verdict: `VALID` or `INVALID`.
        unmet: conditions that made LoadGen's verdict `INVALID`.
        queries: that were issued.
        scheduled_qps: queries due a second (Server only: the others' depend on the answers).
        completed_qps: queries that ended a second.
        satisfied: share of the queries that met the target.
        mean_ns: of the latencies, from when a query was due.
        p50_ns: median of the same.
        p95_ns: 95th percentile.
        p99_ns: 99th percentile.
    """

    verdict: str
    unmet: tuple[str, ...] = ()
    queries: int | None = None
    scheduled_qps: float | None = None
    completed_qps: float | None = None
    satisfied: float | None = None
    mean_ns: float | None = None
    p50_ns: float | None = None
    p95_ns: float | None = None
    p99_ns: float | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One test and what it cost to drive it.

    Attributes:
        plan: what was asked.
        loadgen: LoadGen's figures.
        ours: the same from what the driver saw.
        in_time: share of the queries in time as `veltair eval` judges them, from when they were due
            to when the server ended them.
        failures: queries that were not served, by reason.
        overhead: ours, of the same test against the null model: what LoadGen and the driver add.
        summary: LoadGen's own summary.
    """

    plan: Plan
    loadgen: Figures
    ours: Figures
    in_time: float
    failures: dict[str, int]
    overhead: Figures
    summary: str


def our_figures(plan: Plan, record: Record) -> Figures:
    """Computes the figures from the driver's record.

    The verdict is about latency; Offline's, where all queries are due at once, about throughput.
    Percentiles are latencies that occurred: the smallest that the share of the queries doesn't
    exceed.
    """
    due_ns = np.array(record.due_ns, np.int64)
    ended_ns = np.array(record.ended_ns, np.int64)
    latency_ns = ended_ns - due_ns
    in_time = np.array(record.served, bool) & (latency_ns <= plan.latency_ns)
    satisfied = float(in_time.mean())
    p50_ns, p95_ns, p99_ns = np.percentile(latency_ns, PERCENTILES, method="inverted_cdf")
    span_ns = int(due_ns[-1] - due_ns[0]) if plan.scenario == "Server" else 0
    completed_qps = len(due_ns) / int(ended_ns.max() - due_ns[0]) * 1e9
    valid = satisfied >= plan.percentile / 100
    if plan.scenario == "Offline":
        valid = all(record.served) and completed_qps >= plan.qps
    return Figures(
        verdict="VALID" if valid else "INVALID",
        queries=len(due_ns),
        scheduled_qps=(len(due_ns) - 1) / span_ns * 1e9 if span_ns else None,
        completed_qps=completed_qps,
        satisfied=satisfied,
        mean_ns=float(latency_ns.mean()),
        p50_ns=float(p50_ns),
        p95_ns=float(p95_ns),
        p99_ns=float(p99_ns),
    )


def share_in_time(plan: Plan, record: Record) -> float:
    """Returns the share of the queries that the server served within the target."""
    latency_ns = np.array(record.answered_ns, np.int64) - np.array(record.due_ns, np.int64)
    return float((np.array(record.served, bool) & (latency_ns <= plan.latency_ns)).mean())


def loadgen_figures(summary: str) -> Figures:
    """Reads LoadGen's summary."""
    verdict = re.search(r"^Result is : (\w+)", summary, re.MULTILINE)
    return Figures(
        verdict=verdict.group(1) if verdict else "none",
        unmet=tuple(re.findall(r"^ *(\S.*?) ?: NO$", summary, re.MULTILINE)),
        scheduled_qps=_number(summary, r"Scheduled samples per second"),
        completed_qps=(
            _number(summary, r"Completed samples per second")
            or _number(summary, r"QPS w/ loadgen overhead")
            or _number(summary, r"Samples per second")
        ),
        mean_ns=_number(summary, r"Mean latency \(ns\)"),
        p50_ns=_number(summary, r"50.00 percentile latency \(ns\)"),
        p95_ns=_number(summary, r"95.00 percentile latency \(ns\)"),
        p99_ns=_number(summary, r"99.00 percentile latency \(ns\)"),
    )


def check_schedule(ours: Figures, theirs: Figures) -> None:
    """Checks that both count from the same times.

    Raises:
        VeltairError: the means are further apart than the two clocks' readings can be.
    """
    if ours.mean_ns is None or theirs.mean_ns is None:
        return
    slack_ns = SCHEDULE_SLACK_NS + SCHEDULE_SLACK_SHARE * theirs.mean_ns
    if abs(ours.mean_ns - theirs.mean_ns) > slack_ns:
        raise VeltairError(
            f"mean latency is {ours.mean_ns / 1e6:.3f} ms by our clock and "
            f"{theirs.mean_ns / 1e6:.3f} ms by LoadGen's; both must count from the same schedule; "
            "use the version of mlcommons-loadgen that constraints.txt pins"
        )


def read_summary(folder: Path) -> str:
    """Returns LoadGen's summary.

    Raises:
        VeltairError: LoadGen did not get as far as writing one.
    """
    try:
        return (folder / SUMMARY_FILE).read_text(encoding="utf-8")
    except OSError as error:
        raise VeltairError(
            f"{folder / SUMMARY_FILE}: LoadGen left no summary ({error.strerror}); its other logs "
            "in that folder say how far it came"
        ) from error


def table(report: Report) -> Table:
    """Returns both sides as a table."""
    plan = report.plan
    rows = Table(
        title=f"{plan.model}, {plan.scenario}, target {plan.latency_ns / 1e6:g} ms for "
        f"{plan.percentile:g} % of the queries"
    )
    rows.add_column("")
    for side in ("LoadGen", "Veltair", "null model"):
        rows.add_column(side, justify="right")
    sides = (report.loadgen, report.ours, report.overhead)
    rows.add_row("verdict", *(side.verdict for side in sides[:2]), "")
    rows.add_row("queries", *(_text(side.queries, "{:d}") for side in sides))
    rows.add_row("scheduled QPS", *(_text(side.scheduled_qps, "{:.2f}") for side in sides))
    rows.add_row("completed QPS", *(_text(side.completed_qps, "{:.2f}") for side in sides))
    rows.add_row("QoS satisfied", *(_text(side.satisfied, "{:.2%}") for side in sides))
    for name, field in (
        ("mean", "mean_ns"),
        ("p50", "p50_ns"),
        ("p95", "p95_ns"),
        ("p99", "p99_ns"),
    ):
        values = (getattr(side, field) for side in sides)
        rows.add_row(f"{name}, ms", *(_text(v if v is None else v / 1e6, "{:.3f}") for v in values))
    return rows


def note(report: Report) -> str:
    """Returns how to read the table, and what was not served."""
    text = (
        "Latencies count from when a query was due. The null model answers at once: its column is "
        "what LoadGen and the driver add."
    )
    if report.loadgen.unmet:
        text += f" LoadGen says NO to: {', '.join(report.loadgen.unmet)}."
    if report.failures:
        counts = ", ".join(f"{count} {reason}" for reason, count in sorted(report.failures.items()))
        text += f" Not served: {counts}."
    return text


def _number(summary: str, name: str) -> float | None:
    found = re.search(rf"^{name}\s*: ([0-9.e+]+)$", summary, re.MULTILINE)
    return float(found.group(1)) if found else None


def _text(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
