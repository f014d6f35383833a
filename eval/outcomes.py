"""What becomes of a run's queries, noted while it runs."""

from __future__ import annotations

import gc
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from veltair.eval.capacity.system import FAILED, Observed
from veltair.runtime.simulate.run import SERVED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from veltair.runtime.simulate.arrivals import Arrivals

ANSWER_S = 60.0  # without any answer, after which a run is given up
LEAD_NS = 100_000_000  # between the begin of a run and its time 0
_ERROR_CHARS = 300


class Outcomes:
    """The queries of one run; times are those of `time.monotonic_ns`.

    Attributes:
        due_ns: when each arrives.
        model: index of the model of each.
    """

    def __init__(self, arrivals: Arrivals, zero_ns: int | None = None) -> None:
        """Begins at `zero_ns`, or in a moment."""
        count = len(arrivals.time_ns)
        self._begin_ns = zero_ns or time.monotonic_ns() + LEAD_NS
        self.due_ns: list[int] = (arrivals.time_ns + self._begin_ns).tolist()
        self.model: list[int] = arrivals.model.tolist()
        self._errors: dict[str, None] = {}
        self._submitted_ns = np.zeros(count, np.int64)
        self._start_ns = np.full(count, -1, np.int64)
        self._end_ns = np.zeros(count, np.int64)
        self._outcome = np.full(count, SERVED, np.int64)

    def submitted(self, query: int) -> None:
        """Notes that a query has been handed over, or was found to be refused."""
        self._submitted_ns[query] = time.monotonic_ns() - self._begin_ns

    def refused(self, query: int, outcome: int) -> None:
        """Notes that a query is refused at once, as REFUSED or QUEUE_FULL."""
        self._outcome[query] = outcome
        self._end_ns[query] = time.monotonic_ns() - self._begin_ns

    def answered(self, query: int, start_ns: int, end_ns: int) -> None:
        """Notes an answer, and when its inference began; -1: not told."""
        self._end_ns[query] = end_ns - self._begin_ns
        if start_ns >= 0:
            self._start_ns[query] = start_ns - self._begin_ns

    def unanswered(self, query: int, end_ns: int, outcome: int, error: str = "") -> None:
        """Notes that a query that was accepted ended without an answer, and why if it FAILED."""
        self._end_ns[query] = end_ns - self._begin_ns
        self._outcome[query] = outcome
        if outcome == FAILED:
            self._errors.setdefault(error[:_ERROR_CHARS])

    def observed(self, busy_ns: int = -1) -> Observed:
        """Returns what the run has shown, once all queries have ended."""
        return Observed(
            submitted_ns=self._submitted_ns,
            start_ns=self._start_ns,
            end_ns=self._end_ns,
            outcome=self._outcome,
            errors=tuple(self._errors),
            busy_ns=busy_ns,
        )


@contextmanager
def uncollected() -> Iterator[None]:
    """Keeps garbage collection out of the block: it takes milliseconds, as long as a query."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
