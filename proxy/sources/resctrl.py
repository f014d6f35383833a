"""A source over resctrl: what a group of threads holds of each L3 and moves to and from memory.

A monitoring group is a folder: threads whose numbers are written to its `tasks`, and all that they
start, are counted in its `mon_data/mon_L3_NN`, one folder a cache, until it is removed.

Reference: Linux, Documentation/filesystems/resctrl.rst.
"""

from __future__ import annotations

import errno
import os
import time
from typing import TYPE_CHECKING

from veltair.proxy.sources.reading import Count, Missing, Reading, Scope, Stopwatch
from veltair.runtime.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from veltair.proxy.sources.computer import Computer

# File: count, and whether it only ever grows.
_FILES = {
    "llc_occupancy": ("l3_occupancy", False),
    "mbm_total_bytes": ("memory_moved", True),
    "mbm_local_bytes": ("memory_moved_local", True),
}
_NO_ROOM = frozenset({errno.ENOSPC, errno.EBUSY})


class Folders:
    """How a monitoring group is made and removed: the kernel fills and empties the folder."""

    def make(self, group: Path) -> None:
        """Makes it.

        Raises:
            OSError: the kernel refuses.
        """
        group.mkdir()

    def remove(self, group: Path) -> None:
        """Removes it.

        Raises:
            OSError: the kernel refuses.
        """
        group.rmdir()


class Resctrl:
    """One monitoring group over the threads of some processes."""

    def __init__(
        self,
        pids: Sequence[int],
        computer: Computer,
        clock: Callable[[], int] = time.monotonic_ns,
        folders: Folders | None = None,
    ) -> None:
        """Makes the group and puts all threads of the processes into it.

        Args:
            pids: processes.
            computer: whose resctrl and processes these are.
            clock: monotonic, in ns.
            folders: what makes and removes groups; the kernel if not given.

        Raises:
            SourceError: the kernel refuses, or a process isn't there.
        """
        self.name = "resctrl"
        self._clock = clock
        self._folders = folders or Folders()
        self._where = f"processes {', '.join(map(str, pids))}"
        name = f"veltair-{os.getpid()}-{'-'.join(map(str, pids))}"
        self._group = computer.resctrl / "mon_groups" / name
        try:
            self._folders.make(self._group)
        except OSError as error:
            raise SourceError(_refused(self._group, error)) from error
        try:
            for pid in pids:
                self._take(pid, computer)
            self._caches = sorted((self._group / "mon_data").glob("mon_L3_*"))
            if not self._caches:
                raise SourceError(f"{self._group}: no L3 is monitored; use another source")
        except BaseException:
            self.close()
            raise
        self._last: dict[tuple[str, str], int] = {}
        self._watch = Stopwatch(clock())
        self._collect([], [])  # from where bytes are counted

    def read(self) -> Reading:
        """Returns the occupancy now, and the bytes since the last read.

        Raises:
            SourceError: the group is gone.
        """
        time_ns, elapsed_ns = self._watch.lap(self._clock())
        counts: list[Count] = []
        missing: list[Missing] = []
        self._collect(counts, missing)
        return Reading(
            time_ns=time_ns, elapsed_ns=elapsed_ns, counts=tuple(counts), missing=tuple(missing)
        )

    def close(self) -> None:
        """Removes the group; its threads go back to where they were."""
        if self._group.exists():
            self._folders.remove(self._group)

    def _take(self, pid: int, computer: Computer) -> None:
        threads = computer.tasks_of(pid)
        if not threads:
            raise SourceError(f"process {pid}: there is none; give one that runs")
        for tid in sorted(threads):
            try:
                with (self._group / "tasks").open("a") as tasks:
                    tasks.write(f"{tid}\n")
            except ProcessLookupError:  # it has ended since
                continue
            except OSError as error:
                raise SourceError(_refused(self._group, error)) from error

    def _collect(self, counts: list[Count], missing: list[Missing]) -> None:
        for cache in self._caches:
            where = f"{self._where} in L3 {int(cache.name.rpartition('_')[2])}"
            for file, (name, grows) in _FILES.items():
                if not (cache / file).exists() and cache.is_dir():
                    continue  # this processor doesn't count it
                value = self._value(cache / file, grows=grows)
                if isinstance(value, str):
                    missing.append(Missing(name=name, where=where, reason=value))
                    continue
                counts.append(
                    Count(
                        name=name,
                        value=float(value),
                        unit="bytes",
                        scope=Scope.COMPLEX,
                        where=where,
                        confidence=1.0,
                    )
                )

    def _value(self, file: Path, *, grows: bool) -> int | str:
        """The value of a file, since the last time if it grows; or why there is none."""
        key = (file.parent.name, file.name)
        try:
            text = file.read_text().strip()
        except OSError as error:
            raise SourceError(
                f"{file}: can't be read ({error.strerror}): the group was removed or resctrl "
                "unmounted; open the source anew"
            ) from error
        if not text.isdigit():
            self._last.pop(key, None)
            return f"the kernel says {text!r}: the hardware lacks a free counter, or had an error"
        now = int(text)
        if not grows:
            return now
        before = self._last.get(key)
        self._last[key] = now
        if before is None:
            return "there is no value before this one to count from"
        if now < before:
            return f"the count went back, from {before} to {now}"
        return now - before


def _refused(group: Path, error: OSError) -> str:
    if error.errno in _NO_ROOM:
        return (
            f"{group}: all monitoring groups that the hardware has are in use; remove one in "
            "mon_groups"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{group}: can't be written; run as root, or let this user write to mon_groups"
    if error.errno == errno.EEXIST:
        return f"{group}: is there already; close the source that has it, or remove the folder"
    return f"{group}: {error.strerror or error}; is resctrl mounted and has L3 monitoring?"
