"""What disturbs while interference is measured: bubbles, or evictors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from veltair.runtime.errors import InputError

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

CoRunner = Literal["bubbles", "evictors"]
BUBBLES: CoRunner = "bubbles"

CoRunnerOption = Annotated[
    str,
    typer.Option(
        "--co-runner",
        help="What disturbs: bubbles, which move memory through the shared cache, or evictors, "
        "which throw weights out of all caches, for where bubbles can't.",
    ),
]


class CoRunners(ABC):
    """Threads that disturb, one on each of some processors, for the length of a `with`.

    They are threads of this process, so they end with it, however it ends. Each keeps its processor
    busy while its rate isn't 0: whatever is to be measured beside them runs on others.
    """

    def __enter__(self) -> Self:
        """Returns itself; they are at rest."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends them."""
        self.end()

    @abstractmethod
    def end(self) -> None:
        """Ends the threads and gives their memory back."""

    @abstractmethod
    def set_rate(self, rate: int) -> None:
        """Sets the rate of each, in its own unit; 0 rests."""

    @abstractmethod
    def highest_rate(self) -> int:
        """Returns the highest rate that all reach; all rest after it."""


def choose_co_runner(wanted: str) -> CoRunner:
    """Returns the kind of that name.

    Raises:
        InputError: there is none.
    """
    for kind in get_args(CoRunner):
        if kind == wanted:
            chosen: CoRunner = kind
            return chosen
    raise InputError(f"--co-runner {wanted}: unknown; choose {' or '.join(get_args(CoRunner))}")
