"""Rank 0: makes the segment, starts the front end, watches over workers and clients, stops."""

from __future__ import annotations

import logging
import select
import signal
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from veltair.proxy.sampler import LevelSampler
from veltair.runtime._native import ipc
from veltair.runtime.artifact import open_artifact
from veltair.runtime.client import LocalClient
from veltair.runtime.errors import ArtifactError
from veltair.runtime.machine import SPARE_WORKERS, cores_to_serve
from veltair.runtime.record import ModelRecord
from veltair.runtime.server.attached import AttachedClients
from veltair.runtime.server.control import PolicyControl
from veltair.runtime.server.front_thread import FrontThread
from veltair.runtime.server.membership import Membership
from veltair.runtime.server.messages import Plan
from veltair.runtime.server.recording import OpenRecord
from veltair.runtime.server.repository import make_segment
from veltair.runtime.server.signals import SignalPipe

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence
    from pathlib import Path

    from veltair.proxy.sampler import Sampling
    from veltair.runtime.artifact import Artifact
    from veltair.runtime.config import ServeConfig
    from veltair.runtime.rendezvous import Rendezvous
    from veltair.runtime.server.fabric import Fabric
    from veltair.runtime.server.membership import Member
    from veltair.runtime.server.repository import ServedModel

START_POLL_MS = 2
DRAIN_POLL_MS = 5
REPLACE_POLL_MS = 20  # while a dead worker's replacement starts
END_S = 5.0  # for the workers' processes to end and for MPI to be left
KILLED_S = 1.0  # for those that had to be killed
CHECK_NS = 10_000_000_000  # between two integrity checks of an idle server

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """What rank 0 has checked and taken before anything starts.

    Attributes:
        config: the whole configuration.
        models: what is served.
        listener: the HTTP front end's socket, bound.
        rendezvous: for local clients and workers, bound.
        record: the file to record decisions in, begun; None: none.
        sampling: what measures the interference level; None: nothing does.
    """

    config: ServeConfig
    models: Sequence[ServedModel]
    listener: socket.socket
    rendezvous: Rendezvous
    record: Path | None = None
    sampling: Sampling | None = None


