"""The batcher as Python drives it: events in, decisions and their reasons out."""

from __future__ import annotations

import pytest

from veltair.runtime._native import sched

COST = sched.BatchCost(alpha_ns=100, beta_ns=500)
DEVICE = sched.ExecutorKind.DEVICE


def batcher(batching: str = "deferred", *, models: int = 1, devices: int = 1) -> sched.Batcher:
    return sched.Batcher(
        batching=batching,
        placement="first-fit",
        models=[COST] * models,
        executors=[DEVICE] * devices,
        queue_limit=8,
    )


def arrive(
    driven: sched.Batcher, query: int, now_ns: int, *, model: int = 0, slo_ns: int = 1200
) -> sched.Decisions:
    return driven.on_arrival(
        model=model, query=query, arrival_ns=now_ns, deadline_ns=now_ns + slo_ns, now_ns=now_ns
    )


def test_a_deferred_batch_leaves_at_its_frontrun_moment() -> None:
    driven = batcher(devices=2)
    assert not arrive(driven, 70, 0).dispatches
    assert not arrive(driven, 71, 75).dispatches
    candidate = driven.candidate(0)
    assert (candidate.queries, candidate.exec_ns, candidate.latest_ns) == (2, 400, 500)
    assert driven.next_timer_ns == 400
    decisions = driven.on_timer(now_ns=400)
    (dispatch,) = decisions.dispatches
    assert decisions.queries(dispatch) == [70, 71]
    assert (dispatch.model, dispatch.executor, dispatch.size) == (0, 0, 2)
    assert dispatch.expected_ns == 400 + 700
    assert dispatch.deadline_ns == 1200
    assert dispatch.moment == "one query more would not end in time"
    assert dispatch.match == "its moment came while an executor was free"
    assert (driven.is_free(0), driven.is_free(1)) == (False, True)
    assert driven.waiting(0) == 0
    assert driven.next_timer_ns == sched.NEVER


def test_decisions_stay_as_they_were_after_the_next_event() -> None:
    driven = batcher("eager")
    first = arrive(driven, 1, 0)
    arrive(driven, 2, 1)
    second = driven.on_executor_free(executor=0, now_ns=600)
    assert first.queries(first.dispatches[0]) == [1]
    assert second.queries(second.dispatches[0]) == [2]
    assert second.dispatches[0].match == "an executor came free while it was ready"


def test_what_cannot_make_it_is_dropped_with_a_reason() -> None:
    driven = batcher("eager")
    arrive(driven, 1, 0)
    arrive(driven, 2, 1, slo_ns=700)
    (drop,) = driven.on_timer(now_ns=102).drops
    assert (drop.query, drop.model) == (2, 0)
    assert drop.reason == "it can't end by its deadline any more"


@pytest.mark.parametrize(
    ("name", "queries", "exec_ns", "moment"),
    [
        ("none", 1, 60, "the policy does not wait"),
        ("eager", 3, 60, "the policy does not wait"),
        ("timeout", 3, 250, "the first query has waited for the timeout"),
        ("deferred", 3, 300, "one query more would not end in time"),
    ],
)
def test_each_policy_names_its_moment(name: str, queries: int, exec_ns: int, moment: str) -> None:
    cost = sched.BatchCost(alpha_ns=100, beta_ns=500, timeout_ns=200)
    found = sched.make_batching(name).candidate(
        cost, waiting=3, oldest_arrival_ns=50, earliest_deadline_ns=1200, now_ns=60
    )
    assert (found.queries, found.exec_ns, found.moment) == (queries, exec_ns, moment)


def test_the_names_are_listed_and_others_refused() -> None:
    assert sched.batching_names() == ["none", "timeout", "eager", "deferred"]
    assert sched.placement_names() == ["local", "first-fit"]
    with pytest.raises(ValueError, match="`lazy`; known: none, timeout, eager, deferred"):
        sched.make_batching("lazy")
    with pytest.raises(ValueError, match="known: local, first-fit"):
        sched.make_placement("anywhere")


def test_first_fit_takes_the_smallest_free_id() -> None:
    policy = sched.make_placement("first-fit")
    assert policy.decide([DEVICE] * 300, [299, 70, 128]) == 70
    assert policy.decide([DEVICE] * 3, []) == sched.NONE


def test_misuse_is_an_error_not_a_crash() -> None:
    driven = batcher()
    with pytest.raises(IndexError, match="no such model"):
        arrive(driven, 1, 0, model=1)
    with pytest.raises(IndexError, match="no such executor"):
        driven.on_executor_free(executor=1, now_ns=0)
    with pytest.raises(ValueError, match="has no batch to end"):
        driven.on_executor_free(executor=0, now_ns=0)
    driven.on_timer(now_ns=5)
    with pytest.raises(ValueError, match="now_ns = 4: before the last event's, 5"):
        driven.on_timer(now_ns=4)
    with pytest.raises(ValueError, match="alpha_ns = -1"):
        sched.BatchCost(alpha_ns=-1, beta_ns=0)
