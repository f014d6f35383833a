"""What is measured of one system with one workload, stage by stage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from veltair.eval.capacity.entry import error_line
from veltair.eval.capacity.ours import Ours
from veltair.eval.capacity.result import Gantt, Solo
from veltair.eval.capacity.search import (
    FIRST_STEP,
    LOWEST_QPS,
    NEXT_STEP,
    allowance,
    highest_qps,
    too_few_to_say,
)
from veltair.eval.capacity.trials import Ask
from veltair.eval.capacity.workloads import changed_run, poisson
from veltair.eval.page.text import number_text
from veltair.runtime.simulate.arrivals import Arrivals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from veltair.eval.capacity.entry import Entry
    from veltair.eval.capacity.result import Purpose, Trial
    from veltair.eval.capacity.trials import Trials
    from veltair.eval.capacity.workloads import RunSection
    from veltair.eval.latency_figures import Figures

SOLO_IDLE_NS = 50_000_000  # between a solo query's target and the next one
RECORDED_S = 3.0  # of which the second one is kept
GRID_PART = 0.4  # of a run's length, while settings are compared
GRID_GAIN = 1.05  # by which a setting has to be better than the best so far
LONGER = 4  # times as long may a run be that is to decide what a shorter one did not
LONGER_SEED = 1000  # added to that of the arrivals: they are others

_NS_PER_S = 1e9


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to measure, from the command line.

    Attributes:
        percentile: of each model's queries that must be within its target.
        repetitions: of the search.
        tolerance: how well each finds the rate.
        noise: widest spread of the repetitions, of their median, that still bears a decision.
        most_others: of the processors, that others may take likewise.
        lowest_qps: who doesn't keep it is asked for no lower rate, and can't meet the targets.
        loads: parts of the capacity to run at afterwards, beside 1 and 0.5.
        solo_queries: of each model, alone; 0: none.
        grid: whether settings are compared; otherwise each system's first one is taken.
        gantt: whether to take a second of the systems that can tell their blocks.
    """

    percentile: float = 95.0
    repetitions: int = 3
    tolerance: float = 0.04
    noise: float = 0.2
    most_others: float = 0.15
    lowest_qps: float = LOWEST_QPS
    loads: tuple[float, ...] = (0.25, 0.75, 1.25, 1.5)
    solo_queries: int = 20
    grid: bool = True
    gantt: bool = True


