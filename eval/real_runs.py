"""Given arrivals through a real server, open loop, over the shared segment.

One thread sleeps until the next query is due, submits it, and collects what has ended meanwhile:
it never waits for an answer, so a slow server is not spared. Ends are the server's own times, so a
collection that comes late changes nothing. Inputs lie in the slots before the run begins.
"""

from __future__ import annotations

import gc
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from veltair.eval.served import serving
from veltair.runtime.client import LocalClient
from veltair.runtime.errors import RefusedError, VeltairError
from veltair.runtime.files import write_whole
from veltair.runtime.simulate.run import QUEUE_FULL, REFUSED, SERVED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from veltair.runtime.client import Completion, Slot
    from veltair.runtime.simulate.arrivals import Arrivals

FAILED = 3  # beside SERVED, REFUSED and QUEUE_FULL of the simulator: accepted, and not answered

ANSWER_S = 60.0
_NS_PER_S = 1_000_000_000
_LEAD_NS = 100_000_000  # between the begin of a run and its time 0
_AT_ONCE = 64  # completions a collection
_FAR_S = 3_600
_ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class ServerPlan:
    """How a server is started.

    Attributes:
        repository: folder of artifacts.
        policy: of scheduling.
        workers: worker ranks.
        slots: a model; a query that finds none is refused.
        admission: whether the server refuses at once what it predicts to be late.
        cores: processors to serve on; empty: all.
    """

    repository: Path
    policy: str
    workers: int
    slots: int = 64
    admission: bool = False
    cores: tuple[int, ...] = ()

    def config(self) -> str:
        """Returns the `serve.toml`."""
        return (
            f'[scheduling]\npolicy = "{self.policy}"\n'
            f"[queue]\nmax_queries = {self.slots}\nadmission = {str(self.admission).lower()}\n"
            f"[engine]\ncores = {list(self.cores)}\n"
        )


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What became of each query of a run; times from the run's time 0.

    Attributes:
        submitted_ns: int64[Q], when the driver had handed it over: the rest of it after the arrival
            is the driver's lateness.
        start_ns: int64[Q], of its first block; -1: none.
        end_ns: int64[Q], or when it was refused.
        outcome: int64[Q], SERVED, REFUSED, QUEUE_FULL or FAILED.
        errors: of the queries that failed, each text once.
    """

    submitted_ns: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    outcome: NDArray[np.int64]
    errors: tuple[str, ...]


@contextmanager
def running(plan: ServerPlan, scratch: Path) -> Iterator[LocalClient]:
    """Serves until the block ends; yields a client whose slots have inputs.

    Raises:
        VeltairError: the server does not run, or not with this configuration.
    """
    config = scratch / "serve.toml"
    write_whole(config, plan.config().encode())
    with (
        serving(plan.repository, workers=plan.workers, config=config) as address,
        LocalClient.attach(address) as client,
    ):
        prefill(client)
        for model in client.models():
            for _ in range(_ROUNDS):  # each worker meets each model, most probably
                closed_loop(client, {model.name: min(plan.workers, model.slots)}, plan.workers)
        yield client


def prefill(client: LocalClient, seed: int = 0) -> None:
    """Writes a random input into every slot; the server only reads inputs, so they stay."""
    random = np.random.default_rng(seed)
    for model in client.models():
        slots = [client.allocate(model.name) for _ in range(model.slots)]
        for slot in slots:
            for values in slot.inputs.values():
                sample = random.standard_normal(values.shape, dtype=np.float32)
                values[...] = sample.astype(values.dtype)
            slot.release()


def replay(client: LocalClient, names: Sequence[str], arrivals: Arrivals) -> Observed:
    """Submits every query when it is due and waits for the last one's end.

    Args:
        client: attached, its slots filled.
        names: of the models, by index.
        arrivals: when, and which model.

    Raises:
        VeltairError: the server died, or a query was not answered.
    """
    run = _Replay(client, names, arrivals)
    gc.collect()
    gc.disable()  # a collection takes milliseconds: as long as a query
    try:
        run.send()
        run.finish()
    finally:
        gc.enable()
    return run.observed()


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


def _submit(client: LocalClient, name: str) -> None:
    # A far deadline: a calibration measures what a policy does, not what it refuses.
    deadline_ns = time.monotonic_ns() + _FAR_S * _NS_PER_S
    client.submit(client.allocate(name), deadline_ns=deadline_ns)


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

    def __init__(self, client: LocalClient, names: Sequence[str], arrivals: Arrivals) -> None:
        count = len(arrivals.time_ns)
        self._client = client
        self._names = [names[index] for index in arrivals.model]
        self._begin_ns = time.monotonic_ns() + _LEAD_NS
        self._due_ns = [self._begin_ns + int(due_ns) for due_ns in arrivals.time_ns]
        self._pending = 0
        self._errors: dict[str, None] = {}
        self._submitted_ns = np.zeros(count, np.int64)
        self._start_ns = np.full(count, -1, np.int64)
        self._end_ns = np.zeros(count, np.int64)
        self._outcome = np.full(count, SERVED, np.int64)

    def send(self) -> None:
        for query, due_ns in enumerate(self._due_ns):
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

    def observed(self) -> Observed:
        return Observed(
            submitted_ns=self._submitted_ns,
            start_ns=self._start_ns,
            end_ns=self._end_ns,
            outcome=self._outcome,
            errors=tuple(self._errors),
        )

    def _send_one(self, query: int, due_ns: int) -> None:
        slot: Slot | None = None
        try:
            slot = self._client.allocate(self._names[query])
            self._client.submit(slot, arrival_ns=due_ns, tag=query)
        except RefusedError as refusal:
            if refusal.reason not in ("queue_full", "deadline"):
                raise
            full = refusal.reason == "queue_full"
            self._outcome[query] = QUEUE_FULL if full else REFUSED
            self._end_ns[query] = time.monotonic_ns() - self._begin_ns
        else:
            self._pending += 1
        self._submitted_ns[query] = time.monotonic_ns() - self._begin_ns

    def _collect(self, ended: Sequence[Completion]) -> None:
        for completion in ended:
            query = completion.tag
            self._pending -= 1
            self._end_ns[query] = completion.end_ns - self._begin_ns
            self._start_ns[query] = self._end_ns[query] - completion.compute_ns
            if not completion.ok:
                self._note(query, completion)
            completion.slot.release()

    def _note(self, query: int, completion: Completion) -> None:
        self._start_ns[query] = -1
        if _was_given_up(completion):
            self._outcome[query] = REFUSED
            return
        self._outcome[query] = FAILED
        self._errors.setdefault(completion.error)


def _was_given_up(completion: Completion) -> bool:
    """Whether a policy refused the query after its submission, which is not a failure."""
    return getattr(completion, "reason", "") == "deadline"
