"""One computation judges real and simulated runs."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from veltair.eval.capacity.system import FAILED
from veltair.eval.latency_figures import Outcomes, by_model, to_json
from veltair.runtime.simulate.run import QUEUE_FULL, REFUSED, SERVED

MS = 1_000_000


def outcomes(outcome: list[int], latency_ms: list[int], model: list[int]) -> Outcomes:
    """Queries 10 ms apart that each waited 1 ms; targets 5 ms and none."""
    arrival_ns = np.arange(len(model), dtype=np.int64) * 10 * MS
    return Outcomes(
        arrival_ns=arrival_ns,
        model=np.array(model, np.int32),
        start_ns=arrival_ns + MS,
        end_ns=arrival_ns + np.array(latency_ms, np.int64) * MS,
        outcome=np.array(outcome, np.int64),
        qos_ns=np.array([5 * MS, 0], np.int64),
    )


def test_only_served_queries_have_a_latency_and_all_count_for_the_share() -> None:
    found = by_model(
        outcomes(
            [SERVED, SERVED, REFUSED, QUEUE_FULL, FAILED, SERVED],
            [5, 6, 0, 0, 0, 100],
            [0, 0, 0, 0, 1, 1],
        ),
        ["tight", "free"],
    )
    whole = found["all"]
    assert (whole.queries, whole.served, whole.refused, whole.failed) == (6, 3, 2, 1)
    assert whole.mean_ms == pytest.approx(37)
    assert whole.satisfied_share == pytest.approx(2 / 6)  # the one at the target, and `free`'s
    assert whole.satisfied_qps == pytest.approx(2 / 0.05)
    assert (whole.wait_ms, whole.service_ms) == (pytest.approx(1), pytest.approx(36))
    assert (found["tight"].queries, found["tight"].failed) == (4, 0)
    assert found["tight"].satisfied_share == pytest.approx(1 / 4)
    assert found["free"].p99_ms == pytest.approx(100)


def test_only_queries_whose_begin_was_told_have_waited() -> None:
    some = outcomes([SERVED, SERVED, SERVED], [3, 5, 7], [0, 0, 1])
    some.start_ns[[1, 2]] = -1  # as systems say that don't know it
    found = by_model(some, ["some", "none"])
    assert (found["some"].wait_ms, found["some"].service_ms) == (1, 2)
    assert found["some"].mean_ms == 4
    assert math.isnan(found["none"].wait_ms)
    assert math.isnan(found["none"].service_ms)
    assert found["none"].mean_ms == 7


def test_a_model_that_nobody_asked_for_has_no_figures() -> None:
    found = by_model(outcomes([SERVED, SERVED], [1, 1], [0, 0]), ["tight", "free"])
    assert found["free"].queries == 0
    assert math.isnan(found["free"].mean_ms)
    assert math.isnan(found["free"].satisfied_share)
    plain = to_json({"values": (found["free"].mean_ms, 1.5)})
    assert json.loads(json.dumps(plain, allow_nan=False)) == {"values": [None, 1.5]}
