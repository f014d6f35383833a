"""Emulated devices: what goes in is checked, what comes out is counted right."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from veltair.runtime.errors import ConfigError
from veltair.runtime.simulate.arrivals import Arrivals, generate_arrivals
from veltair.runtime.simulate.device_capacity import device_capacity
from veltair.runtime.simulate.device_simulation import (
    DeviceModel,
    DevicePolicy,
    milliseconds,
    simulate_devices,
)
from veltair.runtime.simulate.scenario import ArrivalsSection

MS = 1_000_000
MODEL = DeviceModel(name="a", alpha_ns=MS, beta_ns=MS, slo_ns=4 * MS)


def arrivals(*times_ms: float, models: list[int] | None = None) -> Arrivals:
    return Arrivals(
        time_ns=np.array([round(t * MS) for t in times_ms], dtype=np.int64),
        model=np.array(models or [0] * len(times_ms), dtype=np.int32),
    )


def test_figures_of_a_small_run() -> None:
    # One device. Alone at 0 until 2; then both of 0.5 and 1 until 5: the first ends 0.5 late, so it
    # runs alone until 4, and the one of 1 is dropped at 3.
    result = simulate_devices(
        [MODEL],
        arrivals(0, 0.5, 1.0, 10.0),
        devices=1,
        policy=DevicePolicy(batching="eager"),
    )
    summary = result.summary()
    assert summary["queries"] == 4
    assert summary["satisfied_share"] == 0.75
    assert summary["offered_qps"] == pytest.approx(400)
    assert summary["satisfied_qps"] == pytest.approx(300)
    assert summary["mean_ms"] == pytest.approx((2 + 3.5 + 2) / 3)
    assert summary["p50_ms"] == pytest.approx(3.5)
    assert summary["p95_ms"] is None
    assert summary["batches"] == 3
    assert summary["batch_size_median"] == 1
    assert summary["drops"] == {"deadline": 1, "queue_full": 0, "given_up": 0}
    assert summary["device_idle_share"] == pytest.approx(0.6)
    assert summary["models"]["a"]["satisfied_share"] == 0.75


def test_warm_up_is_not_counted() -> None:
    result = simulate_devices(
        [MODEL],
        arrivals(0, 0, 0, 0, 0, 20, 30),
        devices=1,
        policy=DevicePolicy(batching="none"),
        warmup_queries=5,
    )
    summary = result.summary()
    assert summary["queries"] == 2
    assert summary["satisfied_share"] == 1.0
    assert summary["drops"]["deadline"] == 0
    assert summary["device_idle_share"] == pytest.approx(0.8)


def test_figures_by_model() -> None:
    other = DeviceModel(name="b", alpha_ns=MS, beta_ns=MS, slo_ns=0)
    result = simulate_devices(
        [MODEL, other],
        arrivals(0, 0, 0, models=[0, 1, 1]),
        devices=1,
        policy=DevicePolicy(batching="eager"),
    )
    figures = result.summary()["models"]
    assert figures["a"]["queries"] == 1
    assert figures["b"]["batch_size_median"] == 2
    assert figures["b"]["satisfied_share"] == 1.0  # without a target whatever is answered
    assert result.satisfied_shares().tolist() == [1.0, 1.0]


def test_a_full_queue_refuses() -> None:
    result = simulate_devices(
        [MODEL],
        arrivals(0, 0, 0, 0),
        devices=1,
        policy=DevicePolicy(batching="eager", queue_limit=2),
    )
    assert result.summary()["drops"]["queue_full"] == 1


def test_the_same_arguments_give_the_same_run() -> None:
    asked = ArrivalsSection(rate_qps=2_000, queries=500, seed=3)
    first, second = (
        simulate_devices([MODEL], generate_arrivals(asked, [1]), devices=2).run for _ in range(2)
    )
    np.testing.assert_array_equal(first.end_ns, second.end_ns)
    np.testing.assert_array_equal(first.start_ns, second.start_ns)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"slo_ns": MS}, "slo_ns = 1000000 is below the time of one query alone, 2000000 ns"),
        ({"slo_ns": -1}, "slo_ns = -1: must not be negative"),
        ({"alpha_ns": -1}, "alpha_ns = -1"),
        ({"alpha_ns": 0, "beta_ns": 0}, "a batch must take some time"),
        ({"beta_ns": 1 << 62}, "beta_ns"),
        ({"max_batch": 0}, "max_batch = 0"),
        ({"timeout_ns": -5}, "timeout_ns = -5"),
    ],
)
def test_bad_models_are_refused(changed: dict[str, Any], message: str) -> None:
    fields = {"name": "a", "alpha_ns": MS, "beta_ns": MS, "slo_ns": 4 * MS} | changed
    with pytest.raises(ConfigError, match=message):
        DeviceModel(**fields)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"batching": "defered"}, "must be one of none, timeout, eager, deferred"),
        ({"placement": "local"}, "devices need first-fit"),
        ({"least_batch_percent": 101}, "must be from 0 to 100"),
        ({"queue_limit": 0}, "queue_limit = 0"),
    ],
)
def test_bad_policies_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DevicePolicy(**changed)


def test_bad_runs_are_refused() -> None:
    with pytest.raises(ConfigError, match="devices = 0"):
        simulate_devices([MODEL], arrivals(0), devices=0)
    with pytest.raises(ConfigError, match="warmup_queries = 1"):
        simulate_devices([MODEL], arrivals(0), devices=1, warmup_queries=1)
    with pytest.raises(ConfigError, match="must be ascending"):
        simulate_devices([MODEL], arrivals(1, 0), devices=1)
    with pytest.raises(ConfigError, match="no such model"):
        simulate_devices([MODEL], arrivals(0, models=[1]), devices=1)
    with pytest.raises(ConfigError, match="models = 0"):
        simulate_devices([], arrivals(0), devices=1)


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.1, 1e12])
def test_times_that_are_none_are_refused(value: float) -> None:
    with pytest.raises(ConfigError, match="qos_ms"):
        milliseconds("qos_ms", value)
    assert milliseconds("qos_ms", 1.053) == 1_053_000


def test_capacity_of_what_can_be_worked_out() -> None:
    # Batches of one, at gaps all but equal, 2 ms each on two devices: just below 1000 a second.
    alone = DeviceModel(name="a", alpha_ns=MS, beta_ns=MS, slo_ns=2 * MS + 1)
    found = device_capacity(
        [alone],
        ArrivalsSection(queries=2_000, process="gamma", shape=1e9),
        devices=2,
        policy=DevicePolicy(batching="none"),
        percentile=100,
        tolerance=0.001,
    )
    assert found.capacity_qps == pytest.approx(1000, rel=0.005)
    assert len(found.by_seed_qps) == 3


def test_capacity_needs_targets() -> None:
    with pytest.raises(ConfigError, match="a capacity needs a target"):
        device_capacity(
            [DeviceModel(name="a", alpha_ns=1, beta_ns=1, slo_ns=0)],
            ArrivalsSection(queries=10),
            devices=1,
        )
