"""Evaluations of systems whose capacity is known: what is found, kept, skipped and decided."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from queueing_system import (
    QueueingSystem,
    capacity_qps,
    failing,
    failing_once,
    steady_case,
)
from rich.console import Console

from veltair.eval.capacity.evaluation import Evaluation
from veltair.eval.capacity.progress import EvalProgress
from veltair.eval.capacity.result import Capacity, Result, read, write
from veltair.eval.capacity.stages import Plan
from veltair.eval.capacity.summary import notes, table
from veltair.eval.capacity.system import Observed
from veltair.eval.capacity.trials import Case, Trials
from veltair.eval.capacity.workloads import RunSection
from veltair.eval.outcomes import Allowance
from veltair.eval.patience import Patience
from veltair.eval.points import PointStore
from veltair.runtime.errors import VeltairError
from veltair.runtime.simulate.arrivals import Arrivals

ANY = float("inf")  # runs that are worked out are disturbed by nothing
PLAN = Plan(repetitions=2, most_others=ANY, loads=(0.75, 1.5), solo_queries=3)


def evaluate(
    folder: Path,
    systems: Sequence[QueueingSystem],
    *cases: Case,
    plan: Plan = PLAN,
    attempts: int = 1,
) -> Result:
    """Runs an evaluation in a folder, on from what lies there; returns what it has written."""
    trials = Trials(
        PointStore(folder / "points"),
        cpus=(0, 1),
        scratch=folder / "scratch",
        percentile=plan.percentile,
        patience=Patience(attempts=attempts, wait_s=0),
    )
    evaluation = Evaluation(plan, cases, systems, trials, cores=2, folder=folder)
    progress = EvalProgress(Console(file=io.StringIO()), evaluation.stages_s())
    trials.told = progress.trial
    with progress:
        evaluation.run(progress, lambda: write(folder, evaluation.result({}, {})))
    assert progress.left_s == 0
    return read(folder)


def capacity(result: Result, system: str, workload: str = "steady") -> Capacity:
    (found,) = (
        each for each in result.capacities if (each.workload, each.system) == (workload, system)
    )
    return found


@pytest.mark.parametrize(("percentile", "target_ms"), [(95.0, 30.0), (99.0, 50.0)])
def test_the_known_capacity_is_found(tmp_path: Path, percentile: float, target_ms: float) -> None:
    plan = Plan(repetitions=3, most_others=ANY, percentile=percentile, tolerance=0.01)
    case = steady_case(target_ms, min_queries=20_000)
    result = evaluate(tmp_path, [QueueingSystem("queue", 10)], case, plan=plan)
    found = capacity(result, "queue")
    assert found.state == "found"
    assert found.note == ""
    expected = capacity_qps(0.010, target_ms / 1000, percentile / 100)
    assert found.qps == pytest.approx((expected,) * 3, rel=0.04)


class HaltingSystem(QueueingSystem):
    """Every other run begins on a machine that stands still for a while."""

    HALT_NS = 300_000_000

    def replay(self, arrivals: Arrivals, allowance: Allowance | None = None) -> Observed:
        observed = super().replay(arrivals, None)
        if self.replays % 2 == 0:
            return observed
        return replace(
            observed,
            submitted_ns=np.maximum(observed.submitted_ns, self.HALT_NS),
            end_ns=np.maximum(observed.end_ns, self.HALT_NS),
        )


def test_a_machine_that_stood_still_is_asked_again(tmp_path: Path) -> None:
    case = steady_case(30, min_queries=100)
    undisturbed = evaluate(tmp_path / "whole", [QueueingSystem("queue", 10)], case)
    expected = capacity(undisturbed, "queue").qps
    again = evaluate(tmp_path / "again", [HaltingSystem("queue", 10)], case, attempts=2)
    assert capacity(again, "queue").qps == expected
    once = evaluate(tmp_path / "once", [HaltingSystem("queue", 10)], case)
    assert sum(capacity(once, "queue").qps) < sum(expected)


def test_each_model_has_to_be_in_time(tmp_path: Path) -> None:
    case = steady_case(100, 15, min_queries=10_000)
    result = evaluate(tmp_path, [QueueingSystem("queue", 10)], case)
    expected = capacity_qps(0.010, 0.015, 0.95)  # of the model that has less time
    assert capacity(result, "queue").qps == pytest.approx((expected,) * 2, rel=0.1)
    at_capacity = next(each for each in result.trials if each.purpose == "at_capacity")
    assert at_capacity.figures["model1"].satisfied_share == pytest.approx(0.95, abs=0.02)
    assert at_capacity.figures["model0"].satisfied_share > 0.999


def test_loads_and_solos_are_measured_at_the_capacity_that_was_found(tmp_path: Path) -> None:
    result = evaluate(tmp_path, [QueueingSystem("queue", 10)], steady_case(30))
    (low, high) = sorted(capacity(result, "queue").qps)
    rates = {
        (each.purpose, round(each.rate_qps / ((low + high) / 2), 3))
        for each in result.trials
        if each.purpose not in ("search", "solo")
    }
    assert rates == {("at_capacity", 1.0), ("at_half", 0.5), ("sweep", 0.75), ("sweep", 1.5)}
    (solo,) = result.solos
    assert (solo.model, solo.system) == ("model0", "queue")
    assert solo.mean_ms == pytest.approx(10)
    at_half = next(each for each in result.trials if each.purpose == "at_half")
    # Two cores, of which the one server keeps a half of one busy per 50 queries a second.
    assert at_half.core_usage == pytest.approx(at_half.rate_qps * 0.010 / 2, rel=0.05)
    assert at_half.late_p99_ms == pytest.approx(0.001)


def test_the_best_setting_is_found_and_taken(tmp_path: Path) -> None:
    system = QueueingSystem("peer", {"slow": 14, "fast": 8, "middling": 10}, kind="peer")
    result = evaluate(tmp_path, [system], steady_case(40))
    assert capacity(result, "peer").setting == "fast"
    tried = {each.setting for each in result.trials if each.purpose == "grid"}
    assert tried == {"slow", "fast", "middling"}
    searched = [each for each in result.trials if each.purpose == "search"]
    asked = [each for each in searched if each.setting != "fast"]  # for more than the fast one has
    assert [(each.setting, each.met) for each in asked] == [
        ("slow", False),
        ("middling", False),
    ] * 2
    others = {each.setting for each in result.trials if each.purpose not in ("grid", "search")}
    assert others == {"fast"}
    runs = [(each.setting, each.purpose, each.repetition, each.rate_qps) for each in result.trials]
    assert len(set(runs)) == len(runs)


class TiringSystem(QueueingSystem):
    """As fast at one of its settings as `tires` says as long as nobody asks for long."""

    def __init__(self, tired_ms: float, *, steady_ms: float = 14, tires_ms: float = 8) -> None:
        super().__init__("peer", {"steady": steady_ms, "tires": tires_ms}, kind="peer")
        self._tired_ms = tired_ms

    def replay(self, arrivals: Arrivals, allowance: Allowance | None = None) -> Observed:
        if len(arrivals.time_ns) > 2000:
            self._service_ms["tires"] = self._tired_ms
        return super().replay(arrivals, allowance)


@pytest.mark.parametrize(("tired_ms", "best"), [(50, "steady"), (15, "steady"), (13, "tires")])
def test_a_setting_that_short_runs_flatter_is_not_taken_for_the_best(
    tmp_path: Path, tired_ms: float, best: str
) -> None:
    found = capacity(evaluate(tmp_path, [TiringSystem(tired_ms)], steady_case(40)), "peer")
    assert (found.state, found.setting) == ("found", best)
    expected = capacity_qps(min(tired_ms, 14) / 1000, 0.040, 0.95)
    assert found.qps == pytest.approx((expected,) * 2, rel=0.1)


def test_a_setting_that_short_runs_put_last_is_found_in_longer_ones(tmp_path: Path) -> None:
    system = TiringSystem(8, steady_ms=10, tires_ms=11)
    found = capacity(evaluate(tmp_path, [system], steady_case(40)), "peer")
    assert (found.state, found.setting, found.note) == ("found", "tires", "")
    assert found.qps == pytest.approx((capacity_qps(0.008, 0.040, 0.95),) * 2, rel=0.1)


class ColdSystem(QueueingSystem):
    """In time at one of its settings where it is asked for long and more than 10 times a second."""

    def __init__(self) -> None:
        super().__init__("peer", {"slow": 50, "cold": 50}, kind="peer")

    def replay(self, arrivals: Arrivals, allowance: Allowance | None = None) -> Observed:
        count = len(arrivals.time_ns)
        often = count / float(arrivals.time_ns[-1]) * 1e9 > 10
        self._service_ms["cold"] = 20 if often and count > 2000 else 50
        return super().replay(arrivals, allowance)


def test_a_rate_is_found_of_which_lower_ones_are_not_kept(tmp_path: Path) -> None:
    found = capacity(evaluate(tmp_path, [ColdSystem()], steady_case(40)), "peer")
    assert (found.state, found.setting, found.note) == ("found", "cold", "")
    assert found.qps == pytest.approx((capacity_qps(0.020, 0.040, 0.95),) * 2, rel=0.1)


class FickleSystem(QueueingSystem):
    """Which of its settings is the faster depends on the arrivals, whatever their rate is."""

    def __init__(self) -> None:
        super().__init__("peer", {"first": 9, "second": 10}, kind="peer")
        self._known: float | None = None

    def replay(self, arrivals: Arrivals, allowance: Allowance | None = None) -> Observed:
        gaps = np.diff(arrivals.time_ns[:3])
        pattern = float(gaps[1] / gaps[0])
        self._known = pattern if self._known is None else self._known
        same = pattern == pytest.approx(self._known, rel=1e-3)
        self._service_ms = {"first": 9, "second": 10} if same else {"first": 10, "second": 9}
        return super().replay(arrivals, allowance)


def test_each_repetition_is_at_the_setting_that_is_best_for_it(tmp_path: Path) -> None:
    found = capacity(evaluate(tmp_path, [FickleSystem()], steady_case(40)), "peer")
    assert (found.setting, found.note) == ("first", "by repetition, at first, second")
    assert found.qps == pytest.approx((capacity_qps(0.009, 0.040, 0.95),) * 2, rel=0.1)


class UnluckySystem(QueueingSystem):
    """Its last query of the rare model is late unless there were many of them."""

    def replay(self, arrivals: Arrivals, allowance: Allowance | None = None) -> Observed:
        observed = super().replay(arrivals, allowance)
        (rare,) = np.nonzero(arrivals.model == 1)
        if 0 < len(rare) < 20 and rare[-1] < len(observed.end_ns):
            observed.end_ns[rare[-1]] += 10**9
        return observed


def test_only_runs_of_which_only_the_verdict_counts_are_cut(tmp_path: Path) -> None:
    system = QueueingSystem("queue", {"a": 10, "b": 12})
    result = evaluate(tmp_path, [system], steady_case(30), plan=replace(PLAN, loads=(1.5,)))
    assert capacity(result, "queue").qps == pytest.approx(
        (capacity_qps(0.010, 0.030, 0.95),) * 2, rel=0.1
    )
    cut = [trial for trial in result.trials if trial.cut]
    assert {trial.purpose for trial in cut} == {"grid", "search"}
    assert not any(trial.met for trial in cut)
    assert min(trial.figures["all"].queries for trial in cut) < 1000
    for trial in result.trials:
        if trial.purpose in ("at_capacity", "sweep") or (trial.met and trial.purpose == "search"):
            assert trial.figures["all"].queries == pytest.approx(4000, rel=0.1)


def test_a_longer_run_decides_where_a_rare_model_had_too_few_queries(tmp_path: Path) -> None:
    case = steady_case(30, 1000)
    often, rare = case.facts.models
    models = (replace(often, share=0.99), replace(rare, share=0.01))
    case = replace(
        case,
        facts=replace(case.facts, models=models),
        run=RunSection(min_seconds=1, min_queries=30, max_seconds=20),
    )
    result = evaluate(tmp_path, [UnluckySystem("queue", 10)], case)
    expected = capacity_qps(0.010, 0.030, 0.95)
    assert capacity(result, "queue").qps == pytest.approx((expected,) * 2, rel=0.1)
    runs = [each for each in result.trials if (each.purpose, each.repetition) == ("search", 0)]
    decided = [b for a, b in pairwise(runs) if a.rate_qps == b.rate_qps]
    assert any(each.met for each in decided)
    assert all(each.figures["model1"].queries > 20 for each in decided)


def test_systems_take_turns(tmp_path: Path) -> None:
    systems = [QueueingSystem(name, 10) for name in ("a", "b")]
    result = evaluate(tmp_path, systems, steady_case(30))
    turns = [(each.system, each.repetition) for each in result.trials if each.purpose == "search"]
    assert list(dict.fromkeys(turns)) == [("a", 0), ("b", 0), ("b", 1), ("a", 1)]
    first = {
        each.system: each.figures["all"].queries for each in result.trials if each.repetition == 0
    }
    assert first["a"] == first["b"]  # the same arrivals


def test_what_was_measured_is_kept(tmp_path: Path) -> None:
    case = steady_case(30)
    first = evaluate(tmp_path, [QueueingSystem("queue", 10)], case)
    again = QueueingSystem("queue", 10)
    assert evaluate(tmp_path, [again], case) == first
    assert again.starts == []
    stricter = steady_case(29)
    evaluate(tmp_path, [again], stricter)
    assert again.starts == ["only"]


def test_a_stopped_evaluation_goes_on(tmp_path: Path) -> None:
    def stop(replay: int) -> None:
        if replay == 5:
            raise KeyboardInterrupt

    case = steady_case(30)
    stopped = QueueingSystem("queue", 10, before=stop)
    with pytest.raises(KeyboardInterrupt):
        evaluate(tmp_path, [stopped], case)
    rest = QueueingSystem("queue", 10)
    result = evaluate(tmp_path, [rest], case)
    whole = evaluate(tmp_path / "whole", [QueueingSystem("queue", 10)], case)
    assert result.capacities == whole.capacities
    assert rest.replays == len(whole.trials) - 5


def test_a_system_that_fails_is_recorded_and_the_rest_goes_on(tmp_path: Path) -> None:
    dying = QueueingSystem("dying", 10, before=failing(after=3))
    result = evaluate(tmp_path, [dying, QueueingSystem("queue", 10)], steady_case(30))
    found = capacity(result, "dying")
    assert (found.state, found.qps, found.note) == ("failed", (), "the system has died")
    assert capacity(result, "queue").state == "found"
    facts = result.systems[0]
    assert facts.error == "steady: the system has died"
    log = (tmp_path / facts.log).read_text()
    assert "dying says hello" in log
    assert "Traceback" in log
    assert len(dying.starts) == 1  # not tried again in its later stages


def test_a_setting_that_fails_is_no_candidate(tmp_path: Path) -> None:
    system = QueueingSystem("peer", {"broken": 5, "works": 10}, kind="peer", before=failing_once())
    found = capacity(evaluate(tmp_path, [system], steady_case(30)), "peer")
    assert (found.state, found.setting) == ("found", "works")
    assert found.note == "failed at broken: the setting does not work"


class OverloadedSystem(QueueingSystem):
    """Dies at one of its settings when it is asked for long."""

    def __init__(self) -> None:
        super().__init__("peer", {"works": 10, "dies": 14}, kind="peer")

    def replay(self, arrivals: Arrivals, allowance: Allowance | None = None) -> Observed:
        if self.starts[-1] == "dies" and len(arrivals.time_ns) > 2000:
            raise VeltairError("too many queries")
        return super().replay(arrivals, allowance)


def test_a_setting_that_fails_in_the_search_is_left_out(tmp_path: Path) -> None:
    system = OverloadedSystem()
    found = capacity(evaluate(tmp_path, [system], steady_case(40)), "peer")
    assert (found.state, found.setting) == ("found", "works")
    assert found.note == "failed at dies: too many queries"
    assert found.qps == pytest.approx((capacity_qps(0.010, 0.040, 0.95),) * 2, rel=0.1)
    assert system.starts.count("dies") == 2  # in the comparison and once in the search


def test_a_target_that_no_rate_keeps_is_unmeetable(tmp_path: Path) -> None:
    result = evaluate(tmp_path, [QueueingSystem("queue", 40)], steady_case(30, min_queries=100))
    found = capacity(result, "queue")
    assert (found.state, found.qps) == ("unmeetable", ())
    assert found.note == "the targets aren't kept even at 1 queries a second"
    assert min(each.rate_qps for each in result.trials if each.purpose == "search") == 1
    assert result.solos[0].mean_ms == pytest.approx(40)  # which says why


@pytest.mark.parametrize(("lowest_qps", "keeps"), [(1.0, False), (0.05, True)])
def test_a_slow_system_has_a_capacity_below_one_query_a_second_where_asked_for(
    tmp_path: Path, lowest_qps: float, keeps: bool
) -> None:
    plan = Plan(repetitions=2, most_others=ANY, loads=(), solo_queries=0, lowest_qps=lowest_qps)
    systems = [
        QueueingSystem("queue", 2000),
        QueueingSystem("peer", {"slow": 4000, "fast": 3000}, kind="peer"),
    ]
    result = evaluate(tmp_path, systems, steady_case(7000, min_queries=2000), plan=plan)
    assert min(each.rate_qps for each in result.trials if each.purpose == "search") >= lowest_qps
    for name, service_s in (("queue", 2.0), ("peer", 3.0)):
        found = capacity(result, name)
        assert (found.state == "found") == keeps, found
        if keeps:
            assert found.qps == pytest.approx((capacity_qps(service_s, 7.0, 0.95),) * 2, rel=0.1)
            assert found.setting in ("only", "fast")
        else:
            assert (found.state, found.qps) == ("unmeetable", ())


def test_a_machine_that_others_use_decides_nothing(tmp_path: Path) -> None:
    plan = Plan(repetitions=2, most_others=-1.0, loads=(), solo_queries=0)
    for service_ms in (10, 40):  # neither a rate nor that there is none
        system = QueueingSystem("queue", service_ms)
        result = evaluate(tmp_path / f"{service_ms}", [system], steady_case(30), plan=plan)
        found = capacity(result, "queue")
        assert found.state == "disturbed"
        assert "of the processors" in found.note


def test_a_system_that_is_not_here_is_skipped(tmp_path: Path) -> None:
    absent = QueueingSystem("peer", 1, kind="peer", missing="not installed; make peers")
    result = evaluate(tmp_path, [absent, QueueingSystem("queue", 10)], steady_case(30))
    found = capacity(result, "peer")
    assert (found.state, found.note) == ("skipped", "not installed; make peers")
    assert absent.starts == []


@pytest.mark.parametrize(("rival_ms", "ahead"), [(10.05, "no winner"), (14, "ours ahead")])
def test_who_is_ahead_is_said_where_repetitions_decide_it(
    tmp_path: Path, rival_ms: float, ahead: str
) -> None:
    systems = [QueueingSystem("a", 10), QueueingSystem("b", rival_ms, kind="peer")]
    said = notes(evaluate(tmp_path, systems, steady_case(30)))[0]
    assert said.startswith(f"steady: {ahead}. a (only), ")
    assert re.search(r"times as many \(.*\) as b \(only\), the best peer", said)


def test_the_null_system_runs_at_the_best_rate_that_was_found(tmp_path: Path) -> None:
    systems = [QueueingSystem("null", 0.001, kind="null"), QueueingSystem("queue", 10)]
    result = evaluate(tmp_path, systems, steady_case(30))
    (low, high) = sorted(capacity(result, "queue").qps)
    rates = [each.rate_qps for each in result.trials if each.system == "null"]
    assert rates == pytest.approx([(low + high) / 4, (low + high) / 2])
    assert {each.system for each in result.capacities} == {"queue"}


def test_the_table_has_each_system_and_workload(tmp_path: Path) -> None:
    cases = [steady_case(30), steady_case(9, name="tight", min_queries=50)]
    systems = [QueueingSystem("queue", 10), QueueingSystem("null", 0.001, kind="null")]
    result = evaluate(tmp_path, systems, *cases)
    console = Console(file=io.StringIO(), width=120)
    console.print(table(result))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "steady" in text
    assert "unmeetable" in text
    assert "null" not in text
