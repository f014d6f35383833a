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

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from veltair.runtime._native import ipc
from veltair.runtime.errors import NotFoundError, RefusedError, UnavailableError
from veltair.runtime.framed import numpy_dtype, read_framed
from veltair.runtime.rendezvous import port_of, request_segment
from veltair.runtime.status import (
    Histogram,
    LevelStats,
    ModelInfo,
    ModelStats,
    ServerStats,
    Signature,
)

if TYPE_CHECKING:
    from types import TracebackType

    from numpy.typing import NDArray

    from veltair.runtime.manifest import TensorSpec

__all__ = [
    "Completion",
    "Histogram",
    "LocalClient",
    "ModelInfo",
    "ModelStats",
    "ServerStats",
    "Slot",
]

_INTERRUPTIBLE_NS = 250_000_000  # a longer wait is cut in such pieces, for Ctrl-C


class Slot:
    """One query's place in the shared segment; made by `LocalClient.allocate`.

    Attributes:
        model: name of the model.
        version: of the artifact.
        index: number of the slot among the model's; neighbours are contiguous in memory.
        inputs: one writable array an input, by name: a view of the segment, of the manifest's dtype
            and shape (`bfloat16` as uint16, its bits); of a framed one its bytes, which
            `write_framed` fills. Written between `allocate` and `submit`.
    """

    __slots__ = ("_client", "_place", "_query", "_released", "index", "inputs", "model", "version")

    def __init__(self, client: LocalClient, query: int, place: _Place) -> None:
        """Takes a query that `client` has allocated."""
        self.model = place.model
        self.version = place.version
        self.index = place.index
        self.inputs = place.inputs
        self._place = place
        self._client = client
        self._query = query
        self._released = False

    @property
    def outputs(self) -> dict[str, NDArray[Any]]:
        """One read-only array an output, by name; valid from the completion to `release`.

        Strings are objects of `str`.
        """
        framed = self._place.framed_outputs
        if not framed:
            return self._place.outputs
        return {
            name: read_framed(array, framed[name]) if name in framed else array
            for name, array in self._place.outputs.items()
        }

    def release(self) -> None:
        """Gives the slot back; its arrays must not be used any more. Idempotent.

        A slot that was submitted and has not completed is given back when it completes.
        """
        if not self._released:
            self._released = True
            self._client._give_back(self._query)


@dataclass(frozen=True, kw_only=True)
class Completion:
    """The end of one query.

    Attributes:
        slot: as submitted; release it after the outputs were read.
        tag: as submitted.
        ok: whether the outputs are valid.
        error: what went wrong; empty when `ok`.
        reason: `error`, or `deadline` where the scheduling policy gave the query up because it
            could not be in time any more; empty when `ok`.
        queue_ns: submission to start.
        compute_ns: start to end.
        end_ns: when it ended, on the clock of `time.monotonic_ns`.
    """

    slot: Slot
    tag: int
    ok: bool
    error: str
    reason: str
    queue_ns: int
    compute_ns: int
    end_ns: int


@dataclass(frozen=True, kw_only=True)
class _Place:
    """What is constant about a slot of the segment: its arrays, framed tensors as bytes."""

    model: str
    version: int
    index: int
    inputs: dict[str, NDArray[Any]]
    outputs: dict[str, NDArray[Any]]
    framed_outputs: dict[str, str]  # name to dtype


