"""The search for the highest rate, and what its repetitions bear."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from evaluations import figures

from veltair.eval.capacity.result import Capacity, ModelTarget, WorkloadFacts
from veltair.eval.capacity.search import (
    allowance,
    highest_qps,
    spread,
    state_of,
    too_few_to_say,
)
from veltair.eval.latency_figures import Figures
from veltair.runtime.simulate.arrivals import Arrivals


@pytest.mark.parametrize("capacity", [1.2, 7.0, 333.0])
@pytest.mark.parametrize("begin", [1.0, 30.0, 900.0])
@pytest.mark.parametrize("step", [1.1, 1.5])
def test_the_highest_rate_is_found_from_above_and_below(
    capacity: float, begin: float, step: float
) -> None:
    asked: list[float] = []

    def holds(rate: float) -> bool:
        asked.append(rate)
        return rate <= capacity

    found = highest_qps(holds, begin, step=step, tolerance=0.02)
    assert 0.98 * capacity <= found <= capacity
    assert min(asked) >= 1


def test_what_one_query_a_second_does_not_keep_is_nothing() -> None:
    asked: list[float] = []

    def holds(rate: float) -> bool:
        asked.append(rate)
        return False

    assert highest_qps(holds, 10, step=1.5, tolerance=0.02) == 0
    assert min(asked) == 1


def test_what_does_not_keep_the_lowest_rate_is_asked_of_no_other() -> None:
    asked: list[float] = []

    def holds(rate: float) -> bool:
        asked.append(rate)
        return rate <= 50

    assert highest_qps(holds, 60, step=1.5, tolerance=0.02, lowest_qps=60) == 0
    assert asked == [60]
    asked.clear()
    assert 49 <= highest_qps(holds, 40, step=1.5, tolerance=0.02, lowest_qps=40) <= 50
    assert len(set(asked)) == len(asked)


def test_what_holds_at_every_rate_is_the_highest_asked() -> None:
    assert highest_qps(lambda _rate: True, 10, step=1.5, tolerance=0.02) > 10_000


@pytest.mark.parametrize(
    ("rare", "late", "few"),
    [
        (3, 1, True),  # comes in 14 of 100 runs of a system that keeps 95 %
        (2, 2, False),  # in 1 of 400
        (16, 2, True),  # in 19 of 100
        (16, 3, False),  # in 4 of 100
        (30, 2, False),  # enough queries
    ],
)
def test_few_queries_of_a_rare_model_say_little(rare: int, late: int, few: bool) -> None:
    often = in_time(400, 10)
    assert too_few_to_say({"all": often, "a": often, "b": in_time(rare, late)}, 30, 95) is few
    # Beside a model that has enough of them and doesn't keep its share, they don't matter.
    never = in_time(400, 40)
    assert not too_few_to_say({"all": never, "a": never, "b": in_time(rare, late)}, 30, 95)


@pytest.mark.parametrize("percentile", [95, 99, 99.9])
@pytest.mark.parametrize("queries", [1, 3, 16, 29, 30, 100, 101, 1000])
def test_with_one_late_query_more_than_allowed_no_run_holds_or_is_too_short(
    queries: int, percentile: float
) -> None:
    facts = WorkloadFacts(
        name="w", models=(ModelTarget(name="a", qos_ns=7, share=1.0),), targets="made up"
    )
    arrivals = Arrivals(
        time_ns=np.arange(queries, dtype=np.int64), model=np.zeros(queries, np.int32)
    )
    found = allowance(facts, arrivals, 30, percentile)
    assert found.qos_ns == (7,)
    (most,) = found.most_late

    def is_open(late: int) -> bool:
        share = (queries - late) / queries
        each = {"a": replace(figures(1.0, 0.5, 1.0, queries=queries), satisfied_share=share)}
        holds = each["a"].satisfied_share * 100 >= percentile
        return holds or too_few_to_say(each, 30, percentile)

    assert is_open(most)
    assert most == queries or not any(is_open(late) for late in range(most + 1, queries + 1))


def test_repetitions_decide_the_state() -> None:
    assert state_of([0.0, 0.0], 0.2) == "unmeetable"
    assert state_of([10.0, 11.0, 10.5], 0.2) == "found"
    assert state_of([10.0, 13.0, 10.5], 0.2) == "noisy"
    assert state_of([0.0, 2.0, 0.0], 0.2) == "noisy"
    assert spread([10.0, 12.0, 8.0]) == pytest.approx(0.4)
    assert spread([0.0, 0.0]) == math.inf


def in_time(queries: int, late: int) -> Figures:
    return replace(figures(1.0, 0.5, 1.0, queries=queries), satisfied_share=1 - late / queries)


def capacity(system: str, *qps: float, state: str = "found") -> Capacity:
    assert state in ("found", "noisy", "failed")
    return Capacity(workload="w", system=system, setting="", state=state, qps=qps)  # type: ignore[arg-type]
