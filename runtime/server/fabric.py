"""MPI as the server uses it: set up so that waiting costs nothing, and left without blocking.

Open MPI spins in every blocking call, so nothing here blocks: messages are looked for with a probe
from one thread a rank, at the pace of its heartbeat.
"""

from __future__ import annotations

import ctypes
import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpi4py import MPI

_TAG = 1


@dataclass(frozen=True, kw_only=True)
class Link:
    """A connection to one other rank: a communicator and the rank's number in it."""

    communicator: MPI.Comm
    rank: int

    def send(self, message: object) -> None:
        """Sends a picklable object; small ones leave at once."""
        self.communicator.send(message, dest=self.rank, tag=_TAG)

    def receive(self) -> Any:  # noqa: ANN401 # what `send` took
        """Returns the next message, or None if there is none now."""
        if not self.communicator.iprobe(source=self.rank, tag=_TAG):
            return None
        return self.communicator.recv(source=self.rank, tag=_TAG)


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
        parent = MPI.Comm.Get_parent()
        self.is_replacement = parent != MPI.COMM_NULL
        self._home = parent if self.is_replacement else MPI.COMM_WORLD
        for communicator in (MPI.COMM_WORLD, MPI.COMM_SELF, self._home):
            communicator.Set_errhandler(MPI.ERRORS_RETURN)
        self.rank: int = MPI.COMM_WORLD.rank
        self.size: int = MPI.COMM_WORLD.size
        self.error: type[Exception] = MPI.Exception

    def broadcast(self, text: str) -> str:
        """Returns rank 0's text on every rank. Blocks, spinning: for the start only."""
        answer: str = self._home.bcast(text, root=0)
        return answer

    def dispatcher(self) -> Link:
        """Returns a worker's link to rank 0."""
        return Link(communicator=self._home, rank=0)

    def workers(self) -> list[Link]:
        """Returns rank 0's links to the workers that it was started with."""
        return [Link(communicator=self._home, rank=rank) for rank in range(1, self.size)]

    def spawn(self, command: list[str]) -> Link:
        """Starts one more process; only the caller takes part, the other ranks are not disturbed.

        Raises:
            Exception: of the class `error`, where it can't be started.
        """
        link = self._mpi.COMM_SELF.Spawn(command[0], args=command[1:], maxprocs=1)
        link.Set_errhandler(self._mpi.ERRORS_RETURN)
        return Link(communicator=link, rank=0)

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
