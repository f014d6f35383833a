"""How far an evaluation is, and how long it still takes."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from veltair.eval.page.text import number_text
from veltair.runtime.progress_bar import ShortenedColumn

if TYPE_CHECKING:
    from rich.console import Console

    from veltair.eval.capacity.result import Trial


class Estimate:
    """The time left, from what stages were thought to take and what they took."""

    def __init__(self, stages_s: dict[str, float]) -> None:
        """Takes the planned time of each stage."""
        self._left_s = dict(stages_s)
        self._total_s = sum(stages_s.values())
        self._planned_s = 0.0  # of the stages that were measured
        self._taken_s = 0.0

    def end(self, stage: str, taken_s: float, *, measured: bool) -> None:
        """Notes a stage's end; where all of it was kept, it says nothing of the pace."""
        planned_s = self._left_s.pop(stage, 0.0)
        if measured:
            self._planned_s += planned_s
            self._taken_s += taken_s

    @property
    def share(self) -> float:
        """Of the evaluation, that is done."""
        return 1 - sum(self._left_s.values()) / self._total_s if self._total_s else 1.0

    @property
    def left_s(self) -> float:
        """Time that the other stages take, at the pace of those that were measured."""
        pace = self._taken_s / self._planned_s if self._planned_s else 1.0
        return sum(self._left_s.values()) * pace


class EvalProgress:
    """A bar with the time left, for the length of a `with`; a line for each stage above it."""

    def __init__(self, console: Console, stages_s: dict[str, float]) -> None:
        """Takes the planned time of each stage."""
        self._estimate = Estimate(stages_s)
        self._progress = Progress(
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]} left"),
            ShortenedColumn("what"),
            console=console,
            expand=True,
        )
        self._task = self._progress.add_task("", total=1.0, what="", left=_text(self.left_s))
        self._begun_s = time.monotonic()
        self._measured = False

    @property
    def left_s(self) -> float:
        """Time that is left, as far as is known."""
        return self._estimate.left_s

    def __enter__(self) -> EvalProgress:
        """Begins to draw."""
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leaves what was drawn."""
        self._progress.stop()

    def begin(self, what: str) -> None:
        """Says which stage has begun."""
        self._begun_s = time.monotonic()
        self._measured = False
        self._progress.update(self._task, what=what)

    def trial(self, trial: Trial, kept: bool) -> None:
        """Says which trial has ended, and notes whether it was kept."""
        self._measured |= not kept
        met = "in time" if trial.met else "late"
        what = f"{trial.workload}: {trial.system}: {number_text(trial.rate_qps)} queries/s {met}"
        self._progress.update(self._task, what=what)

    def end(self, stage: str, line: str) -> None:
        """Says that a stage has ended, and what it found; empty: nothing."""
        taken_s = time.monotonic() - self._begun_s
        self._estimate.end(stage, taken_s, measured=self._measured)
        self._progress.update(
            self._task, completed=self._estimate.share, left=_text(self.left_s), what=""
        )
        if line:
            say(self._progress.console, line)


def say(console: Console, line: str) -> None:
    """Prints a line as it is, however long it is and whatever is in it."""
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def _text(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
