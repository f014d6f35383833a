"""What an evaluation found, by workload and system: medians, spreads, and who is ahead."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from veltair.eval.capacity.result import MEASURED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from veltair.eval.capacity.result import Capacity, Result, Solo, SystemFacts, Trial

# Other papers' scheduling on our kernels: what a result without peers is compared with.
LAYER_WISE = "layer"
BASELINES = (LAYER_WISE, "prema")
UNDER_LOAD = ("at_half", "at_capacity", "sweep")  # purposes of runs with figures of a load
NOT_RUN = "not run"


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Several measurements of the same.

    Attributes:
        median: of them.
        least: of them.
        most: of them.
        runs: how many.
    """

    median: float
    least: float
    most: float
    runs: int


def spread(values: Iterable[float | None]) -> Spread | None:
    """Returns the spread of those that are numbers; None where there are none."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return None
    return Spread(
        median=float(np.median(known)), least=min(known), most=max(known), runs=len(known)
    )


def median(values: Iterable[float | None]) -> float | None:
    """Returns the median of those that are numbers."""
    found = spread(values)
    return None if found is None else found.median


@dataclass(frozen=True)
class Findings:
    """A result, by what is asked of it.

    Attributes:
        result: as it was read.
    """

    result: Result

    @cached_property
    def systems(self) -> dict[str, SystemFacts]:
        """By name, in the result's order."""
        return {each.name: each for each in self.result.systems}

    @cached_property
    def compared(self) -> tuple[str, ...]:
        """Systems whose capacities are of interest: the null server's is the driver's."""
        return tuple(name for name, each in self.systems.items() if each.kind != "null")

    @cached_property
    def workloads(self) -> tuple[str, ...]:
        """Names, in the result's order."""
        return tuple(each.name for each in self.result.workloads)

    @cached_property
    def models(self) -> tuple[str, ...]:
        """Of all workloads, each once."""
        named = (model.name for each in self.result.workloads for model in each.models)
        return tuple(dict.fromkeys(named))

    @cached_property
    def rivals(self) -> tuple[str, ...]:
        """Whom ours are compared with: the peers, or the baselines where there are none."""
        peers = tuple(n for n in self.compared if self.systems[n].kind == "peer")
        return peers or tuple(name for name in self.compared if name in BASELINES)

    @property
    def are_baselines(self) -> bool:
        """Whether the rivals run on our kernels, for want of peers."""
        return all(self.systems[name].kind != "peer" for name in self.rivals)

    @cached_property
    def ours(self) -> tuple[str, ...]:
        """All that are compared and no rivals."""
        return tuple(name for name in self.compared if name not in self.rivals)

    @cached_property
    def _capacities(self) -> dict[tuple[str, str], Capacity]:
        return {(each.workload, each.system): each for each in self.result.capacities}

    @cached_property
    def _trials(self) -> dict[tuple[str, str, str], list[Trial]]:
        found: dict[tuple[str, str, str], list[Trial]] = {}
        for trial in self.result.trials:
            found.setdefault((trial.workload, trial.system, trial.purpose), []).append(trial)
        return found

    @cached_property
    def _solos(self) -> dict[tuple[str, str], Solo]:
        return {(each.model, each.system): each for each in self.result.solos}

    @property
    def cores(self) -> int | None:
        """That the systems shared; None where the result doesn't say."""
        if self.result.cores:
            return self.result.cores
        machine = self.result.origin.get("machine")
        found = machine.get("cores") if isinstance(machine, dict) else None
        return found if isinstance(found, int) and found > 0 else None

    def capacity(self, workload: str, system: str) -> Capacity | None:
        """What the search ended in; None where it hasn't run."""
        return self._capacities.get((workload, system))

    def state(self, workload: str, system: str) -> str:
        """Of the search, as readers are told it."""
        found = self.capacity(workload, system)
        return NOT_RUN if found is None else found.state

    def system_state(self, system: str) -> str:
        """`ran`, `ran in part`, or why it did not."""
        states = {self.state(workload, system) for workload in self.workloads}
        if any(trial.system == system for trial in self.result.trials):
            whole = states <= MEASURED | {"unmeetable", NOT_RUN}
            return "ran" if whole and not self.systems[system].error else "ran in part"
        return next((each for each in ("failed", "skipped") if each in states), NOT_RUN)

    def why(self, workload: str, system: str) -> str:
        """What is said of a capacity: its note, else what is wrong with the system."""
        found = self.capacity(workload, system)
        return found.note if found and found.note else self.systems[system].error

    def qps(self, workload: str, system: str) -> Spread | None:
        """The capacity, where a search found one, decisive or not; never of another state."""
        found = self.capacity(workload, system)
        if found is None or found.state not in MEASURED:
            return None
        return spread(found.qps)

    def trials(self, workload: str, system: str, purpose: str) -> list[Trial]:
        """Runs of a purpose, in the order of their measurement."""
        return self._trials.get((workload, system, purpose), [])

    def load(self, trial: Trial) -> float | None:
        """The rate over the system's own capacity."""
        capacity = self.qps(trial.workload, trial.system)
        return trial.rate_qps / capacity.median if capacity and capacity.median > 0 else None

    def worst(self, trial: Trial) -> tuple[str, float] | None:
        """The model with the least share of its queries in time, and that share."""
        by_model = {name: f.satisfied_share for name, f in trial.figures.items() if name != "all"}
        known = {name: share for name, share in by_model.items() if math.isfinite(share)}
        return min(known.items(), key=lambda item: item[1]) if known else None

    def solo(self, model: str, system: str) -> Solo | None:
        """A model alone on all cores."""
        return self._solos.get((model, system))

    def over_solo(self, workload: str, system: str, purpose: str, model: str) -> float | None:
        """Mean latency over the latency of the same system alone: Fig. 13."""
        solo = self.solo(model, system)
        trials = self.trials(workload, system, purpose)
        mean_ms = median(t.figures[model].mean_ms for t in trials if model in t.figures)
        if solo is None or mean_ms is None or not solo.mean_ms > 0:
            return None
        return mean_ms / solo.mean_ms

    def mean_over_solo(self, workload: str, system: str, purpose: str) -> float | None:
        """The mean of all models', as Fig. 13's average; None where one of them is unknown."""
        models = [m.name for w in self.result.workloads if w.name == workload for m in w.models]
        each = [self.over_solo(workload, system, purpose, model) for model in models]
        known = [value for value in each if value is not None]
        return sum(known) / len(known) if known and len(known) == len(each) else None

    def core_ms(self, trial: Trial) -> float | None:
        """Time of cores that a served query took."""
        whole = trial.figures.get("all")
        if trial.core_usage is None or self.cores is None or whole is None:
            return None
        served_qps = whole.offered_qps * whole.served / whole.queries if whole.queries else 0.0
        return 1e3 * trial.core_usage * self.cores / served_qps if served_qps > 0 else None

    def over_layer_wise(self, trial: Trial) -> float | None:
        """How much more core time a query takes than by layers at the same load: Fig. 14a.

        The layer-wise cost is interpolated between the loads that it was run at, and not beyond.
        """
        load, cost = self.load(trial), self.core_ms(trial)
        line = self._layer_wise.get(trial.workload, ())
        if load is None or cost is None or not line or not line[0][0] <= load <= line[-1][0]:
            return None
        loads, costs = [each for each, _ in line], [each for _, each in line]
        return cost / float(np.interp(load, loads, costs)) - 1

    @cached_property
    def _layer_wise(self) -> dict[str, list[tuple[float, float]]]:
        """Of each workload: load and core time a query, by load."""
        lines: dict[str, list[tuple[float, float]]] = {}
        for trial in self.result.trials:
            load, cost = self.load(trial), self.core_ms(trial)
            wanted = trial.system == LAYER_WISE and trial.purpose in UNDER_LOAD
            if wanted and load is not None and cost is not None:
                lines.setdefault(trial.workload, []).append((load, cost))
        return {workload: sorted(line) for workload, line in lines.items()}
