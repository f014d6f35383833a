"""What a real server costs, measured on it with few queries, as parameters for the simulator.

None of it is fitted to the runs that the simulator is then compared with: a model's time is
measured with one query in flight, a boundary's cost as the difference of two such times, the
disturbance by neighbours with as many queries in flight as there are cores for.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from veltair.eval import bench_launch
from veltair.eval.artifact_copies import copy_artifacts
from veltair.eval.fresh_profile import profiled
from veltair.eval.real_runs import ServerPlan, closed_loop, one_at_a_time, replay, running
from veltair.eval.unevenness import ProbeQuery
from veltair.runtime.artifact import open_artifact
from veltair.runtime.machine import SPARE_WORKERS, usable_cores
from veltair.runtime.manifest import Profile
from veltair.runtime.simulate.arrivals import Arrivals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from veltair.runtime.client import LocalClient

_ALL_CORES_QOS_NS = 1  # out of reach: the policy `model` takes all cores
_ONE_CORE_QOS_NS = 1_000_000_000_000  # the policy `model` takes one core
_NS_PER_S = 1_000_000_000
_SLEEP_NS = 2_000_000
_PROBES = 60
_PROBE_GAP = 1.5  # of the longest model's time
_TURN = 6
_FEWEST_TURNS = 10
_LEAST_SLOWDOWN = 1e-9  # no time changes by it, but a profile's levels ascend


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What no load changes, all measured.

    Attributes:
        start_ns: from a query's arrival to the begin of its first block while cores are free: the
            driver's wake-up, the submission, the worker's wake-up.
        boundary_ns: what a boundary between blocks costs on unchanged cores.
        gain_ns: from the moment that a core is granted to a running block to its first work there:
            two wake-ups, of the thread that hears of it and of the core's own.
    """

    start_ns: int
    boundary_ns: int
    gain_ns: int


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The parameters of the runs at one load, all measured.

    Attributes:
        profiles: by model, `model_ns` as served alone, one query after another, and `layer_ns` as
            the engine runs them.
        costs: the rest.
    """

    profiles: dict[str, Profile]
    costs: Costs


def measure_costs(
    repository: Path,
    models: Sequence[str],
    scratch: Path,
    *,
    queries: int,
    say: Callable[[str], None],
) -> Costs:
    """Measures what no load changes; about a minute.

    Args:
        repository: of artifacts.
        models: of it, those to measure.
        scratch: folder for repositories and configurations.
        queries: of each model in each measurement.
        say: hears of the progress.
    """
    cpus = sorted(os.sched_getaffinity(0))
    profiles = {
        name: open_artifact(repository / name, verify=False).manifest.profile for name in models
    }
    hurried, patient = scratch / "hurried", scratch / "patient"
    _copies(repository, hurried, models, profiles, _ALL_CORES_QOS_NS)
    _copies(repository, patient, models, profiles, _ONE_CORE_QOS_NS)
    say("calibration: layer by layer")
    boundary_ns = _boundary_ns(hurried, cpus[0], scratch, profiles, queries)
    say("calibration: queries that find cores free")
    plan = ServerPlan(
        repository=patient, policy="model", workers=len(cpus) + SPARE_WORKERS, cores=tuple(cpus)
    )
    with running(plan, scratch) as client:
        gap_ns = round(_PROBE_GAP * max(each.model_ns[0][0] for each in profiles.values()))
        probes = Arrivals(
            time_ns=np.arange(1, _PROBES + 1, dtype=np.int64) * gap_ns,
            model=(np.arange(_PROBES) % len(models)).astype(np.int32),
        )
        observed = replay(client, models, probes)
    return Costs(
        start_ns=round(float(np.median(observed.start_ns - probes.time_ns))),
        boundary_ns=boundary_ns,
        gain_ns=_gain_ns(cpus),
    )


def calibrate(
    repository: Path,
    models: Sequence[str],
    scratch: Path,
    costs: Costs,
    *,
    queries: int,
    load: float,
    say: Callable[[str], None],
) -> Calibration:
    """Measures what depends on a load; some tens of seconds.

    Args:
        repository: of artifacts.
        models: of it, those to measure.
        scratch: folder for repositories and configurations.
        costs: what doesn't depend on it.
        queries: of each model in each measurement.
        load: share of the time for which a model served alone is kept busy: what idles longer
            finds colder caches.
        say: hears of the progress.
    """
    cpus = sorted(os.sched_getaffinity(0))
    profiles = {}
    for name in models:
        say(f"calibration: profile of {name}")
        profiles[name] = profiled(open_artifact(repository / name).folder)
    hurried = scratch / "hurried"
    _copies(repository, hurried, models, profiles, _ALL_CORES_QOS_NS)
    alone: dict[str, list[float]] = {name: [] for name in models}
    for count in range(1, len(cpus) + 1):
        say(f"calibration: served alone on {count} of {len(cpus)} cores")
        plan = ServerPlan(repository=hurried, policy="model", workers=1, cores=tuple(cpus[:count]))
        with running(plan, scratch) as client:
            for name in models:
                alone[name].append(_alone_ns(client, name, queries, profiles[name], load))
    return Calibration(
        profiles={
            name: msgspec.structs.replace(
                profiles[name], model_ns=tuple((round(ns),) for ns in alone[name])
            )
            for name in models
        },
        costs=costs,
    )


def _copies(
    repository: Path,
    folder: Path,
    models: Sequence[str],
    profiles: Mapping[str, Profile],
    qos_ns: int,
) -> None:
    """Artifacts of one target, so that the policy `model` takes the cores that are meant."""
    targets = dict.fromkeys(models, qos_ns)
    copy_artifacts(repository, folder, models, profiles=profiles, qos_ns=targets)


def scaled(profile: Profile, factor: float) -> Profile:
    """Returns a profile all of whose times are `factor` times as long."""

    def times(row: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(max(round(time_ns * factor), 1) for time_ns in row)

    return msgspec.structs.replace(
        profile,
        model_ns=tuple(map(times, profile.model_ns)),
        layer_ns=tuple(
            tuple(tuple(map(times, variant)) for variant in layer) for layer in profile.layer_ns
        ),
    )


def with_levels(profile: Profile, slowdown: float, cores: int) -> Profile:
    """Returns a profile of one interference level for each number of busy neighbours.

    Level k is that of k cores that run others' blocks, as `OccupancyInterference` counts them. A
    block on c of N cores has N - c neighbours at most.

    Args:
        profile: of one level.
        slowdown: on one core while all others are busy, from 1; in proportion for fewer.
        cores: of the machine.
    """
    step = max(slowdown - 1, _LEAST_SLOWDOWN) / max(cores - 1, 1)

    def at_levels(time_ns: int, count: int) -> tuple[int, ...]:
        busy = [min(level, max(cores - count, 0)) for level in range(cores + 1)]
        return tuple(round(time_ns * (1 + step * neighbours)) for neighbours in busy)

    return msgspec.structs.replace(
        profile,
        levels=tuple(step * level for level in range(cores + 1)),
        model_ns=tuple(
            at_levels(row[0], count)
            for row, count in zip(profile.model_ns, profile.cores, strict=True)
        ),
        layer_ns=tuple(
            tuple(
                tuple(
                    at_levels(row[0], count)
                    for row, count in zip(variant, profile.cores, strict=True)
                )
                for variant in layer
            )
            for layer in profile.layer_ns
        ),
    )


def _alone_ns(
    client: LocalClient, name: str, queries: int, profile: Profile, load: float = 0.5
) -> float:
    """Mean time with one query in flight, for a share of `load` of the time."""
    pause_ns = round(min(row[0] for row in profile.model_ns) * (1 / load - 1))
    return _mean_ns(closed_loop(client, {name: 1}, queries, pause_ns=pause_ns)[name])


def probe_queries(
    client: LocalClient, names: Sequence[str], queries: int, load: float, beside: int = 0
) -> list[ProbeQuery]:
    """Single queries that ask for the models in turns, in a random order.

    As under load, and unlike queries of one model, each mostly finds the caches as another left
    them.

    Args:
        client: attached.
        names: of the models.
        queries: of each.
        load: share of the time for which one of them runs.
        beside: queries that run meanwhile, at any time.
    """
    order = [name for name in names for _ in range(queries)]
    order = [order[index] for index in np.random.default_rng(0).permutation(len(order))]
    times = one_at_a_time(client, order, load=load, beside=beside)
    return [
        ProbeQuery(model=name, begin_ns=begin_ns, compute_ns=compute_ns)
        for name, (begin_ns, compute_ns) in zip(order, times, strict=True)
    ]


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """What can run beside a query.

    Attributes:
        queries: that fit the cores beside it.
        cores: that they have, on average.
    """

    queries: int
    cores: float


def neighbours(client: LocalClient, names: Sequence[str]) -> Neighbours:
    """Returns what fills the other cores while a query runs.

    Args:
        client: attached to a server that has all cores of this process.
        names: of the models that are asked for equally often.
    """
    asked = [model for model in client.models() if model.name in names]
    needed = [model.needed_cores for model in asked]
    fitting = usable_cores() // max(needed)
    queries = max(min(fitting, *(model.slots for model in asked)), 1) - 1
    return Neighbours(queries=queries, cores=queries * sum(needed) / len(needed))


def _boundary_ns(
    repository: Path,
    cpu: int,
    scratch: Path,
    profiles: Mapping[str, Profile],
    queries: int,
) -> int:
    """What `layer` takes longer than `model`, by boundary, on one core: cores never change.

    Two servers run side by side and are asked in turns, so that the machine's moods fall out; of
    the models the one with the least time a layer, where the boundaries are the largest part.
    """
    name = min(
        profiles, key=lambda each: profiles[each].model_ns[0][0] / _boundaries(profiles[each])
    )
    plans = [
        ServerPlan(repository=repository, policy=policy, workers=1, cores=(cpu,))
        for policy in ("model", "layer")
    ]
    with running(plans[0], scratch) as whole, running(plans[1], scratch) as layered:
        differences = [
            _alone_ns(layered, name, _TURN, profiles[name])
            - _alone_ns(whole, name, _TURN, profiles[name])
            for _ in range(max(queries // 2, _FEWEST_TURNS))
        ]
    return max(round(float(np.median(differences)) / _boundaries(profiles[name])), 0)


def _boundaries(profile: Profile) -> int:
    return max(len(profile.layer_ns) - 1, 1)


def _mean_ns(times: Sequence[tuple[int, int]]) -> float:
    """The mean: slow queries are rare, but a queue behind them waits as long as they take."""
    return float(np.mean([compute_ns for _, compute_ns in times]))


def _gain_ns(cpus: list[int]) -> int:
    if len(cpus) < 2:
        return 0
    found = bench_launch.measure(cpus, launches=1000, wake_ups=100, sleep_ns=_SLEEP_NS)
    return int(found["all_cores_asleep"]["p50_ns"] + found["one_thread_asleep"]["p50_ns"])
