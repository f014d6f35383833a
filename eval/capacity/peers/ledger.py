"""What becomes of a run's queries, as whoever sends them finds out."""

from __future__ import annotations

import gc
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from veltair.eval.capacity.system import FAILED, Observed
from veltair.runtime.simulate.run import QUEUE_FULL, SERVED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from veltair.runtime.simulate.arrivals import Arrivals

# Queries of a model that may wait or run at once; more are refused. The same as our server's slots:
# a queue without an end would only make runs beyond the capacity last longer.
WAITING = 64
LEAD_NS = 100_000_000  # between the making and the run's time 0
_ERROR_CHARS = 300


class Ledger:
    """The queries of one run.

    Attributes:
        due_ns: when each arrives, on the clock of `time.monotonic_ns`.
        model: index of the model of each.
        left: queries that have neither ended nor been refused.
    """

    def __init__(self, arrivals: Arrivals) -> None:
        """Lets the run begin in a moment."""
        count = len(arrivals.time_ns)
        self._begin_ns = time.monotonic_ns() + LEAD_NS
        self.due_ns: list[int] = (arrivals.time_ns + self._begin_ns).tolist()
        self.model: list[int] = arrivals.model.tolist()
        self.left = count
        self._waiting = [0] * (max(self.model, default=0) + 1)
        self._errors: dict[str, None] = {}
        self._submitted_ns = np.zeros(count, np.int64)
        self._start_ns = np.full(count, -1, np.int64)
        self._end_ns = np.zeros(count, np.int64)
        self._outcome = np.full(count, SERVED, np.int64)

    def admit(self, query: int) -> bool:
        """Notes that a query is sent now, or refused; returns whether it is to be sent."""
        model = self.model[query]
        now_ns = time.monotonic_ns() - self._begin_ns
        self._submitted_ns[query] = now_ns
        if self._waiting[model] >= WAITING:
            self._outcome[query] = QUEUE_FULL
            self._end_ns[query] = now_ns
            self.left -= 1
            return False
        self._waiting[model] += 1
        return True

    def sent(self, query: int) -> None:
        """Notes that a query has been handed over."""
        self._submitted_ns[query] = time.monotonic_ns() - self._begin_ns

    def ended(self, query: int, start_ns: int, end_ns: int, error: str = "") -> None:
        """Notes the end of a query.

        Args:
            query: its number.
            start_ns: when its inference began, as `time.monotonic_ns`; -1: not told.
            end_ns: when its answer was there.
            error: why it failed; empty: it was answered.
        """
        self.left -= 1
        self._waiting[self.model[query]] -= 1
        self._end_ns[query] = end_ns - self._begin_ns
        if error:
            self._outcome[query] = FAILED
            self._errors.setdefault(error[:_ERROR_CHARS])
        elif start_ns >= 0:
            self._start_ns[query] = start_ns - self._begin_ns

    def observed(self, busy_ns: int) -> Observed:
        """Returns what the run has shown, once none is left."""
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
