"""Processor time of other processes, to the nanosecond."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable

_WHOLE_PROCESS = 2  # CPUCLOCK_SCHED, of all threads; see clock_getcpuclockid(3)


def processor_ns(pids: Iterable[int]) -> dict[int, int]:
    """Returns the processor time that each process has used; those that have ended are left out."""
    found = {}
    for pid in pids:
        with suppress(OSError):
            found[pid] = time.clock_gettime_ns((~pid << 3) | _WHOLE_PROCESS)
    return found


def used_ns(before: dict[int, int], after: dict[int, int]) -> int:
    """Returns what was used between two readings, all of it by processes that began since."""
    return sum(now - before.get(pid, 0) for pid, now in after.items())


def tree(pid: int) -> list[int]:
    """Returns a process and its descendants; none where it has ended."""
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        return [pid, *(each.pid for each in root.children(recursive=True))]
    return []
