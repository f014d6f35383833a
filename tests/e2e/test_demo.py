"""`make demo` as a user runs it, and as a user interrupts it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the demos run: what the first compiles is the second's."""
    return tmp_path_factory.mktemp("demo")


@contextlib.contextmanager
def demo(folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "veltair.eval.demo", "--model", "mobilenet_v2"]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_both_engines_agree_and_everything_is_stopped(folder: Path) -> None:
    with demo(folder) as process:
        output, _ = process.communicate()
        assert process.returncode == 0, output
    rows = re.findall(r"class +(\d+) +(-?[\d.]+) +class +(\d+) +(-?[\d.]+)", output)
    assert len(rows) == 5, output
    for ours, our_score, theirs, their_score in rows:
        assert ours == theirs
        assert float(our_score) == pytest.approx(float(their_score), abs=0.01)
    assert "seeded, not trained" in output
    assert re.search(r"verdict\W+(VALID|INVALID)\b", output), output
    assert re.search(r"QoS satisfied\W+\d+\.\d+%", output), output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_stops_every_rank(folder: Path, number: signal.Signals) -> None:
    with demo(folder) as process:
        assert process.stdout
        for line in process.stdout:
            if line.startswith("[4/5]"):
                break
        started = psutil.Process(process.pid).children(recursive=True)
        assert len(started) > 3  # mpirun and three ranks
        os.kill(process.pid, number)
        assert process.wait(60) == 130
        alive = psutil.wait_procs(started, timeout=5)[1]
        assert alive == []
