"""The highest rate at which enough of every model's queries are in time."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from veltair.runtime._native import sched
from veltair.runtime.errors import ConfigError
from veltair.runtime.simulate.bisection import bisect, bracket
from veltair.runtime.simulate.device_scenario import DeviceScenario, keeps_on_devices
from veltair.runtime.simulate.metrics import satisfied
from veltair.runtime.simulate.profiles import load_profiles
from veltair.runtime.simulate.run import simulate
from veltair.runtime.simulate.scenario import Scenario

PRECISION = 0.01
_LOWEST_QPS = 1e-3
_HIGHEST_QPS = 1e8


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """What `find_capacity` found.

    Attributes:
        capacity_qps: median over the seeds.
        by_seed_qps: of each seed, in order.
        simulations: how many were run.
    """

    capacity_qps: float
    by_seed_qps: tuple[float, ...]
    simulations: int


def find_capacity(scenario: Scenario | DeviceScenario, percentile: float, seeds: int) -> Capacity:
    """Bisects the rate to 1 % for each of `seeds` seeds, from the scenario's on.

    Args:
        scenario: its arrivals' rate is only where the search begins.
        percentile: of each model's queries that must be within their target, in percent.
        seeds: how many.

    Raises:
        ConfigError: no rate is low enough, or the arrivals have no rate to change.
    """
    if scenario.arrivals.process == "file":
        raise ConfigError(
            'arrivals.process = "file": recorded arrivals have one rate; choose another'
        )
    kept = _question(scenario, percentile)
    found: list[float] = []
    simulations = 0

    def holds(seed: int, rate_qps: float) -> bool:
        nonlocal simulations
        simulations += 1
        return kept(rate_qps, seed)

    for seed in range(scenario.arrivals.seed, scenario.arrivals.seed + seeds):
        begin = found[-1] if found else scenario.arrivals.rate_qps
        seeded = functools.partial(holds, seed)
        low, high = bracket(seeded, begin, _LOWEST_QPS, _HIGHEST_QPS)
        if low == 0 or math.isinf(high):
            raise ConfigError(
                f"arrivals.rate_qps: at {low or high:.3g} queries a second {percentile:g} % "
                f"{'still are' if low else 'still are not'} in time; there is no capacity to "
                "find between such rates"
            )
        found.append(bisect(seeded, low, high, tolerance=PRECISION))
    return Capacity(
        capacity_qps=statistics.median(found), by_seed_qps=tuple(found), simulations=simulations
    )


def _question(
    scenario: Scenario | DeviceScenario, percentile: float
) -> Callable[[float, int], bool]:
    """Whether a scenario keeps its targets, as a function of rate and seed."""
    if isinstance(scenario, DeviceScenario):
        return lambda rate, seed: keeps_on_devices(scenario, rate, seed, percentile)
    profiles = load_profiles(scenario)
    return lambda rate, seed: keeps(scenario, profiles, rate, seed, percentile)


def keeps(
    scenario: Scenario,
    profiles: list[sched.ModelProfile],
    rate_qps: float,
    seed: int,
    percentile: float,
) -> bool:
    """Whether at least `percentile` % of each model's queries are in time at a rate."""
    arrivals = msgspec.structs.replace(scenario.arrivals, rate_qps=rate_qps, seed=seed)
    found = simulate(msgspec.structs.replace(scenario, arrivals=arrivals), profiles=profiles)
    in_time = satisfied(found)[arrivals.warmup_queries :]
    model = found.arrivals.model[arrivals.warmup_queries :]
    return all(
        in_time[model == index].mean() * 100 >= percentile
        for index in range(len(profiles))
        if (model == index).any()
    )
