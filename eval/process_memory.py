"""The memory of a command and all that it starts, watched while it runs."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    import subprocess

_LOOK_S = 0.05
_KIB = 1 << 10


def watch_memory(process: subprocess.Popen[str]) -> int:
    """Waits for a process and returns the most that its tree had at a look, in bytes.

    What processes share is counted once (the proportional set size), pages of mapped files too.
    """
    peak = 0
    while process.poll() is None:
        peak = max(peak, tree_bytes(process.pid))
        time.sleep(_LOOK_S)
    return peak


def tree_bytes(pid: int) -> int:
    """Returns the proportional set size of a process and its descendants; 0 where it has ended."""
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        return sum(_own_bytes(each.pid) for each in (root, *root.children(recursive=True)))
    return 0


def _own_bytes(pid: int) -> int:
    # It ended since, or is ending, and then the kernel says so in several ways.
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * _KIB
    return 0
