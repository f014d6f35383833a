"""Child processes that never outlive the command that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from veltair.runtime.server.guardian import stop_with_parent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import IO

STOP_S = 30.0
KILL_S = 5.0


@contextmanager
def child(
    command: Sequence[str],
    stdout: IO[str] | int | None = None,
    stderr: IO[str] | int | None = None,
    *,
    pass_fds: Sequence[int] = (),
    variables: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """Runs a command in a session of its own, and ends that session on the way out.

    A session of its own, so that a Ctrl-C reaches this process alone and the children are stopped
    in their order. They get SIGTERM first, which a server answers by draining; also from the
    kernel, should this process be killed.

    Args:
        command: program and arguments.
        stdout: as of `subprocess.Popen`.
        stderr: as of `subprocess.Popen`.
        pass_fds: as of `subprocess.Popen`.
        variables: of its environment, beside this process's.

    Yields:
        The process.
    """
    process = subprocess.Popen(
        command,
        stdout=stdout,
        stderr=stderr,
        text=True,
        start_new_session=True,
        pass_fds=pass_fds,
        env={**os.environ, **(variables or {})},
        preexec_fn=stop_with_parent,  # noqa: PLW1509 # one prctl, nothing of Python's
    )
    try:
        yield process
    finally:
        stop(process)


def stop(process: subprocess.Popen[str]) -> None:
    """Ends a process and whatever is left of its session."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # the session that it leads, also after its end
    process.wait(KILL_S)
    if process.stdout is not None:
        process.stdout.close()


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Makes SIGTERM unwind the stack as Ctrl-C does, so that the children are ended."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def python(module: str, *arguments: str) -> list[str]:
    """Returns the command that runs a module with this interpreter."""
    return [sys.executable, "-m", module, *arguments]
