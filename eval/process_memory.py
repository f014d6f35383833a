"""The memory of a command and all that it starts, watched while it runs."""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil

_LOOK_S = 0.1
_REST = 25  # times as long as a look: it walks the page tables, which the command waits for
_KIB = 1 << 10


def watch_memory(process: subprocess.Popen[str]) -> int:
    """Waits for a process and returns the most that its tree had at a look, in bytes.

    What processes share is counted once (the proportional set size), pages of mapped files too.
    """
    peak, rest_s = 0, 0.0
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(rest_s)
            return peak
        begun_s = time.monotonic()
        tree = _tree(process.pid)
        # With what is shared counted for each, which is cheap to know: at least as much.
        if sum(_resident_bytes(each) for each in tree) > peak:
            peak = max(peak, sum(process_bytes(each.pid) for each in tree))
        rest_s = max(_LOOK_S, _REST * (time.monotonic() - begun_s))


def tree_bytes(pid: int) -> int:
    """Returns the proportional set size of a process and its descendants; 0 where it has ended."""
    return sum(process_bytes(each.pid) for each in _tree(pid))


def _tree(pid: int) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    return []


def _resident_bytes(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(process.memory_info().rss)
    return 0


def process_bytes(pid: int, field: str = "Pss") -> int:
    """Returns the memory of one process; 0 where it has ended.

    Args:
        pid: of the process.
        field: of `/proc/PID/smaps_rollup`: which memory; the proportional set size by default.
    """
    # It ended since, or is ending, and then the kernel says so in several ways.
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * _KIB
    return 0
