"""A system's entry to a workload: what has been found of it so far."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from veltair.eval.capacity.result import Capacity
from veltair.eval.capacity.search import HIGHEST_QPS, NEXT_STEP, spread, state_of

if TYPE_CHECKING:
    from veltair.eval.capacity.result import State
    from veltair.eval.capacity.system import System
    from veltair.eval.capacity.trials import Case


@dataclass(kw_only=True)
class Entry:
    """One system with one workload.

    Attributes:
        case: the workload.
        system: that serves it.
        setting: its best, as far as is known: that of the most repetitions.
        guess_qps: where the search begins, unless it has found more.
        lowest_qps: no lower rate is asked for.
        candidates: settings at which it runs, of those compared; empty: they were not compared.
        failed_settings: why it failed at the others.
        found: highest rate of each repetition of the search; 0: none.
        found_at: the setting of each, by which it was found.
        error: why it failed; empty: it didn't.
        log: what it said then, within the folder of the results.
        failed_queries: texts of queries that it failed.
        disturbed: what others took of the processors in each trial of the search.
    """

    case: Case
    system: System
    setting: str
    guess_qps: float
    lowest_qps: float
    candidates: list[str] = field(default_factory=list)
    failed_settings: dict[str, str] = field(default_factory=dict)
    found: list[float] = field(default_factory=list)
    found_at: list[str] = field(default_factory=list)
    error: str = ""
    log: str = ""
    failed_queries: set[str] = field(default_factory=set)
    disturbed: list[float] = field(default_factory=list)

    @property
    def qps(self) -> float:
        """Median of the rates that were found; 0: none."""
        return statistics.median(self.found) if self.found else 0.0

    @property
    def others(self) -> float:
        """What others took of the processors in the median trial of the search."""
        return statistics.median(self.disturbed) if self.disturbed else 0.0

    def add(self, rate_qps: float, setting: str) -> None:
        """Adds what a repetition of the search has found."""
        self.found.append(rate_qps)
        self.found_at.append(setting)
        self.setting = statistics.mode(self.found_at)

    def stage(self, name: str) -> str:
        """Returns the name of one of its stages among all."""
        return f"{self.case.facts.name}/{self.system.name}/{name}"

    def capacity(self, noise: float, most_others: float) -> Capacity | None:
        """Returns what was found; None: nothing yet.

        Args:
            noise: as of `state_of`.
            most_others: of the processors, that others may take in the median trial of the search
                while it still bears a decision.
        """
        if not self.found and not self.error:
            return None
        state: State = "failed" if self.error else state_of(self.found, noise)
        if state != "failed" and self.others > most_others:
            state = "disturbed"
        return Capacity(
            workload=self.case.facts.name,
            system=self.system.name,
            setting=self.setting,
            state=state,
            qps=tuple(self.found) if state != "failed" and any(self.found) else (),
            note=self._note(state),
        )

    def _note(self, state: State) -> str:
        notes = []
        if state == "failed":
            notes.append(self.error)
        elif state == "unmeetable":
            notes.append(f"the targets aren't kept even at {self.lowest_qps:g} queries a second")
        elif state == "disturbed":
            notes.append(f"others used {self.others:.0%} of the processors")
        elif state == "noisy":
            notes.append(f"repetitions differ by {spread(self.found):.0%} of their median")
        elif max(self.found) * NEXT_STEP >= HIGHEST_QPS:
            notes.append("at least; the load generator sends no more")
        if len(set(self.found_at)) > 1:
            notes.append(f"by repetition, at {', '.join(self.found_at)}")
        if state != "failed":
            notes += [f"failed at {name}: {why}" for name, why in self.failed_settings.items()]
        if self.failed_queries:
            notes.append(f"failed queries: {'; '.join(sorted(self.failed_queries))}")
        return ". ".join(notes)


def error_line(error: Exception) -> str:
    """Returns what an error says, in one line."""
    return " ".join(str(error).split()) or type(error).__name__
