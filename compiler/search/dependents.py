"""Processes that serve a search and must not outlive it."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def depend_on(parent: int) -> None:
    """Ends this process when its parent does, whatever ended that, and leaves Ctrl-C to it.

    Ctrl-C reaches a whole process group; the parent ends what serves it. A hung kernel or compiler
    reads no pipe, so the operating system has to see to it that nothing is left.

    Args:
        parent: the process that started this one.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before we asked
        os._exit(1)
