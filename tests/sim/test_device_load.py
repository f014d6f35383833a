"""What the policies make of load: staggering, flat tops, idle devices."""

from __future__ import annotations

import numpy as np
import pytest

from veltair.runtime.simulate.arrivals import generate_arrivals
from veltair.runtime.simulate.device_capacity import device_capacity
from veltair.runtime.simulate.device_simulation import (
    DeviceModel,
    DevicePolicy,
    DeviceResult,
    simulate_devices,
)
from veltair.runtime.simulate.scenario import ArrivalsSection

RESNET50 = DeviceModel(name="resnet50", alpha_ns=1_053_000, beta_ns=5_072_000, slo_ns=25_000_000)
DEVICES = 8
# Symphony, Table 2: "staggered" is what 8 devices can do at all, for evenly spaced requests.
STAGGERED_QPS = 5839


def run(rate_qps: float, policy: DevicePolicy, queries: int = 60_000) -> DeviceResult:
    arrivals = generate_arrivals(ArrivalsSection(rate_qps=rate_qps, queries=queries, seed=0), [1])
    return simulate_devices(
        [RESNET50], arrivals, devices=DEVICES, policy=policy, warmup_queries=2_000
    )


def test_deferred_keeps_the_papers_goodput() -> None:
    summary = run(5_264, DevicePolicy()).summary()
    assert summary["satisfied_share"] >= 0.99
    assert summary["batch_size_median"] >= 14
    assert summary["p99_ms"] <= 25


def test_no_policy_beats_the_staggered_bound() -> None:
    found = device_capacity(
        [RESNET50], ArrivalsSection(queries=30_000, seed=0), devices=DEVICES, seeds=2
    )
    assert min(found.by_seed_qps) >= 5_264 * 0.97
    assert max(found.by_seed_qps) <= STAGGERED_QPS
    for kept in found.kept:
        assert kept.satisfied_shares().min() >= 0.99


def test_overload_keeps_the_goodput() -> None:
    overloaded = run(2 * STAGGERED_QPS, DevicePolicy()).summary()
    assert overloaded["satisfied_qps"] >= 0.9 * STAGGERED_QPS
    assert overloaded["drops"]["given_up"] > 0


def test_without_giving_up_overload_collapses() -> None:
    collapsed = run(2 * STAGGERED_QPS, DevicePolicy(least_batch_percent=0)).summary()
    assert collapsed["satisfied_qps"] <= 0.4 * STAGGERED_QPS
    assert collapsed["batch_size_median"] == 1


def test_idle_devices_follow_the_load() -> None:
    """Deferral keeps batches large, so half the load leaves half the devices idle; eager none."""
    deferred = run(STAGGERED_QPS / 2, DevicePolicy())
    assert deferred.summary()["device_idle_share"] == pytest.approx(0.5, abs=0.05)
    eager = run(STAGGERED_QPS / 2, DevicePolicy(batching="eager"))
    assert eager.summary()["device_idle_share"] < 0.05
    # First fit: those with large ids are the idle ones.
    busy_ns = np.bincount(
        deferred.run.device, deferred.run.batch_end_ns - deferred.run.start_ns, DEVICES
    )
    assert (np.diff(busy_ns) < 0).all()
    assert busy_ns[-1] < 0.05 * busy_ns[0]
