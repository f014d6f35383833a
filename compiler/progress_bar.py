"""What a command shows while it works: a progress bar, and warnings a line each."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from veltair.compiler.search.log import DamagedLogWarning


@contextlib.contextmanager
def told_warnings() -> Iterator[None]:
    """Prints warnings of tuning logs on stderr, a line each, when the block ends."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DamagedLogWarning)
        try:
            yield
        finally:
            for each in caught:
                if issubclass(each.category, DamagedLogWarning):
                    print(f"veltair: warning: {each.message}", file=sys.stderr)


class Bar:
    """A progress bar for each stage; a `Progress`, for the length of a `with`."""

    def __init__(self, console: Console) -> None:
        """Draws on `console`."""
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[what]}"),
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
