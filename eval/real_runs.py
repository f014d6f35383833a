"""Given arrivals through a real server, open loop, over the shared segment.

One thread sleeps until the next query is due, submits it, and collects what has ended meanwhile:
it never waits for an answer, so a slow server is not spared. Ends are the server's own times, so a
collection that comes late changes nothing. Inputs lie in the slots before the run begins.
"""

from __future__ import annotations

import itertools
import json
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from veltair.eval.capacity.system import FAILED
from veltair.eval.outcomes import ANSWER_S, Outcomes, undelayed
from veltair.eval.served import served
from veltair.runtime.client import LocalClient
from veltair.runtime.errors import RefusedError, VeltairError
from veltair.runtime.files import write_whole
from veltair.runtime.simulate.run import QUEUE_FULL, REFUSED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from veltair.eval.capacity.system import Observed
    from veltair.eval.outcomes import Allowance
    from veltair.eval.served import Served
    from veltair.runtime.client import Completion, Slot
    from veltair.runtime.simulate.arrivals import Arrivals

_NS_PER_S = 1_000_000_000
_AT_ONCE = 64  # completions a collection
_FAR_S = 3_600
_ROUNDS = 3
_OTHER = 1  # tag of what runs beside


@dataclass(frozen=True, kw_only=True)
class ServerPlan:
    """How a server is started.

    Attributes:
        repository: folder of artifacts.
        policy: of scheduling.
        workers: worker ranks.
        late_percent: how many of a model's queries may be late.
        slots: a model; a query that finds none is refused.
        admission: whether the server refuses at once what it predicts to be late.
        cores: processors to serve on; empty: all.
        record: file that gets each decision; None: none are recorded.
        log: file that gets what the server says; None: it goes where ours does.
    """

    repository: Path
    policy: str
    workers: int
    late_percent: int = 5
    slots: int = 64
    admission: bool = False
    cores: tuple[int, ...] = ()
    record: Path | None = None
    log: Path | None = None

    def config(self) -> str:
        """Returns the `serve.toml`."""
        record = (
            "" if self.record is None else f"[server]\nrecord = {json.dumps(str(self.record))}\n"
        )
        return (
            f'{record}[scheduling]\npolicy = "{self.policy}"\n'
            f"late_percent = {self.late_percent}\n"
            f"[queue]\nmax_queries = {self.slots}\nadmission = {str(self.admission).lower()}\n"
            f"[engine]\ncores = {list(self.cores)}\n"
        )


class Client(Protocol):
    """What a replay asks of a client, as `LocalClient` has it."""

    def allocate(self, model: str) -> Slot:
        """Takes a free slot of a model."""

    def submit(self, slot: Slot, *, arrival_ns: int | None = None, tag: int = 0) -> None:
        """Hands the filled slot over."""

    def poll(self, limit: int = 1024) -> Sequence[Completion]:
        """Returns the completions that are there now."""

    def wait(self, timeout_s: float | None = None) -> Sequence[Completion]:
        """Waits for at least one completion."""


@contextmanager
def running(plan: ServerPlan, scratch: Path) -> Iterator[LocalClient]:
    """Serves until the block ends; yields a client whose slots have inputs.

    Raises:
        VeltairError: the server does not run, or not with this configuration.
    """
    with running_server(plan, scratch) as (client, _):
        yield client


@contextmanager
def running_server(plan: ServerPlan, scratch: Path) -> Iterator[tuple[LocalClient, Served]]:
    """Serves as `running` does; yields the server too."""
    config = scratch / "serve.toml"
    write_whole(config, plan.config().encode())
    with (
        served(plan.repository, workers=plan.workers, config=config, log=plan.log) as server,
        LocalClient.attach(server.address) as client,
    ):
        prefill(client)
        for model in client.models():
            for _ in range(_ROUNDS):  # each worker meets each model, most probably
                closed_loop(client, {model.name: min(plan.workers, model.slots)}, plan.workers)
        yield client, server


def prefill(client: LocalClient, seed: int = 0) -> None:
    """Writes an input into every slot; the server only reads inputs, so they stay.

    Floats are random; integers are 0, which is valid wherever they are indices, as token ids are.
    """
    random = np.random.default_rng(seed)
    for model in client.models():
        slots = [client.allocate(model.name) for _ in range(model.slots)]
        for slot in slots:
            for values in slot.inputs.values():
                floating = np.issubdtype(values.dtype, np.floating)
                values[...] = random.standard_normal(values.shape) if floating else 0
            slot.release()


def replay(
    client: Client,
    names: Sequence[str],
    arrivals: Arrivals,
    zero_ns: int | None = None,
    allowance: Allowance | None = None,
) -> Observed:
    """Submits every query when it is due and waits for the last one's end.

    Args:
        client: attached, its slots filled.
        names: of the models, by index.
        arrivals: when, and which model.
        zero_ns: time 0 of the run on the monotonic clock, soon; None: as soon as can be.
        allowance: as of `Running.replay`.

    Raises:
        VeltairError: the server died, or a query was not answered.
    """
    run = _Replay(client, names, Outcomes(arrivals, zero_ns, allowance))
    with undelayed():
        run.send()
        run.finish()
    return run.outcomes.observed()


