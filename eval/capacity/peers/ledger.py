"""What becomes of a run's queries, as whoever sends them finds out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from veltair.eval.capacity.system import FAILED
from veltair.eval.outcomes import Outcomes
from veltair.runtime.simulate.run import QUEUE_FULL

if TYPE_CHECKING:
    from veltair.eval.capacity.system import Observed
    from veltair.eval.outcomes import Allowance
    from veltair.runtime.simulate.arrivals import Arrivals

# Queries of a model that may wait or run at once; more are refused. The same as our server's slots:
# a queue without an end would only make runs beyond the capacity last longer.
WAITING = 64


class Ledger:
    """The queries of one run.

    Attributes:
        due_ns: when each arrives, on the clock of `time.monotonic_ns`.
        model: index of the model of each.
        left: queries that have neither ended nor been refused.
    """

    def __init__(self, arrivals: Arrivals, allowance: Allowance | None = None) -> None:
        """Lets the run begin in a moment."""
        self._outcomes = Outcomes(arrivals, allowance=allowance)
        self.due_ns = self._outcomes.due_ns
        self.model = self._outcomes.model
        self.left = len(self.due_ns)
        self._waiting = [0] * (max(self.model, default=0) + 1)

    @property
    def is_lost(self) -> bool:
        """Whether more are late than the allowance has."""
        return self._outcomes.is_lost

    def cut(self, sent: int) -> None:
        """Notes that only so many of the queries, the first ones, have been or will be sent."""
        self._outcomes.cut(sent)
        self.left -= len(self.due_ns) - sent

    def admit(self, query: int) -> bool:
        """Notes that a query is sent now, or refused; returns whether it is to be sent."""
        model = self.model[query]
        self._outcomes.submitted(query)
        if self._waiting[model] >= WAITING:
            self._outcomes.refused(query, QUEUE_FULL)
            self.left -= 1
            return False
        self._waiting[model] += 1
        return True

    def sent(self, query: int) -> None:
        """Notes that a query has been handed over."""
        self._outcomes.submitted(query)

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
        if error:
            self._outcomes.unanswered(query, end_ns, FAILED, error)
        else:
            self._outcomes.answered(query, start_ns, end_ns)

    def observed(self, busy_ns: int) -> Observed:
        """Returns what the run has shown, once none is left."""
        return self._outcomes.observed(busy_ns)
