"""A system whose capacity is known: one server, a constant service time, first come, first served.

It takes no time: a run is worked out, not waited for.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from veltair.eval.capacity.peers.log import LOG_FILE
from veltair.eval.capacity.result import ModelTarget, WorkloadFacts
from veltair.eval.capacity.system import Candidate, Observed
from veltair.eval.capacity.trials import Case
from veltair.eval.capacity.workloads import RunSection
from veltair.runtime.errors import VeltairError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from veltair.eval.outcomes import Allowance
    from veltair.runtime.simulate.arrivals import Arrivals

MS = 1_000_000


def capacity_qps(service_s: float, target_s: float, share: float) -> float:
    """Returns the rate at which a share of an M/D/1 queue's queries are in time.

    Reference: A. K. Erlang, 1909: the distribution of the wait for a constant service time.
    """

    def in_time(rate: float) -> float:
        wait_s = target_s - service_s
        terms = (
            (-rate * (wait_s - k * service_s)) ** k
            / math.factorial(k)
            * math.exp(rate * (wait_s - k * service_s))
            for k in range(math.floor(wait_s / service_s) + 1)
        )
        return (1 - rate * service_s) * sum(terms)

    low, high = 0.0, 1 / service_s
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if in_time(middle) >= share else (low, middle)
    return low


class QueueingSystem:
    """The system.

    Attributes:
        starts: how often it was started, with which settings.
        replays: how many runs it did.
    """

    def __init__(
        self,
        name: str,
        service_ms: float | dict[str, float],
        *,
        kind: str = "ours",
        missing: str | None = None,
        before: Callable[[int], None] = lambda _replay: None,
    ) -> None:
        """A system that needs `service_ms` for each query, at each of its settings.

        `before` is called with the number of each run before it.
        """
        self.name = name
        self.kind = kind
        self.starts: list[str] = []
        self.replays = 0
        self._service_ms = service_ms if isinstance(service_ms, dict) else {"only": service_ms}
        self._missing = missing
        self._before = before

    def missing(self) -> str | None:
        return self._missing

    def version(self) -> str:
        return "1"

    def settings(self, cores: int) -> Sequence[str]:
        return tuple(self._service_ms)

    @contextmanager
    def running(
        self, setting: str, models: Sequence[Candidate], cpus: Sequence[int], scratch: Path
    ) -> Iterator[QueueingSystem]:
        assert list(scratch.iterdir()) == []
        (scratch / LOG_FILE).write_text(f"{self.name} says hello\n")
        self.starts.append(setting)
        self._setting = setting
        yield self

    def replay(self, arrivals: Arrivals, allowance: Allowance | None = None) -> Observed:
        self._before(self.replays)
        self.replays += 1
        service_ns = round(self._service_ms[self._setting] * MS)
        # The n-th ends when all since the last idleness have been served.
        order = np.arange(len(arrivals.time_ns))
        start_ns = np.maximum.accumulate(arrivals.time_ns - order * service_ns) + order * service_ns
        count = _sent(arrivals, start_ns + service_ns, allowance)
        return Observed(
            submitted_ns=arrivals.time_ns[:count] + 1000,
            start_ns=start_ns[:count],
            end_ns=start_ns[:count] + service_ns,
            outcome=np.zeros(count, np.int64),
            errors=(),
            busy_ns=count * service_ns,
        )


def _sent(arrivals: Arrivals, end_ns: NDArray[np.int64], allowance: Allowance | None) -> int:
    """How many queries are sent until more are late than the allowance has."""
    sent = len(end_ns)
    for model, most in enumerate(allowance.most_late if allowance else ()):
        assert allowance is not None
        late = (arrivals.model == model) & (end_ns - arrivals.time_ns > allowance.qos_ns[model])
        late_ns = np.sort(end_ns[late])
        if len(late_ns) > most:
            sent = min(sent, int(np.searchsorted(arrivals.time_ns, late_ns[most])))
    return sent


def failing(after: int) -> Callable[[int], None]:
    """Fails the run of a number and all that follow."""

    def fail(replay: int) -> None:
        if replay >= after:
            raise VeltairError("the system has died")

    return fail


def failing_once() -> Callable[[int], None]:
    """Fails the first run and no other, though it has the same number."""
    failed: list[int] = []

    def fail(replay: int) -> None:
        if not failed:
            failed.append(replay)
            raise VeltairError("the setting does not work")

    return fail


def steady_case(*targets_ms: float, name: str = "steady", min_queries: int = 4000) -> Case:
    """A workload of models that are asked for equally often, in runs that tell the rate well."""
    targets = tuple(
        ModelTarget(name=f"model{index}", qos_ns=round(ms * MS), share=1 / len(targets_ms))
        for index, ms in enumerate(targets_ms)
    )
    return Case(
        facts=WorkloadFacts(name=name, models=targets, targets="given"),
        run=RunSection(min_seconds=1, min_queries=min_queries, max_seconds=86_400),
        candidates=tuple(
            Candidate(
                name=target.name,
                onnx=None,
                artifact=None,
                shapes={},
                dtypes={},
                qos_ns=target.qos_ns,
            )
            for target in targets
        ),
    )