class Stages:
    """Each method is a stage: it measures, keeps what it found in the entry, and says it.

    Attributes:
        solos: by model and system.
        gantts: in the order of their measurement.
    """

    def __init__(self, plan: Plan, trials: Trials, cores: int) -> None:
        """Takes what to measure, and who measures it, on how many cores."""
        self.gantts: list[Gantt] = []
        self._ours_alone: dict[str, Figures] = {}
        self.solos: dict[tuple[str, str], Solo] = {}
        self._plan = plan
        self._trials = trials
        self._cores = cores

    def compare_settings(self, entry: Entry) -> str:
        """Finds by shorter runs where to begin; a setting that fails is no candidate."""
        best_qps = -1.0
        errors: list[Exception] = []
        for setting in entry.system.settings(self._cores):
            try:
                found = self._rate_of_setting(entry, setting, best_qps)
            except Exception as error:  # each system has classes of its own
                self._drop(entry, setting, error)
                errors.append(error)
                continue
            entry.candidates.append(setting)
            if found > best_qps:
                best_qps, entry.setting = found, setting
        if best_qps < 0:
            raise errors[0]
        entry.guess_qps = max(best_qps, entry.guess_qps)
        return f"best at {entry.setting} in short runs"

    def search(self, entry: Entry, repetition: int) -> str:
        """Finds the highest rate once, at the setting that is the best for it.

        Short runs compare settings badly, so each of the others is asked for more than the best one
        so far: no choice by chance is held against a system. Some keep a rate but not lower ones,
        after which caches are cold, so every search begins high and comes down.
        """
        setting = entry.setting
        found = self._highest(entry, setting, repetition)
        for other in [each for each in entry.candidates if each != entry.setting]:
            try:
                more = self._highest(entry, other, repetition, more_than_qps=found)
            except Exception as error:  # each system has classes of its own
                self._drop(entry, other, error)
                entry.candidates.remove(other)
                continue
            if more:
                setting, found = other, more
        entry.add(found, setting)
        kept = number_text(found) if found else f"below {self._plan.lowest_qps:g}"
        return f"{kept} queries/s at {setting}"

    def _drop(self, entry: Entry, setting: str, error: Exception) -> None:
        """A system that fails at one of its settings is measured at the others, and says so."""
        self._trials.close()
        entry.failed_settings[setting] = error_line(error)

    def _highest(
        self,
        entry: Entry,
        setting: str,
        repetition: int,
        *,
        more_than_qps: float = 0.0,
    ) -> float:
        return highest_qps(
            partial(self._holds, entry, setting, entry.case.run, "search", repetition),
            max(entry.qps, entry.guess_qps),
            step=NEXT_STEP if entry.qps > entry.guess_qps else FIRST_STEP,
            tolerance=self._plan.tolerance,
            lowest_qps=max(more_than_qps * GRID_GAIN, self._plan.lowest_qps),
        )

    def run_loads(self, entry: Entry) -> str:
        """Runs at the capacity, at half of it and at the plan's loads."""
        if not entry.qps:
            return ""
        loads: list[tuple[float, Purpose]] = [(1.0, "at_capacity"), (0.5, "at_half")]
        loads += [(load, "sweep") for load in self._plan.loads]
        return self._run_at(entry, entry.qps, loads)

    def run_null(self, entry: Entry, rate_qps: float) -> str:
        """Runs the load generator alone at a rate and at half of it."""
        return self._run_at(entry, rate_qps, [(1.0, "at_capacity"), (0.5, "at_half")])

    def record_second(self, entry: Entry) -> str:
        """Records a second at the capacity, for the chart of cores by time."""
        if not entry.qps:
            return ""
        facts = entry.case.facts
        run = changed_run(
            entry.case.run, min_seconds=RECORDED_S, min_queries=1, max_seconds=RECORDED_S
        )
        ask = Ask(
            system=entry.system,
            setting=entry.setting,
            case=entry.case,
            arrivals=poisson(facts, run, entry.qps, self._plan.repetitions),
            rate_qps=entry.qps,
            purpose="gantt",
            repetition=self._plan.repetitions,
        )
        bars = self._trials.second(ask)
        self.gantts.append(
            Gantt(workload=facts.name, system=entry.system.name, rate_qps=entry.qps, bars=bars)
        )
        return f"{len(bars)} blocks in a second"

    def run_solos(self, entry: Entry) -> str:
        """Measures each model alone, once for each system, in the first workload that has it."""
        lines = []
        for index, model in enumerate(entry.case.facts.models):
            key = (model.name, entry.system.name)
            if key in self.solos or not self._plan.solo_queries:
                continue
            figures = self._solo(entry, index)
            if figures.served:
                self.solos[key] = Solo(
                    model=model.name,
                    system=entry.system.name,
                    mean_ms=figures.mean_ms,
                    p50_ms=figures.p50_ms,
                )
                lines.append(f"{model.name} {figures.p50_ms:.1f} ms")
        return f"alone: {', '.join(lines)}" if lines else ""

    def _solo(self, entry: Entry, index: int) -> Figures:
        """Sends one model's queries so far apart that none meets another."""
        model = entry.case.facts.models[index]
        ours = isinstance(entry.system, Ours)
        if ours and model.name in self._ours_alone:
            return self._ours_alone[model.name]
        gap_ns = model.qos_ns + SOLO_IDLE_NS
        count = self._plan.solo_queries
        arrivals = Arrivals(
            time_ns=np.arange(count, dtype=np.int64) * gap_ns,
            model=np.full(count, index, np.int32),
        )
        ask = Ask(
            system=entry.system,
            setting=entry.setting,
            case=entry.case,
            arrivals=arrivals,
            rate_qps=_NS_PER_S / gap_ns,
            purpose="solo",
            repetition=0,
        )
        if not ours:
            return self._trials(ask).figures[model.name]
        found = self._trials(hurried(ask)).figures[model.name]
        self._ours_alone[model.name] = found
        return found

    def _rate_of_setting(self, entry: Entry, setting: str, best_qps: float) -> float:
        """Returns the rate that a setting keeps; 0 where it is no better than the best so far."""
        run = entry.case.run
        short = changed_run(
            run,
            min_seconds=run.min_seconds * GRID_PART,
            min_queries=max(round(run.min_queries * GRID_PART), 1),
            max_seconds=run.max_seconds * GRID_PART,
        )
        holds = partial(self._holds, entry, setting, short, "grid", 0)
        return highest_qps(
            holds,
            entry.guess_qps,
            step=FIRST_STEP,
            tolerance=2 * self._plan.tolerance,
            lowest_qps=max(best_qps * GRID_GAIN, self._plan.lowest_qps),
        )

    def _run_at(self, entry: Entry, rate_qps: float, loads: Sequence[tuple[float, Purpose]]) -> str:
        shares = []
        for load, purpose in sorted(loads):
            # Other arrivals than those by which the rate was found: it was chosen to suit those.
            trial = self._trial(
                entry,
                entry.setting,
                entry.case.run,
                purpose,
                self._plan.repetitions,
                load * rate_qps,
            )
            shares.append(f"{trial.figures['all'].satisfied_share:.1%} at {load:g}")
        return f"in time: {', '.join(shares)}"

    def _holds(
        self,
        entry: Entry,
        setting: str,
        run: RunSection,
        purpose: Purpose,
        repetition: int,
        rate_qps: float,
    ) -> bool:
        """Asks of a rate; a longer run decides where too few queries of a rare model were late."""
        trial = self._trial(entry, setting, run, purpose, repetition, rate_qps)
        if (
            trial.met
            or trial.cut
            or not too_few_to_say(trial.figures, run.min_queries, self._plan.percentile)
        ):
            return trial.met
        longer = changed_run(run, seed=run.seed + LONGER_SEED, max_seconds=run.max_seconds * LONGER)
        return self._trial(entry, setting, longer, purpose, repetition, rate_qps).met

    def _trial(
        self,
        entry: Entry,
        setting: str,
        run: RunSection,
        purpose: Purpose,
        repetition: int,
        rate_qps: float,
    ) -> Trial:
        """Runs at a rate; where only the verdict counts, no longer than it takes to know it."""
        facts = entry.case.facts
        arrivals = poisson(facts, run, rate_qps, repetition)
        may_be_cut = purpose in ("grid", "search")
        trial = self._trials(
            Ask(
                system=entry.system,
                setting=setting,
                case=entry.case,
                arrivals=arrivals,
                rate_qps=rate_qps,
                purpose=purpose,
                repetition=repetition,
                allowance=allowance(facts, arrivals, run.min_queries, self._plan.percentile)
                if may_be_cut
                else None,
            )
        )
        entry.failed_queries.update(trial.errors)
        if purpose == "search" and trial.disturbance is not None:
            entry.disturbed.append(trial.disturbance.others + trial.disturbance.steal)
        return trial


def hurried(ask: Ask) -> Ask:
    """Returns a trial of ours in which each query gets all cores.

    With time to spare our policies give a query fewer; with a target that no number of cores keeps,
    `model` gives it all. So it is for all of ours.
    """
    models = tuple(replace(model, qos_ns=1) for model in ask.case.candidates)
    return replace(ask, system=Ours("model"), case=replace(ask.case, candidates=models))
