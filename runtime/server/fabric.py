"""What joins the server's processes: MPI, and pipes to those that rank 0 itself has started.

Open MPI spins in every blocking call, so nothing here blocks: messages are looked for with a probe
from one thread a rank, at the pace of its heartbeat. It is set up so that waiting costs nothing,
and left without blocking.

Replacements of workers that died are not MPI's: `MPI_Comm_spawn` may never return where a process
dies meanwhile (1 in some 50 pairs of deaths, with Open MPI 5.0.11: it waits in `PMIx_Lookup` for a
process that waits in `PMIx_Init`), and rank 0 has more to do than to wait for it.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import subprocess
import sys
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mpi4py import MPI

REPLACEMENT = "--replacement"  # the option of a worker that rank 0 has started: its end of a pipe
_TAG = 1
# A message of a pipe that stands still for so long is as good as its process's death.
_STUCK_S = 5


class LinkError(Exception):
    """The process at the other end has ended, or takes nothing."""


class Link(Protocol):
    """A connection to one other process of the server."""

    def send(self, message: object) -> None:
        """Sends a picklable object; small ones leave at once.

        Raises:
            LinkError: it can't be sent.
        """

    def receive(self) -> Any:  # noqa: ANN401 # what `send` took
        """Returns the next message, or None if there is none now.

        Raises:
            LinkError: there can be no more.
        """


class Home(Protocol):
    """How a worker belongs to its server."""

    def dispatcher(self) -> Link:
        """Returns the link to rank 0."""

    @property
    def leaving(self) -> bool:
        """Whether `leave` has been called: no more messages."""

    def leave(self) -> None:
        """Begins to leave; idempotent, and does not block."""

    def has_left(self, timeout_s: float) -> bool:
        """Waits until this process has left, for `timeout_s` at most; says whether it has."""


@dataclass(frozen=True, kw_only=True)
class _MpiLink:
    """A communicator and the other rank's number in it."""

    communicator: MPI.Comm
    rank: int
    error: type[Exception]

    def send(self, message: object) -> None:
        try:
            self.communicator.send(message, dest=self.rank, tag=_TAG)
        except self.error as error:
            raise LinkError(str(error)) from error

    def receive(self) -> Any:  # noqa: ANN401 # what `send` took
        try:
            if not self.communicator.iprobe(source=self.rank, tag=_TAG):
                return None
            return self.communicator.recv(source=self.rank, tag=_TAG)
        except self.error as error:
            raise LinkError(str(error)) from error


class _PipeLink:
    """One end of a pair of sockets."""

    def __init__(self, end: socket.socket) -> None:
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            end.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", _STUCK_S, 0))
        self._connection = Connection(end.detach())

    def send(self, message: object) -> None:
        try:
            self._connection.send(message)
        except OSError as error:
            raise LinkError(str(error)) from error

    def receive(self) -> Any:  # noqa: ANN401 # what `send` took
        try:
            return self._connection.recv() if self._connection.poll() else None
        except (OSError, EOFError) as error:
            raise LinkError(str(error)) from error


def start_replacement() -> tuple[Link, subprocess.Popen[bytes]]:
    """Starts one more worker as a child of this process; returns the link to it and the process.

    Raises:
        OSError: it can't be started.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        link = _PipeLink(ours)
        descriptor = theirs.fileno()
        command = ["-m", "veltair.runtime.server.main", REPLACEMENT, str(descriptor)]
        process = subprocess.Popen(
            [sys.executable, *command], stdin=subprocess.DEVNULL, pass_fds=[descriptor]
        )
    return link, process


class Replacement:
    """The membership of a worker that rank 0 has started, by the pipe that it was given."""

    def __init__(self, descriptor: int) -> None:
        """Takes over the descriptor that `start_replacement` has named."""
        self._link = _PipeLink(socket.socket(fileno=descriptor))
        self._leaving = False

    def dispatcher(self) -> Link:
        """Returns the link to rank 0."""
        return self._link

    @property
    def leaving(self) -> bool:
        """Whether `leave` has been called: no more messages."""
        return self._leaving

    def leave(self) -> None:
        """Leaves: there is nothing to wait for."""
        self._leaving = True

    def has_left(self, timeout_s: float) -> bool:
        """Leaves; True."""
        self.leave()
        return True


class Fabric:
    """This process's membership in MPI. One thread uses it, but for `leave`."""

    def __init__(self) -> None:
        """Joins MPI."""
        _prepare_environment()
        import mpi4py  # noqa: PLC0415 # joins MPI, which reads the environment set above

        mpi4py.rc.initialize = True
        mpi4py.rc.finalize = False  # `leave` does it: mpi4py would hold the interpreter meanwhile
        mpi4py.rc.threads = True
        from mpi4py import MPI  # noqa: PLC0415 # as above

        self._mpi = MPI
        self._leaving: threading.Thread | None = None
        for communicator in (MPI.COMM_WORLD, MPI.COMM_SELF):
            communicator.Set_errhandler(MPI.ERRORS_RETURN)
        self.rank: int = MPI.COMM_WORLD.rank
        self.size: int = MPI.COMM_WORLD.size

    def broadcast(self, text: str) -> str:
        """Returns rank 0's text on every rank. Blocks, spinning: for the start only."""
        answer: str = self._mpi.COMM_WORLD.bcast(text, root=0)
        return answer

    def dispatcher(self) -> Link:
        """Returns a worker's link to rank 0."""
        return self._link(0)

    def workers(self) -> list[Link]:
        """Returns rank 0's links to the workers that it was started with."""
        return [self._link(rank) for rank in range(1, self.size)]

    def _link(self, rank: int) -> Link:
        return _MpiLink(communicator=self._mpi.COMM_WORLD, rank=rank, error=self._mpi.Exception)

    @property
    def leaving(self) -> bool:
        """Whether `leave` has been called: no more messages."""
        return self._leaving is not None

    def leave(self) -> None:
        """Begins to leave MPI, in a thread of its own; idempotent.

        All ranks must leave for it to end, and `mpirun` must answer, which it does not while it is
        ending: so nobody waits for it but `has_left`.
        """
        if self._leaving is None:
            self._leaving = threading.Thread(target=_finalize, name="leave-mpi", daemon=True)
            self._leaving.start()

    def has_left(self, timeout_s: float) -> bool:
        """Waits until this process has left MPI, for `timeout_s` at most."""
        self.leave()
        assert self._leaving is not None
        self._leaving.join(timeout_s)
        return not self._leaving.is_alive()


def rank_from_environment() -> tuple[int, int]:
    """Returns rank and number of ranks as `mpirun` has told them; (0, 1) without `mpirun`."""
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
    return rank, int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))


def _prepare_environment() -> None:
    """Chooses Open MPI's transports, unless the user has.

    Plain TCP carries the few control messages. Shared memory would leave files behind after a kill,
    and only looking for the network cards of clusters takes a second of start-up.
    """
    defaults = {
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "self,tcp",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_MCA_mpi_ft_enable": "1",
    }
    ranks = os.environ.get("OMPI_COMM_WORLD_SIZE")
    if ranks == os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE"):
        defaults["OMPI_MCA_btl_tcp_if_include"] = "lo"
    for name, value in defaults.items():
        os.environ.setdefault(name, value)


def _finalize() -> None:
    # Through ctypes, which lets go of the interpreter's lock during the call; mpi4py doesn't.
    ctypes.CDLL("libmpi.so.40").MPI_Finalize()
