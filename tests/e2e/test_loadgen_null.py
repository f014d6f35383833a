"""LoadGen itself, against backends in its own process."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest

from veltair.eval.loadgen import run
from veltair.eval.loadgen_backends import NullBackend
from veltair.eval.loadgen_plan import Plan, Record, Scenario
from veltair.eval.loadgen_report import (
    check_schedule,
    loadgen_figures,
    our_figures,
    read_summary,
)
from veltair.runtime.errors import RefusedError

pytest.importorskip("mlperf_loadgen")


class Narrow(NullBackend):
    """A backend with two places, which refuses every tenth query."""

    def __init__(self) -> None:
        super().__init__()
        self.places: SimpleQueue[None] = SimpleQueue()
        self.held = 0
        self.turned_away = 0
        self.order: list[int] = []

    def submit(self, tag: int, sample: int, due_ns: int) -> bool:
        if tag % 10 == 9:
            raise RefusedError("as asked", "deadline")
        if self.held == 2:
            self.turned_away += 1
            return False
        self.held += 1
        self.order.append(tag)
        return super().submit(tag, sample, due_ns)

    def wait(self, timeout_s: float) -> list:  # type: ignore[type-arg]
        answers = list(super().wait(timeout_s))
        for answer in answers:
            release = answer.release

            def give_back(release=release) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
                release()
                self.held -= 1

            answer.release = give_back  # type: ignore[method-assign]
        return answers


def plan(folder: Path, scenario: Scenario, qps: float) -> Plan:
    return Plan(
        scenario=scenario,
        qps=qps,
        duration_ns=500_000_000,
        latency_ns=50_000_000,
        percentile=90.0,
        seed=5,
        model="null",
        address=None,
        expected_ns=0,
        samples=4,
        log_folder=str(folder),
    )


def _in_child(plan: Plan, narrow: bool, results) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
    backend = Narrow() if narrow else NullBackend()
    record = run(plan, backend)
    results.put((record, getattr(backend, "order", []), getattr(backend, "turned_away", 0)))


def run_in_child(plan: Plan, *, narrow: bool = False) -> tuple[Record, list[int], int]:
    """LoadGen allows one test a process."""
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    process = context.Process(target=_in_child, args=(plan, narrow, results))
    process.start()
    try:
        result: tuple[Record, list[int], int] = results.get()
    finally:
        process.join(30)
        process.kill()
    assert process.exitcode == 0
    return result


def test_our_schedule_is_loadgens(tmp_path: Path) -> None:
    test = plan(tmp_path, "Server", 400.0)
    record, _, _ = run_in_child(test)
    ours = our_figures(test, record)
    theirs = loadgen_figures(read_summary(tmp_path))
    check_schedule(ours, theirs)
    assert ours.scheduled_qps == pytest.approx(theirs.scheduled_qps, rel=1e-3)
    delay_ns = np.array(record.issued_ns) - np.array(record.due_ns)
    assert delay_ns.min() == 0
    # A wrong schedule drifts by the gap between queries, 2.5 ms, and more with each of them.
    assert np.median(delay_ns) < 2_000_000


@pytest.mark.parametrize("scenario", ["SingleStream", "Offline"])
def test_the_other_scenarios_end(tmp_path: Path, scenario: Scenario) -> None:
    record, _, _ = run_in_child(plan(tmp_path, scenario, 1000.0))
    assert all(record.served)
    assert loadgen_figures(read_summary(tmp_path)).verdict in {"VALID", "INVALID"}


@pytest.mark.parametrize("scenario", ["Server", "Offline"])
def test_a_backlog_keeps_the_order_and_refusals_count_as_late(
    tmp_path: Path, scenario: Scenario
) -> None:
    test = plan(tmp_path, scenario, 2000.0)
    record, order, turned_away = run_in_child(test, narrow=True)
    refused = [tag for tag in range(len(record.served)) if tag % 10 == 9]
    assert order == [tag for tag in range(len(record.served)) if tag % 10 != 9]
    assert record.failures == {"deadline": len(refused)}
    assert [tag for tag, served in enumerate(record.served) if not served] == refused
    if scenario == "Offline":
        assert turned_away > 0
        return
    last_issue_ns = max(record.issued_ns)
    assert all(record.ended_ns[tag] >= last_issue_ns for tag in refused)
    assert loadgen_figures(read_summary(tmp_path)).verdict == "INVALID"


def test_an_audit_file_in_the_working_folder_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "audit.config").write_text("*.Server.target_qps = 1\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    test = plan(tmp_path, "Server", 400.0)
    record, _, _ = run_in_child(test)
    assert len(record.served) > 100
