"""One simulation: a scenario's machine, policy and arrivals, and what came of each query."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veltair.proxy.machine_file import find_machine
from veltair.runtime._native import sched, sim
from veltair.runtime.errors import ConfigError
from veltair.runtime.record import Line, PolicyLine, make_header, recording
from veltair.runtime.simulate.arrivals import Arrivals, make_arrivals
from veltair.runtime.simulate.machine_profiles import shared_memory
from veltair.runtime.simulate.profiles import load_profiles
from veltair.runtime.simulate.scenario import NS_PER_MS, Scenario

SERVED, REFUSED, QUEUE_FULL = range(3)
_WORKERS_A_CORE = 2


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """A finished simulation.

    Attributes:
        arrivals: what was asked.
        qos_ns: int64[M], target of each model; 0: none.
        start_ns: int64[Q], of the first block; -1: none.
        end_ns: int64[Q], or when the query was refused.
        outcome: int64[Q], SERVED, REFUSED or QUEUE_FULL.
        machine: sums over the machine, as `MachineTotals` in native/sim/simulator.h.
        models: the same by model, as `ModelTotals`.
        segments: int64[S, 8]: query, worker, layer_begin, layer_end, cores_wanted, cores, start_ns,
            end_ns of each part of a block on an unchanged number of cores; empty without a trace.
    """

    arrivals: Arrivals
    qos_ns: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    outcome: NDArray[np.int64]
    machine: dict[str, int]
    models: list[dict[str, int]]
    segments: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class KnownPace:
    """A machine's pace as it was measured, by which the scenario's is multiplied.

    Attributes:
        factors: from time 0, each for a step, and the last from there on; none: 1.
        step_ns: from 1.
    """

    factors: tuple[float, ...]
    step_ns: int


def make_policy(scenario: Scenario, profiles: list[sched.ModelProfile]) -> sched.Policy:
    """Makes the scenario's scheduling policy.

    Raises:
        ConfigError: a parameter is out of range for this machine.
    """
    name, cores = scenario.policy.scheduling, scenario.machine.cores
    try:
        return sched.make_policy(name, cores, profiles, **_policy_options(scenario))
    except ValueError as error:
        raise ConfigError(f"policy: {error}") from error


def simulate(
    scenario: Scenario,
    *,
    profiles: list[sched.ModelProfile] | None = None,
    arrivals: Arrivals | None = None,
    pace: KnownPace | None = None,
    trace: bool = False,
    record: Path | None = None,
) -> Simulated:
    """Runs a scenario to the end of its last query.

    Args:
        scenario: what to run.
        profiles: of its models, where they have been loaded before.
        arrivals: in place of the scenario's.
        pace: of the machine, where it has been measured.
        trace: whether to keep the segments.
        record: where to write each decision, for `veltair replay`.

    Raises:
        VeltairError: see `load_profiles`, `make_arrivals` and `make_policy`.
        InputError: the record can't be written.
    """
    profiles = load_profiles(scenario) if profiles is None else profiles
    arrivals = make_arrivals(scenario) if arrivals is None else arrivals
    policy = make_policy(scenario, profiles)
    if record is None:
        found = _run(scenario, profiles, policy, arrivals, pace, trace, None)
    else:
        lines = _first_lines(scenario, profiles)
        with recording(record, lines, field="--record") as descriptor:
            found = _run(scenario, profiles, policy, arrivals, pace, trace, descriptor)
    qos_ns = np.array([profile.qos_ns for profile in profiles], dtype=np.int64)
    return Simulated(arrivals=arrivals, qos_ns=qos_ns, **found)


def _run(
    scenario: Scenario,
    profiles: list[sched.ModelProfile],
    policy: sched.Policy,
    arrivals: Arrivals,
    known: KnownPace | None,
    trace: bool,
    record: int | None,
) -> dict[str, Any]:
    machine = scenario.machine
    found: dict[str, Any] = sim.simulate(
        models=profiles,
        policy=policy,
        arrival_ns=arrivals.time_ns,
        model=arrivals.model,
        cores=machine.cores,
        workers=_workers(scenario),
        max_queue=machine.max_queue,
        conflict_ns=round(machine.conflict_us * 1000),
        decision_ns=round(machine.decision_us * 1000),
        expand_if_shorter=machine.expand == "if_shorter",
        level=machine.level if machine.interference == "constant" else None,
        memory=_shared_memory(scenario),
        pace=sim.Pace(
            pace=machine.pace,
            spread=machine.pace_spread,
            memory_ns=round(machine.pace_memory_ms * NS_PER_MS),
            seed=machine.pace_seed,
            known=() if known is None else known.factors,
            known_step_ns=1 if known is None else known.step_ns,
        ),
        trace=trace,
        record=record,
    )
    return found


def _shared_memory(scenario: Scenario) -> sim.SharedMemory | None:
    section = scenario.machine
    if section.interference != "shared":
        return None
    machine = find_machine(section.model, scenario.folder, "machine.model")
    return shared_memory(machine, told=section.proxy == "perfect", error=section.proxy_error)


def _first_lines(scenario: Scenario, profiles: list[sched.ModelProfile]) -> list[Line]:
    names = [model.name for model in scenario.model]
    header = make_header(
        "simulated",
        cores=scenario.machine.cores,
        workers=_workers(scenario),
        models=list(zip(names, profiles, strict=True)),
    )
    policy = PolicyLine(epoch=0, name=scenario.policy.scheduling, options=_policy_options(scenario))
    return [header, policy]


def _policy_options(scenario: Scenario) -> dict[str, Any]:
    policy = scenario.policy
    return {
        "max_block_ns": round(policy.max_block_us * 1000),
        "margin_percent": policy.margin_percent,
        "late_percent": policy.late_percent,
        "refuse_late": policy.refuse_late,
        "partition_cores": policy.partition_cores,
        "threshold_cores": policy.threshold_cores,
    }


def _workers(scenario: Scenario) -> int:
    return scenario.machine.workers or scenario.machine.cores * _WORKERS_A_CORE