def closed_loop(
    client: LocalClient, in_flight: dict[str, int], queries: int, *, pause_ns: int = 0
) -> dict[str, list[tuple[int, int]]]:
    """Keeps some queries of each model in flight until each model has had `queries` ends.

    Args:
        client: attached, its slots filled.
        in_flight: of each model.
        queries: ends of each model that are counted, at least.
        pause_ns: before each next query, on average (exponentially distributed, the same each
            time); with one query in flight, the idleness between queries.

    Returns:
        By model, (queue_ns, compute_ns) of each, in the order of their ends.

    Raises:
        VeltairError: one failed or was not answered.
    """
    found: dict[str, list[tuple[int, int]]] = {name: [] for name in in_flight}
    pauses = np.random.default_rng(0)
    for name, count in in_flight.items():
        for _ in range(count):
            _submit(client, name)
    flying = sum(in_flight.values())
    while flying:
        for completion in _ends(client):
            name = completion.slot.model
            completion.slot.release()
            found[name].append((completion.queue_ns, completion.compute_ns))
            if all(len(times) >= queries for times in found.values()):
                flying -= 1
                continue
            if pause_ns:
                time.sleep(pauses.exponential(pause_ns) / _NS_PER_S)
            _submit(client, name)
    return found


def one_at_a_time(
    client: LocalClient, order: Sequence[str], *, load: float, beside: int = 0
) -> list[tuple[int, int]]:
    """Sends one query after another, while others are kept in flight.

    Args:
        client: attached, its slots filled.
        order: each query's model.
        load: share of the time for which one of these is in flight; they pause after each for a
            time that is distributed exponentially, the same each time.
        beside: others that are in flight meanwhile; their models are those of `order`, in turns.

    Returns:
        (monotonic time at which it was sent, compute_ns) of each, in that order; ns.

    Raises:
        VeltairError: one failed or was not answered.
    """
    pauses = np.random.default_rng(0).exponential(1 / load - 1, len(order))
    others = itertools.cycle(order)
    found = []
    for _ in range(beside):
        _submit(client, next(others), tag=_OTHER)
    for name, pause in zip(order, pauses, strict=True):
        begin_ns = time.monotonic_ns()
        _submit(client, name)
        compute_ns = None
        while compute_ns is None:
            for completion in _ends(client):
                completion.slot.release()
                if completion.tag == _OTHER:
                    _submit(client, next(others), tag=_OTHER)
                else:
                    compute_ns = completion.compute_ns
        found.append((begin_ns, compute_ns))
        until_ns = time.monotonic_ns() + round(compute_ns * pause)
        while (left_ns := until_ns - time.monotonic_ns()) > 0:
            for completion in client.wait(left_ns / _NS_PER_S):
                completion.slot.release()
                _submit(client, next(others), tag=_OTHER)
    left = beside
    while left:
        for completion in _ends(client):
            completion.slot.release()
            left -= 1
    return found


def _submit(client: LocalClient, name: str, tag: int = 0) -> None:
    # A far deadline: a calibration measures what a policy does, not what it refuses.
    deadline_ns = time.monotonic_ns() + _FAR_S * _NS_PER_S
    client.submit(client.allocate(name), deadline_ns=deadline_ns, tag=tag)


def _ends(client: LocalClient) -> list[Completion]:
    ended = client.wait(ANSWER_S)
    if not ended:
        raise VeltairError(f"the server has answered nothing for {ANSWER_S:.0f} s")
    for completion in ended:
        if not completion.ok:
            raise VeltairError(f"{completion.slot.model}: a query failed: {completion.error}")
    return ended


class _Replay:
    """The state of one run."""

    def __init__(self, client: Client, names: Sequence[str], outcomes: Outcomes) -> None:
        self._client = client
        self._names = names
        self._pending = 0
        self.outcomes = outcomes

    def send(self) -> None:
        for query, due_ns in enumerate(self.outcomes.due_ns):
            if self.outcomes.is_lost:
                self.outcomes.cut(query)
                return
            left_ns = due_ns - time.monotonic_ns()
            if left_ns > 0:
                time.sleep(left_ns / _NS_PER_S)
            self._send_one(query, due_ns)
            self._collect(self._client.poll(_AT_ONCE))

    def finish(self) -> None:
        while self._pending:
            ended = self._client.wait(ANSWER_S)
            if not ended:
                raise VeltairError(
                    f"{self._pending} queries have not been answered for {ANSWER_S:.0f} s"
                )
            self._collect(ended)

    def _send_one(self, query: int, due_ns: int) -> None:
        slot: Slot | None = None
        try:
            slot = self._client.allocate(self._names[self.outcomes.model[query]])
            self._client.submit(slot, arrival_ns=due_ns, tag=query)
        except RefusedError as refusal:
            if refusal.reason not in ("queue_full", "deadline"):
                raise
            full = refusal.reason == "queue_full"
            self.outcomes.refused(query, QUEUE_FULL if full else REFUSED)
        else:
            self._pending += 1
        self.outcomes.submitted(query)

    def _collect(self, ended: Sequence[Completion]) -> None:
        for completion in ended:
            self._pending -= 1
            query, end_ns = completion.tag, completion.end_ns
            if completion.ok:
                self.outcomes.answered(query, end_ns - completion.compute_ns, end_ns)
            else:
                outcome = REFUSED if _was_given_up(completion) else FAILED
                self.outcomes.unanswered(query, end_ns, outcome, completion.error)
            completion.slot.release()


def _was_given_up(completion: Completion) -> bool:
    """Whether a policy refused the query after its submission, which is not a failure."""
    return getattr(completion, "reason", "") == "deadline"
