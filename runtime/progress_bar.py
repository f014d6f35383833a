"""What a command shows while it works: a progress bar."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column
from rich.text import Text


class ShortenedColumn(TextColumn):
    """A field of the task as it is, on one line; it gives way where not all columns have room."""

    def __init__(self, field: str) -> None:
        """Shows the task's `field`."""
        super().__init__(f"{{task.fields[{field}]}}", markup=False, table_column=Column())

    def render(self, task: Task) -> Text:
        """The text, with an ellipsis where it is cut."""
        text = super().render(task)
        text.no_wrap = True
        text.overflow = "ellipsis"
        return text


class Bar:
    """A progress bar for each stage; a `Progress`, for the length of a `with`."""

    def __init__(self, console: Console) -> None:
        """Draws on `console`."""
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            ShortenedColumn("what"),
            console=console,
            expand=True,
        )
        self._task = self._progress.add_task("starting", total=1, what="")
        self._total = 1

    def __enter__(self) -> Bar:
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

    def stage(self, name: str, total: int) -> None:
        """Finishes the stage before and begins a line for the new one."""
        self._progress.update(self._task, completed=self._total, what="")
        self._total = total
        self._task = self._progress.add_task(name, total=total, what="")

    def step(self, what: str) -> None:
        """Advances the stage."""
        self._progress.update(self._task, advance=1, what=what)