class LocalClient:
    """A client of a server on this machine; `attach` makes one from the server's address."""

    def __init__(self, segment: ipc.Segment) -> None:
        """Becomes a client of the server whose segment this is.

        Raises:
            UnavailableError: the server has all the clients that it can have, or has gone.
        """
        self._segment = segment
        try:
            self._native = ipc.Client(segment)
        except RuntimeError as error:
            raise UnavailableError(str(error)) from error
        self._signatures = tuple(
            msgspec.msgpack.decode(status.metadata, type=Signature) for status in segment.models()
        )
        self._versions: dict[str, dict[int, int]] = {}
        for index, status in enumerate(segment.models()):
            self._versions.setdefault(status.name, {})[status.version] = index
        self._places: dict[int, _Place] = {}
        self._submitted: dict[int, Slot] = {}
        self._closed = False

    @classmethod
    def attach(cls, address: str | int) -> LocalClient:
        """Attaches to a running server.

        Args:
            address: `HOST:PORT`, an `http://` address, or the port alone: the server's HTTP port.

        Raises:
            InputError: the address names no port.
            NotFoundError: no Veltair server of this user answers at that port.
            UnavailableError: it has all the clients that it can have.
        """
        descriptor = request_segment(port_of(address))
        try:
            segment = ipc.Segment.attach(descriptor)
        except ValueError as error:
            raise UnavailableError(str(error)) from error
        finally:
            os.close(descriptor)
        return cls(segment)

    def models(self) -> tuple[ModelInfo, ...]:
        """Returns the models as they are now (one pass over the segment, no round trip)."""
        return tuple(
            ModelInfo(
                name=status.name,
                version=status.version,
                state=status.state.name.lower(),
                reason=status.reason,
                inputs=signature.inputs,
                outputs=signature.outputs,
                qos_ns=status.qos_ns,
                needed_cores=status.needed_cores,
                expected_ns=status.expected_ns,
                slots=status.slots,
            )
            for status, signature in zip(self._segment.models(), self._signatures, strict=True)
        )

    def allocate(self, model: str, version: int | None = None) -> Slot:
        """Takes a free slot of a model; never waits.

        Args:
            model: its name.
            version: None takes the highest one that is served.

        Raises:
            NotFoundError: no such model or version.
            RefusedError: all slots are taken (`queue_full`), the model is not ready
                (`unavailable`), or the server is stopping (`draining`).
            UnavailableError: the server has died.
        """
        self._check_open()
        self._check_server()
        index = self._find(model, version)
        verdict, query = self._native.allocate(index)
        if not verdict.ok:
            raise self._refused(verdict, index)
        place = self._places.get(query)
        if place is None:
            place = self._places.setdefault(query, self._map(index, query))
        return Slot(self, query, place)

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
            RefusedError: refused by admission (`deadline`), the model is not ready any more
                (`unavailable`), or the server is stopping (`draining`); the slot has been given
                back.
            UnavailableError: the server has died.
        """
        self._check_open()
        if slot._released or slot._query in self._submitted:
            raise ValueError("the slot was submitted or released before; allocate another")
        self._submitted[slot._query] = slot
        verdict = self._native.submit(slot._query, arrival_ns, deadline_ns, tag)
        if not verdict.ok:
            self._submitted.pop(slot._query, None)
            slot._released = True
            raise self._refused(verdict, self._versions[slot.model][slot.version])

    def poll(self, limit: int = 1024) -> list[Completion]:
        """Returns up to `limit` completions that are there now; never waits.

        Resets `fileno` when it has taken the last one.

        Raises:
            UnavailableError: the server has died.
        """
        self._check_open()
        was_gone = self._native.server_gone  # first: what it did before its end is there then
        ended = self._native.poll(limit)
        completions = [each for each in map(self._completion, ended) if each is not None]
        if was_gone and not ended:
            raise _died()
        return completions

    def wait(self, timeout_s: float | None = None, limit: int = 1024) -> list[Completion]:
        """Waits for at least one completion; an empty list after `timeout_s`.

        Raises:
            UnavailableError: the server has died.
        """
        end_ns = None if timeout_s is None else time.monotonic_ns() + int(timeout_s * 1e9)
        while True:
            completions = self.poll(limit)
            left_ns = _INTERRUPTIBLE_NS if end_ns is None else end_ns - time.monotonic_ns()
            if completions or left_ns <= 0:
                return completions
            self._native.wait(min(left_ns, _INTERRUPTIBLE_NS))

    def fileno(self) -> int:
        """A descriptor that is readable while completions wait, for `asyncio`'s `add_reader`.

        The first call starts a native thread that sleeps on the segment's futex.
        """
        return self._native.fileno()

    def stats(self) -> ServerStats:
        """Returns the server's counters (one pass over the segment, no round trip)."""
        workers = self._segment.workers()
        policies, policy_changes = self._native.policies()
        report = self._native.level_report()
        return ServerStats(
            state=self._segment.state.name.lower(),
            cores=self._segment.cores,
            cores_in_use=self._segment.cores_in_use,
            workers=len(workers),
            workers_alive=sum(worker.pid != 0 for worker in workers),
            scheduling=policies.scheduling,
            batching=policies.batching,
            placement=policies.placement,
            policy_changes=policy_changes,
            returns=self._segment.returns,
            revocations=self._segment.revocations,
            pace=self._segment.pace / 1e6,
            level_source=report.source,
            levels=_levels(self._segment) if report.measured else (),
            decisions=report.decisions,
            decisions_unmeasured=report.unmeasured,
            models=tuple(
                _model_stats(status, self._segment.counts(index))
                for index, status in enumerate(self._segment.models())
            ),
        )

    def close(self) -> None:
        """Detaches: queued queries are cancelled, all slots given back. Idempotent."""
        if not self._closed:
            self._closed = True
            self._native.close()

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

    def _check_open(self) -> None:
        if self._closed:
            raise UnavailableError("this client has been closed; attach another")

    def _check_server(self) -> None:
        if self._native.server_gone:
            raise _died()

    def _find(self, model: str, version: int | None) -> int:
        versions = self._versions.get(model)
        if versions is None:
            known = ", ".join(sorted(self._versions)) or "none"
            raise NotFoundError(f"no model {model!r} in the repository; it has: {known}")
        if version is not None:
            if version not in versions:
                known = ", ".join(map(str, sorted(versions)))
                raise NotFoundError(f"model {model!r} has no version {version}; it has: {known}")
            return versions[version]
        if len(versions) == 1:
            return next(iter(versions.values()))
        statuses = self._segment.models()
        ready = [v for v, i in versions.items() if statuses[i].state is ipc.ModelState.READY]
        return versions[max(ready or versions)]

    def _map(self, index: int, query: int) -> _Place:
        """Makes the arrays of a slot; they are kept, so a slot costs this once."""
        status = self._segment.models()[index]
        signature = self._signatures[index]
        slot = query - self._native.first_slot(index)
        arrays = [
            _shaped(self._native.tensor(index, tensor, slot), spec)
            for tensor, spec in enumerate(signature.inputs + signature.outputs)
        ]
        count = len(signature.inputs)
        for output in arrays[count:]:
            output.flags.writeable = False
        return _Place(
            model=status.name,
            version=status.version,
            index=slot,
            inputs={s.name: a for s, a in zip(signature.inputs, arrays[:count], strict=True)},
            outputs={s.name: a for s, a in zip(signature.outputs, arrays[count:], strict=True)},
            framed_outputs={s.name: s.dtype for s in signature.outputs if s.is_framed},
        )

    def _completion(self, ended: ipc.Ended) -> Completion | None:
        slot = self._submitted.pop(ended.query, None)
        if slot is None:  # another thread released it between its completion and now
            return None
        return Completion(
            slot=slot,
            tag=ended.tag,
            ok=ended.ok,
            error="" if ended.ok else self._native.error(ended.query),
            reason="" if ended.ok else ended.why.name.lower(),
            queue_ns=ended.queue_ns,
            compute_ns=ended.compute_ns,
            end_ns=ended.end_ns,
        )

    def _give_back(self, query: int) -> None:
        self._submitted.pop(query, None)
        if not self._closed:
            self._native.release(query)

    def _refused(self, verdict: ipc.Verdict, index: int) -> UnavailableError:
        status = self._segment.models()[index]
        self._check_server()
        if verdict.why is ipc.Failure.QUEUE_FULL:
            message = f"all {status.slots} slots of model {status.name!r} are taken"
        elif verdict.why is ipc.Failure.DEADLINE:
            late_ms = verdict.late_ns / 1e6
            message = f"model {status.name!r}: the query would end {late_ms:.1f} ms too late"
        elif verdict.why is ipc.Failure.DRAINING:
            message = "the server is not taking queries: it is starting or stopping"
        else:
            reason = status.reason or status.state.name.lower()
            message = f"model {status.name!r} is not ready: {reason}"
        return RefusedError(message, verdict.why.name.lower())


