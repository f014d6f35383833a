from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from veltair.eval.loadgen_plan import Plan, Record, Scenario
from veltair.eval.loadgen_report import (
    Figures,
    Report,
    check_schedule,
    loadgen_figures,
    note,
    our_figures,
    read_summary,
    share_in_time,
    table,
)
from veltair.runtime.errors import VeltairError

SUMMARY = """\
Scenario : Server
Completed samples per second    : 191.66
Result is : INVALID
  Performance constraints satisfied : NO
Scheduled samples per second : 191.67
Mean latency (ns)               : 126361
50.00 percentile latency (ns)   : 111080
90.00 percentile latency (ns)   : 168060
95.00 percentile latency (ns)   : 182176
99.00 percentile latency (ns)   : 328246
"""


def plan(scenario: Scenario = "Server", percentile: float = 75.0) -> Plan:
    return Plan(
        scenario=scenario,
        qps=100.0,
        duration_ns=10**9,
        latency_ns=1000,
        percentile=percentile,
        seed=1,
        model="net",
        address=None,
        expected_ns=0,
        samples=1,
        log_folder="logs",
    )


def record(latencies_ns: list[int], served: list[bool] | None = None) -> Record:
    due_ns = [10_000_000 * i for i in range(len(latencies_ns))]
    served = served or [True] * len(latencies_ns)
    ended_ns = [due + latency for due, latency in zip(due_ns, latencies_ns, strict=True)]
    return Record(
        due_ns=due_ns,
        issued_ns=due_ns,
        ended_ns=ended_ns,
        answered_ns=[end - 1 if ok else 0 for end, ok in zip(ended_ns, served, strict=True)],
        served=served,
        failures={},
    )


def test_our_figures_are_what_they_say() -> None:
    figures = our_figures(plan(), record([100, 1000, 1001, 500]))
    assert figures.queries == 4
    assert figures.scheduled_qps == pytest.approx(100.0)
    assert figures.satisfied == 0.75
    assert figures.verdict == "VALID"
    assert figures.mean_ns == pytest.approx(650.25)
    assert (figures.p50_ns, figures.p95_ns, figures.p99_ns) == (500, 1001, 1001)


def test_a_query_that_was_not_served_did_not_meet_its_target() -> None:
    figures = our_figures(plan(), record([100, 100, 100, 100], [True, False, True, False]))
    assert figures.satisfied == 0.5
    assert figures.verdict == "INVALID"


def test_the_servers_own_end_says_what_is_in_time() -> None:
    # LoadGen hears of an end a nanosecond after it; what was not served has none.
    assert share_in_time(plan(), record([100, 1000, 1001, 1002])) == 0.75
    unserved = record([100, 100, 100, 100], [True, False, True, False])
    assert share_in_time(plan(), unserved) == 0.5


def test_offline_is_about_throughput() -> None:
    slow = record([5000] * 4)
    assert our_figures(plan("Offline"), slow).verdict == "VALID"
    assert our_figures(plan("Offline"), slow).scheduled_qps is None
    assert our_figures(plan("Offline"), record([10**9] * 4)).verdict == "INVALID"


def test_loadgens_summary_is_read() -> None:
    assert loadgen_figures(SUMMARY) == Figures(
        verdict="INVALID",
        unmet=("Performance constraints satisfied",),
        scheduled_qps=191.67,
        completed_qps=191.66,
        mean_ns=126361.0,
        p50_ns=111080.0,
        p95_ns=182176.0,
        p99_ns=328246.0,
    )


def test_clocks_that_disagree_are_an_error() -> None:
    theirs = Figures(verdict="VALID", mean_ns=10e6)
    check_schedule(Figures(verdict="VALID", mean_ns=10.9e6), theirs)
    with pytest.raises(VeltairError, match=r"12\.000 ms by our clock and 10\.000 ms by LoadGen's"):
        check_schedule(Figures(verdict="VALID", mean_ns=12e6), theirs)


def test_a_missing_summary_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(VeltairError, match="LoadGen left no summary"):
        read_summary(tmp_path)


def test_the_table_has_both_verdicts_and_the_note_what_failed() -> None:
    ours = our_figures(plan(), record([100, 1000, 1001, 500]))
    report = Report(
        plan=plan(),
        loadgen=loadgen_figures(SUMMARY),
        ours=ours,
        in_time=0.75,
        failures={"deadline": 2},
        overhead=ours,
        summary=SUMMARY,
    )
    output = io.StringIO()
    Console(file=output, width=100).print(table(report))
    for part in ("INVALID", "VALID", "191.67", "75.00%", "0.126"):
        assert part in output.getvalue()
    assert "LoadGen says NO to: Performance constraints satisfied." in note(report)
    assert "Not served: 2 deadline." in note(report)
