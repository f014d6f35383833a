"""Demos as a user runs them, and as a user interrupts them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def running(folder: Path, *command: str) -> Iterator[subprocess.Popen[str]]:
    """A demo's module and its options, run in a folder."""
    process = subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def finished(folder: Path, *command: str) -> str:
    """The output of a demo that must end well."""
    with running(folder, *command) as process:
        output, _ = process.communicate()
    assert process.returncode == 0, output
    return output


def check_interrupt_at(step: int, number: signal.Signals, folder: Path, *command: str) -> None:
    """Interrupts a demo as it begins a step: nothing that it started may be left."""
    with running(folder, *command) as process:
        assert process.stdout
        for line in process.stdout:
            if line.startswith(f"[{step}/5]"):
                break
        started = psutil.Process(process.pid).children(recursive=True)
        assert len(started) > 3  # mpirun and three ranks
        os.kill(process.pid, number)
        assert process.wait(60) == 130
        alive = psutil.wait_procs(started, timeout=5)[1]
        assert alive == []
