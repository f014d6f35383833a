"""The local client: queries through the server's shared segment, without a copy.

Used by the HTTP front end inside rank 0 and by any process on the server's machine, such as the
load generator. A query's life here: `allocate` a slot of the model, write the inputs into
`slot.inputs`, `submit` it, take its `Completion` from `wait` or `poll`, read `slot.outputs`,
`release` the slot. Ownership of a slot is the client's from `allocate` to `submit`, the server's
until the completion, and the client's again until `release`. A client that dies gives everything
back: its slots are reclaimed and what it had queued is cancelled.

Every method may be called from any thread; waiting releases the GIL and costs no processor time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

    from numpy.typing import NDArray

    from veltair.runtime.manifest import TensorSpec


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """One served model as a client sees it.

    Attributes:
        name: as in the repository.
        version: of the artifact.
        state: `loading`, `ready` or `unavailable`.
        reason: why it is unavailable; empty otherwise.
        inputs: in the artifact's order; dense, row-major.
        outputs: likewise.
        qos_ns: the latency target, counted from a query's arrival; 0 if it has none.
        needed_cores: cores that a task takes so that its profile meets the target.
        expected_ns: the profile's time of one task on these cores, alone.
        slots: queries that it holds at most, from `allocate` to `release`.
    """

    name: str
    version: int
    state: str
    reason: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    qos_ns: int
    needed_cores: int
    expected_ns: int
    slots: int


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """Latencies from arrival to completion.

    Attributes:
        bounds_ns: upper bound of each bucket, inclusive, ascending; the last is the largest int64.
        counts: completions in each bucket (not cumulative).
    """

    bounds_ns: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class ModelStats:
    """Counters of one model since the server's start.

    Attributes:
        name: of the model.
        version: of the artifact.
        accepted: queries that were submitted and not refused.
        succeeded: queries that ended with outputs.
        failed: queries that did not, by reason: `queue_full`, `deadline`, `draining`,
            `unavailable` (refused), `error`, `cancelled` (after they were accepted).
        within_qos: succeeded queries that ended within their deadline, or that had none.
        executions: tasks that ran to their end (a batch counts once).
        queue_ns: sum over completed queries of submission to start.
        compute_ns: sum over completed queries of start to end.
        request_ns: sum over completed queries of arrival to end.
        pending: queries accepted and not completed, now.
        latency: arrival to end of the succeeded queries.
    """

    name: str
    version: int
    accepted: int
    succeeded: int
    failed: dict[str, int]
    within_qos: int
    executions: int
    queue_ns: int
    compute_ns: int
    request_ns: int
    pending: int
    latency: Histogram


@dataclass(frozen=True, kw_only=True)
class ServerStats:
    """The server's state and its models' counters.

    Attributes:
        state: `starting`, `serving`, `draining` or `stopped`.
        cores: cores that it serves on.
        cores_in_use: of these, held by a running task.
        workers: worker ranks that it was started with.
        workers_alive: of these, alive now.
        models: one entry a model, in the order of `LocalClient.models`.
    """

    state: str
    cores: int
    cores_in_use: int
    workers: int
    workers_alive: int
    models: tuple[ModelStats, ...]


class Slot:
    """One query's place in the shared segment; made by `LocalClient.allocate`.

    Attributes:
        model: name of the model.
        version: of the artifact.
        index: number of the slot among the model's; neighbours are contiguous in memory.
        inputs: one writable array an input, by name: a view of the segment, of the manifest's dtype
            and shape (`bfloat16` as uint16, its bits). Written between `allocate` and `submit`.
        outputs: one read-only array an output, by name; valid from the completion to `release`.
    """

    model: str
    version: int
    index: int
    inputs: dict[str, NDArray[Any]]
    outputs: dict[str, NDArray[Any]]

    def release(self) -> None:
        """Gives the slot back; its arrays must not be used any more. Idempotent.

        A slot that was submitted and has not completed is given back when it completes.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Completion:
    """The end of one query.

    Attributes:
        slot: as submitted; release it after the outputs were read.
        tag: as submitted.
        ok: whether the outputs are valid.
        error: what went wrong; empty when `ok`.
        queue_ns: submission to start.
        compute_ns: start to end.
        end_ns: when it ended, on the clock of `time.monotonic_ns`.
    """

    slot: Slot
    tag: int
    ok: bool
    error: str
    queue_ns: int
    compute_ns: int
    end_ns: int


class LocalClient:
    """A client of a server on this machine; use `attach` to make one."""

    @classmethod
    def attach(cls, address: str | int) -> LocalClient:
        """Attaches to a running server.

        Args:
            address: `HOST:PORT`, an `http://` address, or the port alone: the server's HTTP port.

        Raises:
            NotFoundError: no Veltair server of this user answers at that port.
        """
        raise NotImplementedError

    def models(self) -> tuple[ModelInfo, ...]:
        """Returns the models as they are now (one pass over the segment, no round trip)."""
        raise NotImplementedError

    def allocate(self, model: str, version: int | None = None) -> Slot:
        """Takes a free slot of a model; never waits.

        Args:
            model: its name.
            version: None takes the highest one that is served.

        Raises:
            NotFoundError: no such model or version.
            RefusedError: all slots are taken (`queue_full`), the model is not ready
                (`unavailable`), or the server is stopping (`draining`).
        """
        raise NotImplementedError

    def submit(
        self, slot: Slot, *, arrival_ns: int | None = None, deadline_ns: int = 0, tag: int = 0
    ) -> None:
        """Hands the filled slot to the server; its completion comes through `wait` or `poll`.

        Args:
            slot: from `allocate`, not submitted yet.
            arrival_ns: when the query arrived, on the clock of `time.monotonic_ns`; latencies count
                from here. None takes now.
            deadline_ns: when it must have ended, on the same clock; 0: the model's QoS target after
                the arrival, if it has one. With admission on, what can't end in time is refused.
            tag: int64, handed back with the completion.

        Raises:
            RefusedError: refused by admission (`deadline`), or the server is stopping (`draining`);
                the slot has been given back.
        """
        raise NotImplementedError

    def poll(self, limit: int = 1024) -> list[Completion]:
        """Returns up to `limit` completions that are there now; never waits.

        Resets `fileno` when it has taken the last one.

        Raises:
            UnavailableError: the server has died.
        """
        raise NotImplementedError

    def wait(self, timeout_s: float | None = None, limit: int = 1024) -> list[Completion]:
        """Waits for at least one completion; an empty list after `timeout_s`.

        Raises:
            UnavailableError: the server has died.
        """
        raise NotImplementedError

    def fileno(self) -> int:
        """A descriptor that is readable while completions wait, for `asyncio`'s `add_reader`.

        The first call starts a native thread that sleeps on the segment's futex.
        """
        raise NotImplementedError

    def stats(self) -> ServerStats:
        """Returns the server's counters (one pass over the segment, no round trip)."""
        raise NotImplementedError

    def close(self) -> None:
        """Detaches: queued queries are cancelled, all slots given back. Idempotent."""
        raise NotImplementedError

    def __enter__(self) -> LocalClient:
        """Returns itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes."""
        self.close()