def _died() -> UnavailableError:
    return UnavailableError("the server has died; start it again and attach anew")


def _shaped(memory: NDArray[np.uint8], spec: TensorSpec) -> NDArray[Any]:
    if spec.is_framed:
        return memory
    return memory.view(numpy_dtype(spec.dtype)).reshape(spec.shape)


def _levels(segment: ipc.Segment) -> tuple[LevelStats, ...]:
    now_ns = time.monotonic_ns()
    records = {"node": segment.level()}
    records |= {str(index): segment.complex_level(index) for index in range(segment.complexes)}
    return tuple(
        LevelStats(
            where=where,
            level=record.slowdown / ipc.MILLION if record.is_known(now_ns) else None,
            # What is too old is worth nothing.
            confidence=record.confidence / ipc.MILLION
            if now_ns - record.time_ns <= ipc.STALE_NS
            else 0.0,
        )
        for where, record in records.items()
    )


def _model_stats(status: ipc.ModelStatus, counts: ipc.ModelCounts) -> ModelStats:
    reasons = (failure.name.lower() for failure in ipc.Failure)
    return ModelStats(
        name=status.name,
        version=status.version,
        accepted=counts.accepted,
        succeeded=counts.succeeded,
        failed=dict(zip(reasons, counts.failed, strict=True)),
        within_qos=counts.within_qos,
        executions=counts.executions,
        queue_ns=counts.queue_ns,
        compute_ns=counts.compute_ns,
        request_ns=counts.request_ns,
        pending=counts.pending,
        lateness=counts.lateness / ipc.MILLION,
        latency=Histogram(bounds_ns=ipc.LATENCY_BOUNDS_NS, counts=tuple(counts.latency)),
    )
