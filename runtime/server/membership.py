"""Rank 0's view of the workers: who is there, who has died, who takes the place."""

from __future__ import annotations

import logging
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from veltair.runtime.server.fabric import LinkError, start_replacement
from veltair.runtime.server.messages import Hello, Loaded, Plan, Stop

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from veltair.runtime._native import ipc
    from veltair.runtime.server.fabric import Fabric, Link

MOST_DEATHS = 3  # of one place within DEATHS_NS: what kills every worker kills the next one too
DEATHS_NS = 60_000_000_000

_LOGGER = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Member:
    """One worker process.

    Attributes:
        place: in the segment's worker table.
        link: to it.
        pid: 0 until it has said hello, or been started here.
        descriptor: of its process, readable when it has ended; -1 until `pid` is known.
        loaded: its answer to the plan; None until then.
        process: of one that came for one that had died: a child of this process.
    """

    place: int
    link: Link
    pid: int = 0
    descriptor: int = -1
    loaded: Loaded | None = None
    process: subprocess.Popen[bytes] | None = None


class Membership:
    """The workers of a server. One thread owns it, rank 0's main one."""

    def __init__(
        self,
        fabric: Fabric,
        segment: ipc.Segment,
        board: ipc.Board,
        plan_for: Callable[[int, bool], Plan],
        dead_after_ns: int,
    ) -> None:
        """Takes the ranks that `mpirun` started.

        Args:
            fabric: joined.
            segment: for the workers' signs of life.
            board: told of deaths.
            plan_for: what the worker of a place, which may be a replacement, is to do.
            dead_after_ns: silence after which a worker is ended.
        """
        self._segment = segment
        self._board = board
        self._plan_for = plan_for
        self._dead_after_ns = dead_after_ns
        self._deaths: dict[int, list[int]] = {}
        self._last_check_ns = time.monotonic_ns()
        self.members = {
            place: Member(place=place, link=link) for place, link in enumerate(fabric.workers())
        }

    def descriptors(self) -> dict[int, Member]:
        """Returns the processes' descriptors, readable when one has ended."""
        return {m.descriptor: m for m in self.members.values() if m.descriptor >= 0}

    def is_loaded(self) -> bool:
        """Whether every worker has answered its plan."""
        return all(member.loaded is not None for member in self.members.values())

    def receive(self) -> list[Loaded]:
        """Takes the messages that are there; answers a hello with the plan."""
        answers = []
        for member in list(self.members.values()):
            if member.loaded is not None:
                continue
            try:
                message = member.link.receive()
            except LinkError:
                if member.descriptor < 0:  # it died before its hello: no descriptor can tell
                    self.bury(member)
                continue
            if isinstance(message, Hello):
                self._welcome(member, message)
            elif isinstance(message, Loaded):
                member.loaded = message
                answers.append(message)
        return answers

    def bury(self, member: Member) -> None:
        """Takes out a worker whose process has ended; its cores and its task go back."""
        del self.members[member.place]
        if member.descriptor >= 0:
            os.close(member.descriptor)
        if member.process is not None:
            member.process.wait()
        self._board.remove_worker(member.place)
        self._deaths.setdefault(member.place, []).append(time.monotonic_ns())

    def replace(self, place: int) -> bool:
        """Starts a replacement, unless too many have died here; returns whether it did."""
        since_ns = time.monotonic_ns() - DEATHS_NS
        recent = [death_ns for death_ns in self._deaths.get(place, ()) if death_ns > since_ns]
        if len(recent) >= MOST_DEATHS:
            _LOGGER.error(
                "worker %d died %d times within a minute and is not replaced; %d workers serve",
                place,
                len(recent),
                len(self.members),
            )
            return False
        try:
            link, process = start_replacement()
        except OSError as error:
            _LOGGER.error(
                "worker %d can't be replaced (%s); %d workers serve",
                place,
                error,
                len(self.members),
            )
            return False
        self.members[place] = Member(
            place=place,
            link=link,
            pid=process.pid,
            descriptor=os.pidfd_open(process.pid),  # not reaped yet, so that there is one
            process=process,
        )
        return True

    def end_silent(self, now_ns: int) -> None:
        """Kills workers that have given no sign of life for too long; their end is seen as any."""
        paused = now_ns - self._last_check_ns > self._dead_after_ns // 2
        self._last_check_ns = now_ns
        if paused:
            return  # this process did not run either: the machine slept
        statuses = self._segment.workers()
        for member in self.members.values():
            status = statuses[member.place]
            if member.loaded is None or status.pid == 0:
                continue
            silent_ns = now_ns - status.beat_ns
            if silent_ns > self._dead_after_ns:
                _LOGGER.error(
                    "worker %d (process %d) has been silent for %.1f s and is ended",
                    member.place,
                    member.pid,
                    silent_ns / 1e9,
                )
                _kill(member)

    def stop(self) -> None:
        """Tells all workers to leave MPI and to end when the segment says so."""
        for member in self.members.values():
            with suppress(LinkError):
                member.link.send(Stop())

    def kill(self) -> None:
        """Kills all workers that are left."""
        for member in self.members.values():
            _kill(member)

    def _welcome(self, member: Member, hello: Hello) -> None:
        if member.descriptor < 0:
            try:
                member.descriptor = os.pidfd_open(hello.pid)
            except ProcessLookupError:
                self.bury(member)
                return
            member.pid = hello.pid
        try:
            member.link.send(self._plan_for(member.place, member.process is not None))
        except LinkError:  # it has died or hangs: its end is seen as any
            _kill(member)


def _kill(member: Member) -> None:
    if member.descriptor >= 0:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(member.descriptor, signal.SIGKILL)
