"""Keeps a rank alive while `mpirun` ends, so that accepted queries are still answered.

`mpirun` that gets SIGTERM or Ctrl-C sends SIGTERM to its ranks and, a quarter of a second later,
SIGKILL, and no option changes that. So the process that `mpirun` starts is only a guardian: it
starts the rank as a child in a session of its own, hands signals on, and ends when the rank does.
The rank leaves MPI at the first signal and drains in its own time. Where `mpirun` itself is killed,
the guardian sees that it has ended and tells the rank as if by SIGTERM.

This module runs before anything else is imported: a process is forked best while it is small.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
from typing import NoReturn

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_PR_SET_PDEATHSIG = 1


def enter_guarded(*, ends_server: bool) -> None:
    """Returns in a child of this process; this process itself only guards it, and never returns.

    Args:
        ends_server: whether the server ends with this rank, so that its death is `mpirun`'s matter.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    _undo_binding()
    guardian = os.getpid()
    mpirun = os.pidfd_open(os.getppid()) if _is_mpiruns() else None
    # Blocked until the handlers are there, or the child is out of reach of the signals.
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    rank = os.fork()
    if rank:
        _guard(rank, mpirun, ends_server=ends_server)
    if mpirun is not None:
        os.close(mpirun)
    os.setsid()
    # SIGKILL on the guardian is `mpirun`'s last word: for the rank it means the same as SIGTERM.
    stop_with_parent()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    if os.getppid() != guardian:
        os._exit(1)


def stop_with_parent() -> None:
    """Lets the kernel send this process SIGTERM when its parent ends, however it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _is_mpiruns() -> bool:
    return "OMPI_COMM_WORLD_RANK" in os.environ


def _undo_binding() -> None:
    """Takes the cores that `mpirun` itself may use; it binds its ranks to one core or some.

    Workers share all cores by the segment's core table, and pin their threads themselves.
    """
    if _is_mpiruns():
        os.sched_setaffinity(0, os.sched_getaffinity(os.getppid()))


def _guard(rank: int, mpirun: int | None, *, ends_server: bool) -> NoReturn:
    for number in _FORWARDED:
        signal.signal(number, lambda number, _frame: os.kill(rank, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    ended = os.pidfd_open(rank)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    if mpirun is not None:
        poll.register(mpirun, select.POLLIN)
    # Until the rank is reaped below its number is not given to another process: hence WNOWAIT.
    if ended not in dict(poll.poll()):
        os.kill(rank, signal.SIGTERM)
    os.waitid(os.P_PID, rank, os.WEXITED | os.WNOWAIT)
    for number in _FORWARDED:
        signal.signal(number, signal.SIG_IGN)
    _, status = os.waitpid(rank, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0 and not ends_server:
        # Rank 0 sees to it. Told of it, `mpirun` would print a warning and end with its signal,
        # however well the server went on.
        code = 0
    os._exit(code if code >= 0 else 128 - code)
