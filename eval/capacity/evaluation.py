"""An evaluation: settings, capacities, loads and solo latencies of every system and workload.

Systems take turns at every stage, so that what the machine does for minutes at a time meets all of
them. A system that fails is recorded with its log and the rest goes on.
"""

from __future__ import annotations

import traceback
from functools import partial
from typing import TYPE_CHECKING, Any

from veltair.eval.capacity.entry import Entry, error_line
from veltair.eval.capacity.result import Capacity, Result, SystemFacts
from veltair.eval.capacity.search import guess_qps
from veltair.eval.capacity.stages import GRID_PART, RECORDED_S, Plan, Stages
from veltair.eval.capacity.system import Recorded
from veltair.eval.capacity.workloads import planned_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from veltair.eval.capacity.progress import EvalProgress
    from veltair.eval.capacity.system import System
    from veltair.eval.capacity.trials import Case, Trials

    Step = tuple[Entry, str, Callable[[Entry], str]]

LOGS = "logs"
START_S = 8.0  # of a system, its warm-up and its end, for the estimate
FIRST_TRIALS, NEXT_TRIALS, GRID_TRIALS = 7, 4, 3  # of a search, or of a setting: likewise

_NS_PER_S = 1e9


class Evaluation:
    """Runs all stages; `result` says at any time what they have found.

    Attributes:
        missing: why each system that can't run here can't, by name.
    """

    def __init__(
        self,
        plan: Plan,
        cases: Sequence[Case],
        systems: Sequence[System],
        trials: Trials,
        *,
        cores: int,
        folder: Path,
    ) -> None:
        """Finds out which systems are here; starts none.

        Args:
            plan: what to measure.
            cases: workloads.
            systems: that are compared; at most one is of the kind `null`.
            trials: measures.
            cores: that the systems may use.
            folder: of the results: gets the logs of failed systems.
        """
        self.missing = {each.name: why for each in systems if (why := each.missing())}
        self._plan = plan
        self._cases = cases
        self._systems = systems
        self._trials = trials
        self._cores = cores
        self._folder = folder
        self._stages = Stages(plan, trials, cores)
        self._entries = [
            Entry(
                case=case,
                system=system,
                setting=system.settings(cores)[0],
                guess_qps=guess_qps(case.facts, plan.lowest_qps),
                lowest_qps=plan.lowest_qps,
            )
            for case in cases
            for system in systems
            if system.name not in self.missing
        ]

    def stages_s(self) -> dict[str, float]:
        """Returns about how long each stage takes."""
        found: dict[str, float] = {}
        for case in self._cases:
            begin_qps = guess_qps(case.facts, self._plan.lowest_qps)
            run_s = 1 + planned_seconds(case.facts, case.run, begin_qps)
            solo_s = sum(each.qos_ns for each in case.facts.models) / _NS_PER_S
            for entry, stage, _ in self._steps(case):
                settings = len(entry.system.settings(self._cores))
                found[entry.stage(stage)] = {
                    "settings": settings * (START_S + GRID_TRIALS * GRID_PART * run_s),
                    "search 0": START_S + FIRST_TRIALS * run_s,
                    "loads": START_S + (2 + len(self._plan.loads)) * run_s,
                    "solo": self._plan.solo_queries * solo_s,
                    "gantt": START_S + RECORDED_S,
                    "null": 2 * run_s,
                }.get(stage, START_S + NEXT_TRIALS * run_s)
        return found

    def run(self, progress: EvalProgress, saved: Callable[[], None]) -> None:
        """Measures all that is not kept; `saved` is called after each stage."""
        try:
            for case in self._cases:
                for entry, stage, measure in self._steps(case):
                    self._run_stage(entry, stage, measure, progress)
                    saved()
        finally:
            self._trials.close()

    def result(self, origin: dict[str, Any], plan: dict[str, Any]) -> Result:
        """Returns what has been found so far."""
        return Result(
            origin=origin,
            simulated=False,
            cores=self._cores,
            percentile=self._plan.percentile,
            plan=plan,
            workloads=tuple(case.facts for case in self._cases),
            systems=tuple(self._facts(system) for system in self._systems),
            trials=tuple(self._trials.done),
            capacities=tuple(self._capacities()),
            solos=tuple(self._stages.solos.values()),
            gantts=tuple(self._stages.gantts),
        )

    def _steps(self, case: Case) -> Iterator[Step]:
        """The stages of a workload in their order; systems take turns."""
        entries = [each for each in self._entries if each.case is case]
        searched = [each for each in entries if each.system.kind != "null"]
        for entry in searched:
            if self._plan.grid and len(entry.system.settings(self._cores)) > 1:
                yield entry, "settings", self._stages.compare_settings
        for repetition in range(self._plan.repetitions):
            turn = repetition % max(len(searched), 1)
            for entry in (*searched[turn:], *searched[:turn]):
                yield entry, f"search {repetition}", partial(self._search, repetition)
        for entry in searched:
            yield entry, "loads", self._stages.run_loads
            yield entry, "solo", self._stages.run_solos
            if self._plan.gantt and isinstance(entry.system, Recorded):
                yield entry, "gantt", self._stages.record_second
        for entry in entries:
            if entry.system.kind == "null":
                yield entry, "null", partial(self._run_null, searched)

    def _search(self, repetition: int, entry: Entry) -> str:
        return self._stages.search(entry, repetition)

    def _run_null(self, others: Sequence[Entry], entry: Entry) -> str:
        rate_qps = max((each.qps for each in others), default=0.0)
        return self._stages.run_null(entry, rate_qps or entry.guess_qps)

    def _run_stage(
        self, entry: Entry, stage: str, measure: Callable[[Entry], str], progress: EvalProgress
    ) -> None:
        line = ""
        if not entry.error:
            progress.begin(entry.stage(stage))
            try:
                line = measure(entry)
            except Exception as error:  # each system has classes of its own
                self._fail(entry, error)
                line = f"failed: {entry.error}"
        prefix = f"{entry.case.facts.name}: {entry.system.name}: "
        progress.end(entry.stage(stage), prefix + line if line else "")

    def _fail(self, entry: Entry, error: Exception) -> None:
        """Keeps why a system failed, and what it said."""
        self._trials.close()
        path = self._folder / LOGS / f"{entry.case.facts.name}-{entry.system.name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        source = self._trials.log(entry.system, entry.case)
        said = source.read_bytes() if source.is_file() else b""
        path.write_bytes(said + "".join(traceback.format_exception(error)).encode())
        entry.error = error_line(error)
        entry.log = str(path.relative_to(self._folder))

    def _facts(self, system: System) -> SystemFacts:
        if system.name in self.missing:
            return SystemFacts(
                name=system.name, kind=system.kind, version="", error=self.missing[system.name]
            )
        failed = [each for each in self._entries if each.system is system and each.error]
        return SystemFacts(
            name=system.name,
            kind=system.kind,
            version=system.version(),
            error="; ".join(f"{each.case.facts.name}: {each.error}" for each in failed),
            log=failed[0].log if failed else "",
        )

    def _capacities(self) -> Iterator[Capacity]:
        for entry in self._entries:
            capacity = entry.capacity(self._plan.noise, self._plan.most_others)
            if capacity is not None:
                yield capacity
        for case in self._cases:
            for name, why in self.missing.items():
                yield Capacity(
                    workload=case.facts.name,
                    system=name,
                    setting="",
                    state="skipped",
                    qps=(),
                    note=why,
                )