class Dispatcher:
    """The server's control loop, on rank 0's main thread."""

    def __init__(self, fabric: Fabric, options: ServeOptions) -> None:
        """Makes the segment; workers find it as soon as they ask.

        Args:
            fabric: joined.
            options: checked; the sockets are owned from here on.
        """
        config = options.config
        self._fabric = fabric
        self._config = config
        self._listener = options.listener
        self._rendezvous = options.rendezvous
        self._signals = SignalPipe(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
        self._models = options.models
        self._is_null = config.engine.executor == "null"
        cpus = cores_to_serve(config.engine)
        self._record = str(options.record) if options.record is not None else None
        workers = fabric.size - 1
        if workers > len(cpus) + SPARE_WORKERS:
            _LOGGER.warning(
                "%d workers, %d cores: allowed; at most %d of them run at once, and %d more are "
                "enough for tasks that wait",
                *(workers, len(cpus), len(cpus), SPARE_WORKERS),
            )
        self._segment = make_segment(self._models, config, cpus, workers)
        self._board = ipc.Board(self._segment)
        self._control = PolicyControl(self._board, config)
        self._clients = AttachedClients(self._segment, self._board)
        self._members = Membership(
            fabric,
            self._segment,
            self._board,
            self._plan,
            dead_after_ns=config.workers.dead_after_ms * 1_000_000,
        )
        self._errors = {i: model.error for i, model in enumerate(self._models) if model.error}
        record = OpenRecord(self._record, who="rank 0")
        self._batches = ipc.BatchLoop(
            self._segment, [m.profile for m in self._models], record.descriptor
        )
        record.close()
        self._sampling = options.sampling
        self._sampler: LevelSampler | None = None
        self._front: FrontThread | None = None
        self._next_check_ns = time.monotonic_ns() + CHECK_NS
        self._exit_code = 0

    def run(self) -> int:
        """Serves until told to stop; returns the exit code."""
        try:
            self._batches.start()
            if self._start():
                while not self._should_stop():
                    whole = self._members.is_loaded()
                    self._tick(self._config.workers.heartbeat_ms if whole else REPLACE_POLL_MS)
            self._drain()
        finally:
            self._end()
        return self._exit_code

    # ---- start

    def _start(self) -> bool:
        """Waits until the models are loaded and found whole; False: told to stop before."""
        with ThreadPoolExecutor(thread_name_prefix="hash") as pool:
            checks = {
                index: pool.submit(open_artifact, model.folder, verify=True)
                for index, model in enumerate(self._models)
                if model.folder is not None and not model.error and not self._is_null
            }
            while not (self._members.is_loaded() and all(c.done() for c in checks.values())):
                if self._should_stop():
                    return False
                self._tick(START_POLL_MS)
        for index, check in checks.items():
            self._note(index, _error_of(check))
        for member in self._members.members.values():
            for index, error in member.loaded.errors.items() if member.loaded else ():
                self._note(index, error)
        self._publish()
        return True

    def _note(self, index: int, error: str) -> None:
        if error:
            self._errors.setdefault(index, error)

    def _publish(self) -> None:
        for index, status in enumerate(self._segment.models()):
            error = self._errors.get(index, "")
            state = ipc.ModelState.UNAVAILABLE if error else ipc.ModelState.READY
            self._board.set_model_state(index, state, error)
            say(f"model {status.name} version {status.version}: {_summary(status, error)}")
        if not self._models:
            say("no model: the repository is empty")
        self._measure()
        self._board.set_state(ipc.ServerState.SERVING)
        client = LocalClient(self._segment)
        self._front = FrontThread(client, self._config.server, self._listener, self._announce)

    def _measure(self) -> None:
        """Begins to measure the interference level, if it is to be."""
        if self._sampling is None:
            return
        if self._is_null:
            self._segment.emulated_slowdown = 0  # else blocks would take what was measured of them
        self._sampler = LevelSampler(self._segment, self._sampling)
        self._sampler.start()
        say(f"interference level: measured by {self._sampler.source}")

    def _announce(self, address: str) -> None:
        say(
            f"serving at {address} with {len(self._members.members)} workers on "
            f"{self._segment.cores} cores (scheduling: {self._control.config.scheduling.policy})"
            + ("; null executor: nothing is computed" if self._is_null else "")
        )

    def _plan(self, place: int, is_replacement: bool) -> Plan:
        return Plan(
            worker=place,
            port=self._listener.getsockname()[1],
            folders=() if self._is_null else tuple(map(self._folder, range(len(self._models)))),
            profiles=tuple(map(_profile, self._models)) if self._is_null else None,
            spin_ns=self._config.engine.spin_us * 1000,
            heartbeat_ms=self._config.workers.heartbeat_ms,
            is_strict=is_replacement,
            record=self._record,
        )

    def _folder(self, index: int) -> str | None:
        return None if index in self._errors else str(self._models[index].folder)

    # ---- serving

    def _tick(self, timeout_ms: int) -> None:
        """Waits for an event, `timeout_ms` at most, and handles all that there are."""
        deaths = self._members.descriptors()
        clients = self._clients.descriptors()
        requests = self._rendezvous.descriptors()
        poll = select.poll()
        for descriptor in (
            *(self._signals.fileno(), self._rendezvous.fileno()),
            *(*deaths, *clients, *requests),
        ):
            poll.register(descriptor, select.POLLIN)
        ready = [descriptor for descriptor, _ in poll.poll(timeout_ms)]
        for descriptor in ready:
            if descriptor == self._rendezvous.fileno():
                self._rendezvous.answer(self._segment.fd)
            elif descriptor in deaths:
                self._handle_death(deaths[descriptor])
        self._rendezvous.converse(ready, self._control.answer)
        self._clients.look()
        if not self._fabric.leaving:
            for answer in self._members.receive():
                _LOGGER.debug("worker %d serves", answer.worker)
        now_ns = time.monotonic_ns()
        self._members.end_silent(now_ns)
        self._check_when_idle(now_ns)

    def _handle_death(self, member: Member) -> None:
        self._members.bury(member)
        if self._fabric.leaving:
            return
        _LOGGER.error(
            "worker %d (process %d) has died; its query goes to another", member.place, member.pid
        )
        self._members.replace(member.place)

    def _check_when_idle(self, now_ns: int) -> None:
        if now_ns < self._next_check_ns or self._segment.cores_in_use > 0:
            return
        self._next_check_ns = now_ns + CHECK_NS
        wrong = self._board.check()
        if wrong:
            _LOGGER.error("the shared segment contradicts itself: %s; please report this", wrong)

    def _should_stop(self) -> bool:
        if not self._members.members:
            _LOGGER.error("no worker is left; the server stops")
            self._exit_code = 1
            return True
        if self._front is not None and not self._front.is_alive():
            _LOGGER.error("the HTTP front end has ended; the server stops")
            self._exit_code = 1
            return True
        return bool(self._signals.take()) or self._segment.stop_requested

    # ---- stop

    def _drain(self) -> None:
        """Takes no more queries, and waits until those that were accepted are answered."""
        self._board.set_state(ipc.ServerState.DRAINING)
        self._members.stop()
        self._fabric.leave()  # at once: see guardian.py
        if self._front is not None:
            self._front.stop()
        timeout_ms = self._config.server.drain_timeout_ms
        end_ns = time.monotonic_ns() + timeout_ms * 1_000_000
        while self._is_busy() and time.monotonic_ns() < end_ns:
            if signal.SIGQUIT in self._signals.take():
                break
            if not self._members.members:
                self._exit_code = 1
                break
            self._tick(DRAIN_POLL_MS)
        self._fail_queued()
        if self._front is not None:
            self._front.join(END_S)

    def _fail_queued(self) -> None:
        lost = self._board.fail_queued("the server stopped before this query's turn")
        if lost:
            _LOGGER.error("%d accepted queries were not run", lost)

    def _is_busy(self) -> bool:
        return self._board.pending() > 0 or (self._front is not None and self._front.is_alive())

    def _end(self) -> None:
        if self._sampler is not None:
            self._sampler.stop()
        self._batches.stop()
        self._board.set_state(ipc.ServerState.STOPPED)
        self._rendezvous.close()
        self._listener.close()
        self._await_workers(END_S)
        self._members.kill()
        self._await_workers(KILLED_S)
        self._fail_queued()  # what workers have left at a boundary, or put back
        self._fabric.has_left(END_S)

    def _await_workers(self, timeout_s: float) -> None:
        end_ns = time.monotonic_ns() + int(timeout_s * 1e9)
        while self._members.descriptors() and time.monotonic_ns() < end_ns:
            poll = select.poll()
            for descriptor in self._members.descriptors():
                poll.register(descriptor, select.POLLIN)
            for descriptor, _ in poll.poll(START_POLL_MS):
                self._members.bury(self._members.descriptors()[descriptor])


def say(line: str) -> None:
    """Prints a line of the start-up; whoever read it may be gone."""
    try:
        print(line, flush=True)
    except OSError:
        _LOGGER.debug("nobody reads: %s", line)


def _profile(model: ServedModel) -> ModelRecord | None:
    return ModelRecord.of(model.name, model.profile) if model.profile else None


def _summary(status: ipc.ModelStatus, error: str) -> str:
    if error:
        return f"unavailable: {error}"
    target = f"{status.qos_ns / 1e6:.1f} ms" if status.qos_ns else "none"
    return (
        f"ready, {status.needed_cores} cores a query, {status.expected_ns / 1e6:.2f} ms expected, "
        f"target {target}"
    )


def _error_of(check: Future[Artifact]) -> str:
    error = check.exception()
    if error is None:
        return ""
    if isinstance(error, ArtifactError | OSError):
        return str(error)
    raise error
