"""What is asked of a simulated machine: capacities, latencies, core usage, loads and ablations."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from veltair.eval.capacity.result import Capacity, Solo
from veltair.eval.capacity.search import FIRST_STEP, NEXT_STEP, highest_qps, state_of
from veltair.eval.capacity.simulated_bound import least_core_ns
from veltair.eval.capacity.simulated_machine import MOST_VERSIONS, Setting
from veltair.proxy.machine_model import FULL_LEVEL
from veltair.runtime._native import sched

if TYPE_CHECKING:
    from collections.abc import Callable

    from veltair.eval.capacity.result import Purpose, Trial, WorkloadFacts
    from veltair.eval.capacity.simulated_machine import Run, SimulatedMachine

BASELINE = "layer"
FULL = "veltair"  # the paper's whole system
BY_TIME_LEFT = "veltair-deadline"
PLANNING_ANEW = ("deadline", BY_TIME_LEFT)  # on the time that is left
PLANNED = (1.0, 0.85, 0.7, 0.6, 0.5, 0.4)  # parts of a target that the others may plan on
USAGE_LOAD = 0.75  # where the paper compares core usage
ALONE_QUERIES = 50  # of a model by itself
_ALONE_GAP = 4  # targets between two of them
_BEGIN = 0.6  # of what the cores could serve if nothing were lost
_BEGIN_ONE_AT_A_TIME = 0.15  # the same of a policy that runs one task at a time


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long and how often.

    Attributes:
        seeds: repetitions of a search.
        rarest: expected queries of a workload's rarest model in a run.
        queries: of a run, at least.
        tolerance: how well a search finds the rate.
        noise: widest spread of the seeds, of their median, that still bears a decision.
        loads: parts of the capacity to run at afterwards, beside 1 and 0.5.
    """

    seeds: int = 3
    rarest: int = 200
    queries: int = 3000
    tolerance: float = 0.01
    noise: float = 0.1
    loads: tuple[float, ...] = (0.75, 1.25, 1.5)

    def queries_of(self, facts: WorkloadFacts) -> int:
        """How many a run of a workload has."""
        share = min(model.share for model in facts.models)
        return max(self.queries, round(self.rarest / share))


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Cores in use at one rate, by policy: the paper's Fig. 14a.

    Attributes:
        workload: its name.
        policy: of scheduling.
        rate_qps: 75 % of what layer-wise scheduling keeps.
        cores: in use on average.
    """

    workload: str
    policy: str
    rate_qps: float
    cores: float


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """One setting of one ablation.

    Attributes:
        question: which ablation.
        workload: its name.
        policy: of scheduling.
        setting: what differs; empty: nothing.
        qps: the capacity of one seed.
    """

    question: str
    workload: str
    policy: str
    setting: str
    qps: float


@dataclass(frozen=True, kw_only=True)
class AtSpeed:
    """What one policy keeps with kernels of some speed, by one seed.

    Attributes:
        workload: its name.
        policy: of scheduling.
        computing: what each core computes, as a part of what the profiles say.
        whole_qps: planned on the whole target, as in the paper.
        best_qps: with the slack that is best for it at this speed.
    """

    workload: str
    policy: str
    computing: float
    whole_qps: float
    best_qps: float


class Study:
    """Asks one machine; everything that it has asked is kept by the machine's store."""

    def __init__(
        self, machine: SimulatedMachine, plan: Plan, said: Callable[[str], None] = print
    ) -> None:
        """Takes the machine, the plan, and what progress is said to."""
        self._machine = machine
        self._plan = plan
        self._say = said
        self._slack: dict[tuple[str, Setting], dict[float, float]] = {}

    def slack(self, facts: WorkloadFacts, setting: Setting) -> dict[float, float]:
        """Rates of the first seed by the part of its target that a query is planned to take."""
        key = (facts.name, setting)
        if key not in self._slack:
            parts = (1.0,) if setting.policy in PLANNING_ANEW else PLANNED
            self._slack[key] = {
                part: self._highest(facts, replace(setting, planned=part), 1, None)
                for part in parts
            }
        return self._slack[key]

    def at_best(self, facts: WorkloadFacts, setting: Setting) -> Setting:
        """The setting with the slack that is best for its policy, and its kernels' speed.

        By queries that end at their targets exactly, as the paper's policies plan them, one that
        has to wait at all is late; where that leaves a policy no rate at all says nothing of it.
        """
        found = self.slack(facts, Setting(policy=setting.policy, slower=setting.slower))
        return replace(setting, planned=max(found, key=lambda part: found[part]))

    def capacity(self, facts: WorkloadFacts, setting: Setting) -> Capacity:
        """Searches for the highest rate with each seed."""
        found: list[float] = []
        for seed in range(1, self._plan.seeds + 1):
            known = [qps for qps in found if qps > 0]
            found.append(self._highest(facts, setting, seed, known[-1] if known else None))
        self._say(
            f"{facts.name}: {setting.policy} {setting.text}: "
            + ", ".join(f"{qps:.1f}" for qps in found)
        )
        return Capacity(
            workload=facts.name,
            system=setting.policy,
            setting=setting.text,
            state=state_of(found, self._plan.noise),
            qps=tuple(found),
        )

    def loads(self, facts: WorkloadFacts, setting: Setting, capacity_qps: float) -> list[Trial]:
        """Runs at the capacity, at half of it and at the plan's loads."""
        purposes: list[tuple[float, Purpose]] = [(1.0, "at_capacity"), (0.5, "at_half")]
        purposes += [(load, "sweep") for load in self._plan.loads]
        return [
            self._run(facts, setting, load * capacity_qps, 1, purpose).trial
            for load, purpose in purposes
        ]

    def solos(self, facts: WorkloadFacts, setting: Setting) -> list[Solo]:
        """Each model's latency with nothing beside it."""
        found = []
        for model in facts.models:
            alone = replace(facts, name=model.name, models=(replace(model, share=1.0),))
            rate_qps = 1e9 / (_ALONE_GAP * model.qos_ns)
            machine = (("interference", "constant"),)
            run = self._machine.run(
                alone,
                replace(setting, machine=machine),
                rate_qps=rate_qps / _ALONE_GAP,
                queries=ALONE_QUERIES,
                seed=1,
            )
            figures = run.trial.figures[model.name]
            # The median: Poisson queries that overlap are not alone.
            found.append(
                Solo(
                    model=model.name,
                    system=setting.policy,
                    mean_ms=figures.p50_ms,
                    p50_ms=figures.p50_ms,
                )
            )
        return found

    def shortest_ms(self, facts: WorkloadFacts) -> dict[str, float]:
        """The shortest whole run of each model alone on any number of cores."""
        profiles = self._machine.profiles(facts.models, MOST_VERSIONS, 1.0)
        return {
            model.name: min(profile.model_ns[:: profile.levels]) / 1e6
            for model, profile in zip(facts.models, profiles, strict=True)
        }

    def needed_cores(self, facts: WorkloadFacts) -> dict[str, int]:
        """On how many cores each model alone keeps its target; all where none do."""
        profiles = self._machine.profiles(facts.models, MOST_VERSIONS, 1.0)
        cores = self._machine.machine.processor.cores
        return {
            model.name: sched.needed_cores(profile, cores).cores
            for model, profile in zip(facts.models, profiles, strict=True)
        }

    def by_seed(self, facts: WorkloadFacts, setting: Setting, rate_qps: float) -> list[Trial]:
        """Runs at one rate, with the arrivals of each seed."""
        return [
            self._run(facts, setting, rate_qps, seed, "sweep").trial
            for seed in range(1, self._plan.seeds + 1)
        ]

    def usage(
        self, facts: WorkloadFacts, settings: list[Setting], baseline_qps: float
    ) -> list[Usage]:
        """Average cores in use of each policy at three quarters of the baseline's capacity."""
        rate_qps = USAGE_LOAD * baseline_qps
        cores = self._machine.machine.processor.cores
        found = []
        for setting in settings:
            run = self._run(facts, setting, rate_qps, 1, "sweep")
            used = (run.trial.core_usage or 0.0) * cores
            found.append(
                Usage(workload=facts.name, policy=setting.policy, rate_qps=rate_qps, cores=used)
            )
        return found

    def details(
        self, facts: WorkloadFacts, setting: Setting, rate_qps: float
    ) -> dict[str, float | None]:
        """Conflicts, cores and blocks of a run."""
        return self._run(facts, setting, rate_qps, 1, "sweep").details

    def ablation(self, facts: WorkloadFacts, question: str, setting: Setting) -> Ablation:
        """The capacity of one setting, by the first seed, with its policy's best slack."""
        qps = self._highest(facts, self.at_best(facts, setting), 1, None)
        self._say(f"{facts.name}: {question}: {setting.policy} {setting.text}: {qps:.1f}")
        return Ablation(
            question=question,
            workload=facts.name,
            policy=setting.policy,
            setting=setting.text,
            qps=qps,
        )

    def at_speed(self, facts: WorkloadFacts, policy: str, computing: float) -> AtSpeed:
        """What a policy keeps where each core computes so much of what the profiles say."""
        found = self.slack(facts, Setting(policy=policy, slower=computing))
        self._say(f"{facts.name}: {policy} computing={computing:g}: {max(found.values()):.1f}")
        return AtSpeed(
            workload=facts.name,
            policy=policy,
            computing=computing,
            whole_qps=found[1.0],
            best_qps=max(found.values()),
        )

    def ideal_qps(self, facts: WorkloadFacts, setting: Setting) -> float:
        """What the cores would serve if each query took its least processor time."""
        profiles = self._machine.profiles(facts.models, setting.versions, setting.slower)
        busy_ns = sum(
            model.share
            * float(np.min(np.array(profile.cores) * np.array(profile.model_ns[:: profile.levels])))
            for model, profile in zip(facts.models, profiles, strict=True)
        )
        return self._machine.machine.processor.cores * 1e9 / busy_ns

    def target_qps(self, facts: WorkloadFacts) -> float:
        """What the cores would serve if each query in time took the least that its target allows.

        No policy can keep more: nothing disturbs and nobody waits, and a query that may be late
        takes its least processor time. 0: some model can't end within its target.
        """
        cores = self._machine.machine.processor.cores
        profiles = self._machine.profiles(facts.models, MOST_VERSIONS, 1.0)
        in_time = self._machine.percentile / 100
        busy_ns = sum(
            model.share
            * (
                in_time * least_core_ns(profile, cores, model.qos_ns)
                + (1 - in_time) * least_core_ns(profile, cores, math.inf)
            )
            for model, profile in zip(facts.models, profiles, strict=True)
        )
        return cores * 1e9 / busy_ns

    def memory_qps(self, facts: WorkloadFacts) -> float:
        """What memory would serve if each query ran on the cores that it needs, all in use."""
        profiles = self._machine.profiles(facts.models, MOST_VERSIONS, 1.0)
        read_bytes = sum(
            model.share * float(_read_bytes(profile, self._machine.machine.processor.cores))
            for model, profile in zip(facts.models, profiles, strict=True)
        )
        return self._machine.machine.memory.total_gbps * 1e9 / max(read_bytes, 1.0)

    def _highest(
        self, facts: WorkloadFacts, setting: Setting, seed: int, known_qps: float | None
    ) -> float:
        begin = _BEGIN_ONE_AT_A_TIME if setting.policy == "prema" else _BEGIN
        begin_qps = known_qps or begin * self.ideal_qps(facts, setting)
        return highest_qps(
            lambda rate_qps: self._run(facts, setting, rate_qps, seed, "search").trial.met,
            begin_qps,
            step=FIRST_STEP if known_qps is None else NEXT_STEP,
            tolerance=self._plan.tolerance,
        )

    def _run(
        self, facts: WorkloadFacts, setting: Setting, rate_qps: float, seed: int, purpose: Purpose
    ) -> Run:
        run = self._machine.run(
            facts, setting, rate_qps=rate_qps, queries=self._plan.queries_of(facts), seed=seed
        )
        return replace(run, trial=replace(run.trial, purpose=purpose))


def _read_bytes(profile: sched.ModelProfile, total_cores: int) -> int:
    """What a run by first versions reads on the fewest cores for its target, all others in use."""
    table = np.array(profile.layer_bytes).reshape(-1, len(profile.cores), profile.levels)
    first = np.cumsum([0, *profile.variants[:-1]])
    count = profile.cores.index(sched.needed_cores(profile, total_cores).cores)
    return int(table[first, count, FULL_LEVEL].sum())


def median_qps(capacity: Capacity) -> float:
    """Of the seeds."""
    return statistics.median(capacity.qps)
