"""Runs a server and leaves nothing of it behind: `python -m ...keeper CPUS FOLDER COMMAND...`.

Servers start processes that start others, some in sessions of their own. This process adopts every
descendant whose parent ends, so it finds them all, and ends them all when the server ends, when it
is told to (SIGTERM), and when whoever started it ends, however it ends. Its folder of temporary
files, which is also its home, goes with it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from typing import NoReturn

import psutil

from veltair.runtime.server.guardian import stop_with_parent

STOP_S = 10.0
_GRACE_S = 2.0  # those that clean up after the others, such as Python's trackers of resources
_LOOK_S = 0.02
_PR_SET_CHILD_SUBREAPER = 36
_SHORT_FOLDER = "/tmp"  # some servers put sockets there, whose paths must be short


def main() -> NoReturn:
    """Runs a command in a folder, bound to processors."""
    os.sched_setaffinity(0, [int(cpu) for cpu in sys.argv[1].split(",")])
    os.chdir(sys.argv[2])
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGTERM, _leave)
    with tempfile.TemporaryDirectory(prefix="peer-", dir=_SHORT_FOLDER) as folder:
        try:
            code = _run(sys.argv[3:], folder)
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            _end_all()
    sys.exit(code if code >= 0 else 128 - code)


def _leave(_number: int, _frame: object) -> NoReturn:
    sys.exit(0)


def _run(command: list[str], folder: str) -> int:
    server = subprocess.Popen(
        command,
        env={**os.environ, "TMPDIR": folder, "HOME": folder},
        preexec_fn=stop_with_parent,  # noqa: PLW1509 # one prctl, nothing of Python's
    )
    try:
        return server.wait()
    finally:
        server.terminate()
        with suppress(subprocess.TimeoutExpired):
            server.wait(STOP_S)


def _end_all() -> None:
    """Waits a little for the descendants to end with the server, then kills all there are."""
    kill_s = time.monotonic() + _GRACE_S
    while left := psutil.Process().children(recursive=True):
        for process in left if time.monotonic() > kill_s else ():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(_LOOK_S)


if __name__ == "__main__":
    main()
