"""Arrivals: their rates, their spread, their seeds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from veltair.runtime.device_arrivals import ArrivalPlan, generate_arrivals
from veltair.runtime.errors import ConfigError


def gaps(plan: ArrivalPlan) -> np.ndarray[Any, Any]:
    return np.diff(generate_arrivals(plan, [1]).arrival_ns) / 1e9


@pytest.mark.parametrize(
    ("process", "shape", "variation"),
    [("poisson", 1.0, 1.0), ("gamma", 0.25, 2.0), ("gamma", 4.0, 0.5), ("uniform", 1.0, 0.0)],
)
def test_each_process_has_its_rate_and_its_burstiness(
    process: Any,  # noqa: ANN401 # a literal that parametrize can't express
    shape: float,
    variation: float,
) -> None:
    found = gaps(ArrivalPlan(rate_qps=500, queries=50_000, process=process, shape=shape))
    assert found.mean() == pytest.approx(1 / 500, rel=0.05)
    assert found.std() / found.mean() == pytest.approx(variation, abs=0.05)


def test_models_share_the_rate_by_weight() -> None:
    found = generate_arrivals(ArrivalPlan(rate_qps=1000, queries=40_000), [3, 0, 1])
    assert len(found.model) == 40_000
    assert np.bincount(found.model) / 40_000 == pytest.approx([0.75, 0, 0.25], abs=0.01)
    assert (np.diff(found.arrival_ns) >= 0).all()


def test_seeds_and_models_are_apart() -> None:
    plan = ArrivalPlan(rate_qps=1000, queries=1_000, seed=1)
    same, again = generate_arrivals(plan, [1, 1]), generate_arrivals(plan, [1, 1])
    np.testing.assert_array_equal(same.arrival_ns, again.arrival_ns)
    other = generate_arrivals(ArrivalPlan(rate_qps=1000, queries=1_000, seed=2), [1, 1])
    assert not np.array_equal(same.arrival_ns, other.arrival_ns)
    first, second = (same.arrival_ns[same.model == m][:100] for m in (0, 1))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(
    "changed",
    [
        {"rate_qps": -1.0},
        {"rate_qps": math.nan},
        {"queries": 0},
        {"process": "poison"},
        {"shape": 0.0},
        {"seed": -1},
    ],
)
def test_bad_plans_are_refused(changed: dict[str, Any]) -> None:
    (field,) = changed
    with pytest.raises(ConfigError, match=field):
        ArrivalPlan(**({"rate_qps": 10.0, "queries": 10} | changed))


@pytest.mark.parametrize("weights", [[], [0, 0], [-1, 2], [math.inf]])
def test_bad_weights_are_refused(weights: list[float]) -> None:
    with pytest.raises(ConfigError, match="weights"):
        generate_arrivals(ArrivalPlan(rate_qps=1, queries=1), weights)
