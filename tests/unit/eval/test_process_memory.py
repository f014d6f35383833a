"""The memory of a process and what it starts: shared pages count once."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from veltair.eval import process_memory
from veltair.eval.process_memory import tree_bytes, watch_memory

if TYPE_CHECKING:
    import pytest

MB = 1_000_000
FORKS = """
import os, sys
block = bytearray(b"x") * 200_000_000
child = os.fork()
if not child:
    own = bytearray(b"y") * 100_000_000
    print("ready", flush=True)
sys.stdin.read()
if child:
    os.waitpid(child, 0)
"""


def test_what_a_fork_shares_counts_once() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        found = tree_bytes(process.pid)
        process.stdin.close()
        assert process.wait() == 0
    assert 300 * MB < found < 400 * MB
    assert tree_bytes(process.pid) == 0


def test_the_peak_is_kept_until_the_process_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import sys, time; block = bytearray(b'x') * 200_000_000; sys.stdin.read(); del block; "
        "time.sleep(0.5)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, text=True
    ) as process:
        peaked = process.stdin
        assert peaked is not None

        def seen(pid: int) -> int:
            found = look(pid)
            if found > 200 * MB:
                peaked.close()  # and the block goes
            return found

        look = process_memory.process_bytes
        monkeypatch.setattr(process_memory, "process_bytes", seen)
        peak = watch_memory(process)
    assert process.returncode == 0
    assert 200 * MB < peak < 300 * MB
