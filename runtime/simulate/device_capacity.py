"""The highest rate at which emulated devices keep every model's target, by bisection."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from veltair.runtime.errors import ConfigError
from veltair.runtime.simulate.arrivals import generate_arrivals
from veltair.runtime.simulate.bisection import bisect
from veltair.runtime.simulate.device_simulation import (
    DeviceModel,
    DevicePolicy,
    DeviceResult,
    simulate_devices,
)
from veltair.runtime.simulate.scenario import ArrivalsSection


@dataclass(frozen=True, kw_only=True)
class DeviceCapacity:
    """What a search found.

    Attributes:
        capacity_qps: median over the seeds of the highest offered rate that was kept.
        by_seed_qps: that rate for each seed.
        kept: the run at that rate for each seed.
    """

    capacity_qps: float
    by_seed_qps: Sequence[float]
    kept: Sequence[DeviceResult]


def device_capacity(
    models: Sequence[DeviceModel],
    arrivals: ArrivalsSection,
    *,
    devices: int,
    policy: DevicePolicy | None = None,
    percentile: float = 99.0,
    seeds: int = 3,
    tolerance: float = 0.01,
) -> DeviceCapacity:
    """Finds the goodput: the highest rate with `percentile` of each model's queries in time.

    That is the rate at which this percentile of each model's latency, a dropped query's being
    infinite, is within its target.

    Args:
        models: that are served; each needs a target.
        arrivals: what arrives; its `rate_qps` is ignored, and `seed`, `seed + 1`, ... are used.
        devices: how many there are.
        policy: as `simulate_devices` takes it.
        percentile: above 0, at most 100.
        seeds: how many searches, each with arrivals of its own.
        tolerance: a search ends when the rate is known this well, as a share of it.

    Raises:
        ConfigError: a value is out of range, or a model has no target.

    Reference: Symphony §2.1 (goodput), §3.4 (binary search over a fixed rate).
    """
    _check(models, percentile, seeds, tolerance)

    best: dict[int, DeviceResult] = {}  # by seed: the last run that kept the targets

    def holds(seed: int, rate_qps: float) -> bool:
        asked = msgspec.structs.replace(arrivals, rate_qps=rate_qps, seed=seed)
        result = simulate_devices(
            models,
            generate_arrivals(asked, [model.weight for model in models]),
            devices=devices,
            policy=policy,
            warmup_queries=arrivals.warmup_queries,
        )
        if float(result.satisfied_shares().min()) * 100 < percentile:
            return False
        best[seed] = result
        return True

    limit_qps = _limit_qps(models, devices) * 100 / percentile
    rates = []
    for seed in range(arrivals.seed, arrivals.seed + seeds):
        # Below a thousandth of the limit there is nothing to find.
        rates.append(
            bisect(
                functools.partial(holds, seed),
                0.0,
                limit_qps,
                tolerance=tolerance,
                lowest_qps=limit_qps / 1000,
            )
        )
    return DeviceCapacity(
        capacity_qps=float(np.median(rates)), by_seed_qps=rates, kept=list(best.values())
    )


def _check(models: Sequence[DeviceModel], percentile: float, seeds: int, tolerance: float) -> None:
    if not 0 < percentile <= 100:
        raise ConfigError(f"percentile = {percentile}: must be above 0 and at most 100")
    if seeds < 1:
        raise ConfigError(f"seeds = {seeds}: must be at least 1")
    if not 0 < tolerance < 1:
        raise ConfigError(f"tolerance = {tolerance}: must be between 0 and 1")
    for model in models:
        if model.slo_ns == 0:
            raise ConfigError(f"model {model.name}: slo_ns = 0: a capacity needs a target")


def _limit_qps(models: Sequence[DeviceModel], devices: int) -> float:
    """What no policy can exceed: every batch as large as its target allows, no device ever idle."""
    weights = np.array([model.weight for model in models])
    query_ns = []
    for model in models:
        cost = model.cost()
        # Without a second executor's turn to wait for, a batch may take the whole target.
        room = (model.slo_ns - model.beta_ns) // max(model.alpha_ns, 1)
        size = max(1, min(room, cost.max_batch, 1 << 20))
        query_ns.append(cost.time(size) / size)
    return devices * 1e9 / float((weights / weights.sum() * np.array(query_ns)).sum())
