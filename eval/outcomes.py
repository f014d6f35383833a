"""What becomes of a run's queries, noted while it runs."""

from __future__ import annotations

import gc
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from veltair.eval.capacity.system import FAILED, Observed
from veltair.eval.precedence import precedence
from veltair.runtime.simulate.run import SERVED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from veltair.runtime.simulate.arrivals import Arrivals

ANSWER_S = 60.0  # without any answer, after which a run is given up
LEAD_NS = 100_000_000  # between the begin of a run and its time 0
_ERROR_CHARS = 300


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """How many queries of a run may be late before it is lost.

    Attributes:
        qos_ns: of each model, its target; 0: none.
        most_late: of each model: with one more, nothing that follows changes the verdict.
    """

    qos_ns: tuple[int, ...]
    most_late: tuple[int, ...]


class Outcomes:
    """The queries of one run; times are those of `time.monotonic_ns`.

    Attributes:
        due_ns: when each arrives.
        model: index of the model of each.
        is_lost: whether more are late than the run's allowance has.
    """

    def __init__(
        self,
        arrivals: Arrivals,
        zero_ns: int | None = None,
        allowance: Allowance | None = None,
    ) -> None:
        """Begins at `zero_ns`, or in a moment; without an allowance no run is lost."""
        count = len(arrivals.time_ns)
        self.is_lost = False
        self._allowance = allowance
        self._late = [0] * (len(allowance.most_late) if allowance else 0)
        self._sent = count
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
        self._note_late(query)

    def answered(self, query: int, start_ns: int, end_ns: int) -> None:
        """Notes an answer, and when its inference began; -1: not told."""
        self._end_ns[query] = end_ns - self._begin_ns
        if start_ns >= 0:
            self._start_ns[query] = start_ns - self._begin_ns
        if self._allowance is not None:
            qos_ns = self._allowance.qos_ns[self.model[query]]
            if 0 < qos_ns < end_ns - self.due_ns[query]:
                self._note_late(query)

    def unanswered(self, query: int, end_ns: int, outcome: int, error: str = "") -> None:
        """Notes that a query that was accepted ended without an answer, and why if it FAILED."""
        self._end_ns[query] = end_ns - self._begin_ns
        self._outcome[query] = outcome
        if outcome == FAILED:
            self._errors.setdefault(error[:_ERROR_CHARS])
        self._note_late(query)

    def cut(self, sent: int) -> None:
        """Notes that only so many of the queries, the first ones, have been or will be sent."""
        self._sent = sent

    def _note_late(self, query: int) -> None:
        if self._allowance is None:
            return
        model = self.model[query]
        self._late[model] += 1
        if self._late[model] > self._allowance.most_late[model]:
            self.is_lost = True

    def observed(self, busy_ns: int = -1) -> Observed:
        """Returns what the run has shown, once all queries that were sent have ended."""
        return Observed(
            submitted_ns=self._submitted_ns[: self._sent],
            start_ns=self._start_ns[: self._sent],
            end_ns=self._end_ns[: self._sent],
            outcome=self._outcome[: self._sent],
            errors=tuple(self._errors),
            busy_ns=busy_ns,
        )


@contextmanager
def undelayed() -> Iterator[None]:
    """Keeps out of the block what delays a load generator by milliseconds, as long as a query.

    That is garbage collection, and those that compute on the same processors.
    """
    gc.collect()
    gc.disable()
    try:
        with precedence():
            yield
    finally:
        gc.enable()
