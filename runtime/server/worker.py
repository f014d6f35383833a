"""A worker rank: loads the models, then serves tasks from the shared segment."""

from __future__ import annotations

import logging
import os
import select
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from veltair.runtime._native import ipc
from veltair.runtime.artifact import open_artifact
from veltair.runtime.errors import ArtifactError, VeltairError
from veltair.runtime.model import load_native
from veltair.runtime.policy_profile import to_profile
from veltair.runtime.rendezvous import request_segment
from veltair.runtime.server.fabric import LinkError
from veltair.runtime.server.messages import Hello, Loaded, Plan, Stop
from veltair.runtime.server.recording import OpenRecord
from veltair.runtime.server.signals import SignalPipe

if TYPE_CHECKING:
    from veltair.runtime._native import Model as NativeModel
    from veltair.runtime._native import sched
    from veltair.runtime.server.fabric import Home

_LOGGER = logging.getLogger(__name__)
_PLAN_POLL_S = 0.002
_LEAVE_MPI_S = 5.0


class WorkerRank:
    """The control side of a worker: heartbeat, orders, signals. Its tasks run on native threads."""

    def __init__(self, home: Home) -> None:
        """Waits for rank 0's plan, and loads what it names."""
        self._home = home
        self._link = home.dispatcher()
        self._signals = SignalPipe(signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        self._link.send(Hello(pid=os.getpid()))
        plan = self._await_plan()
        self._heartbeat_ms = plan.heartbeat_ms
        descriptor = request_segment(plan.port)
        self._segment = ipc.Segment.attach(descriptor)
        os.close(descriptor)
        self._dispatcher_pid = os.pidfd_open(self._segment.server_pid)
        self._record = OpenRecord(plan.record, who="this worker")
        self._worker, errors = _make_worker(self._segment, plan, self._record.descriptor)
        self._record.close()
        self._ended = os.eventfd(0)
        self._server = threading.Thread(target=self._serve, name="worker", daemon=True)
        self._server.start()
        self._link.send(Loaded(worker=plan.worker, errors=errors))

    def run(self) -> int:
        """Serves until the server has stopped; returns the exit code."""
        poll = select.poll()
        for descriptor in (self._signals.fileno(), self._dispatcher_pid, self._ended):
            poll.register(descriptor, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll(self._heartbeat_ms)}
            self._worker.beat()
            self._record.warn(self._worker.record_error)
            if self._ended in ready:
                break
            if self._dispatcher_pid in ready:
                _LOGGER.error("rank 0 has died; this worker ends")
                self._worker.leave()
                self._server.join()
                return 1
            if self._signals.take():
                self._segment.stop_requested = True
                self._home.leave()
            elif not self._home.leaving and isinstance(self._receive(), Stop):
                self._home.leave()
        self._server.join()
        self._home.has_left(_LEAVE_MPI_S)
        return 0

    def _serve(self) -> None:
        try:
            self._worker.run()
        finally:
            os.eventfd_write(self._ended, 1)

    def _receive(self) -> object:
        try:
            return self._link.receive()
        except LinkError:  # rank 0 has died: its descriptor tells
            return None

    def _await_plan(self) -> Plan:
        while not self._signals.take():
            try:
                message = self._link.receive()
            except LinkError:
                break  # rank 0 has died
            if isinstance(message, Plan):
                return message
            if isinstance(message, Stop):  # to a replacement that has come too late
                self._home.has_left(_LEAVE_MPI_S)
                os._exit(0)
            time.sleep(_PLAN_POLL_S)
        os._exit(1)  # the server ended during its start: there is nothing to drain


def _make_worker(
    segment: ipc.Segment, plan: Plan, record: int | None
) -> tuple[ipc.Worker, dict[int, str]]:
    """Makes what runs the tasks; returns it, and why models could not be loaded."""
    if plan.profiles is not None:
        profiles = [known.to_profile() if known else None for known in plan.profiles]
        asleep = ipc.Worker.asleep(
            segment=segment, index=plan.worker, models=profiles, record=record
        )
        return asleep, {}
    models, errors = _load(plan)
    if errors and plan.is_strict:
        raise ArtifactError("; ".join(errors.values()))
    worker = ipc.Worker(
        segment=segment, index=plan.worker, models=models, spin_ns=plan.spin_ns, record=record
    )
    return worker, errors


def _load(
    plan: Plan,
) -> tuple[list[tuple[NativeModel, sched.ModelProfile] | None], dict[int, str]]:
    """Loads the plan's models; what can't be loaded is reported and not served."""
    models: list[tuple[NativeModel, sched.ModelProfile] | None] = []
    errors: dict[int, str] = {}
    for index, folder in enumerate(plan.folders):
        models.append(None)
        if folder is None:
            continue
        try:
            artifact = open_artifact(Path(folder), verify=False)
            native = load_native(artifact.folder, artifact.manifest)
            profile = to_profile(artifact.manifest)
        except (VeltairError, ValueError, MemoryError) as error:
            errors[index] = str(error) or type(error).__name__
        else:
            models[index] = (native, profile)
    return models, errors
