"""Sources over perf_event_open: threads of processes, and units that cores share.

Reference: Linux, perf_event_open(2); `runtime/native/proxy/perf.h` makes the calls.
"""

from __future__ import annotations

import errno
import math
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from veltair.proxy.sources import refusal
from veltair.proxy.sources.reading import Count, Missing, Reading, Scope, Stopwatch
from veltair.proxy.topology import cpu_ranges
from veltair.runtime._native import proxy
from veltair.runtime.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from veltair.proxy.sources.computer import Computer
    from veltair.proxy.sources.events import Event, Group, UnitEvents

_RESCAN_NS = 1_000_000_000
_NOBODY = -1  # no thread, or no cpu, in perf_event_open's words


class Counted:
    """One group on one thread or cpu."""

    def __init__(self, group: Group, *, tid: int = _NOBODY, cpu: int = _NOBODY) -> None:
        """Begins to count.

        Raises:
            OSError: the kernel refuses.
        """
        self._group = group
        self._counts = np.zeros(len(group))
        own = tid == threading.get_native_id()  # 0: read without a system call where that works
        self._native = proxy.PerfGroup([_native(each) for each in group], 0 if own else tid, cpu)

    def add_to(self, totals: dict[str, Total]) -> None:
        """Adds what was counted since the last time.

        Raises:
            OSError: the group counts no more.
        """
        times = self._native.read(self._counts)
        share = times.running_ns / times.enabled_ns if times.enabled_ns else 1.0
        for event, value in zip(self._group, self._counts.tolist(), strict=True):
            total = totals.setdefault(event.name, Total(unit=event.unit))
            if math.isnan(value):
                total.uncounted += 1
            else:
                total.value += event.weight * value
            total.confidence = min(total.confidence, share)


@dataclass(kw_only=True)
class Total:
    """One count, summed over groups.

    Attributes:
        unit: of the count.
        value: of all that counted.
        uncounted: parts that had no time on a hardware counter.
        confidence: of the part that counted the least.
    """

    unit: str
    value: float = 0.0
    uncounted: int = 0
    confidence: float = 1.0


@dataclass(kw_only=True)
class Place:
    """What is counted together and told as one.

    Attributes:
        scope: of its counts.
        where: which.
        members: that are summed.
    """

    scope: Scope
    where: str
    members: list[Counted] = field(default_factory=list)

    def read(self, counts: list[Count], missing: list[Missing]) -> None:
        """Appends its counts, and those that can't be given.

        Raises:
            OSError: a member counts no more.
        """
        totals: dict[str, Total] = {}
        for member in self.members:
            member.add_to(totals)
        for name, total in totals.items():
            if total.uncounted:
                reason = (
                    f"{total.uncounted} of its groups had no time on the hardware's counters: "
                    "others use them all; end other profilers, or the watchdog that takes one "
                    "(sysctl kernel.nmi_watchdog=0)"
                )
                missing.append(Missing(name=name, where=self.where, reason=reason))
                continue
            counts.append(
                Count(
                    name=name,
                    value=total.value,
                    unit=total.unit,
                    scope=self.scope,
                    where=self.where,
                    confidence=total.confidence,
                )
            )


class PerfUnits:
    """Events of units that cores share, each complex told apart."""

    def __init__(
        self,
        units: Sequence[UnitEvents],
        cores: Sequence[int],
        computer: Computer,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Begins to count the units that serve some cores.

        Args:
            units: what there is.
            cores: whose complexes are counted; units of the machine always are.
            computer: whose files say who shares what.
            clock: monotonic, in ns.

        Raises:
            SourceError: the kernel refuses, or there are no units for these cores.
        """
        self.name = "perf-uncore"
        self._places: dict[str, Place] = {}
        try:
            for unit in units:
                for cpu in unit.device.cpus():
                    self._count(unit, cpu, cores, computer)
        except OSError as error:
            why = refusal.of_event(error, computer.paranoid(), whole_cpu=True)
            raise SourceError(f"{self.name}: {why}") from error
        if not self._places:
            raise SourceError(
                f"no unit counts for the cores {cpu_ranges(cores)}: give cores of this machine"
            )
        self._clock = clock
        self._watch = Stopwatch(clock())

    def read(self) -> Reading:
        """Returns what was counted since the last read."""
        return read_places(self.name, self._places.values(), self._watch.lap(self._clock()))

    def close(self) -> None:
        """Stops counting."""
        self._places.clear()

    def _count(self, unit: UnitEvents, cpu: int, cores: Sequence[int], computer: Computer) -> None:
        if unit.per_complex:
            cache = computer.cache_of(cpu)
            if cache is None:
                raise SourceError(
                    f"who shares the L3 of processor {cpu} isn't told: {unit.device.name} can't "
                    "be said to count these cores; use another source"
                )
            if not set(cache.cpus) & set(cores):
                return
            place = Place(scope=Scope.COMPLEX, where=f"cores {cpu_ranges(cache.cpus)}")
        else:
            place = Place(scope=Scope.MACHINE, where="all")
        place = self._places.setdefault(place.where, place)
        place.members.append(Counted(unit.group, cpu=cpu))


class PerfTasks:
    """Events of the threads of some processes, each process told apart.

    Threads are looked for again every second: one that began meanwhile is counted from then on, one
    that ended until then.
    """

    def __init__(
        self,
        name: str,
        groups: Sequence[Group],
        pids: Sequence[int],
        computer: Computer,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Begins to count.

        Args:
            name: of the source.
            groups: what is counted for each thread.
            pids: processes.
            computer: whose files name their threads.
            clock: monotonic, in ns.

        Raises:
            SourceError: the kernel refuses, or a process isn't there.
        """
        self.name = name
        self._groups = tuple(groups)
        self._computer = computer
        self._clock = clock
        self._threads: dict[int, dict[int, list[Counted]]] = {pid: {} for pid in pids}
        self._scanned_ns = clock()
        for pid in pids:
            self._look(pid)
            if not self._threads[pid]:
                raise SourceError(f"process {pid}: there is none; give one that runs")
        self._watch = Stopwatch(clock())

    def read(self) -> Reading:
        """Returns what was counted since the last read.

        Raises:
            SourceError: the kernel gave up, or all processes have ended.
        """
        if not self._threads:
            raise SourceError(
                f"{self.name}: all processes that were counted have ended; open the source anew"
            )
        lap = self._watch.lap(self._clock())
        ended: dict[int, set[int]] = {}
        if lap[0] - self._scanned_ns >= _RESCAN_NS:
            self._scanned_ns = lap[0]
            ended = {pid: self._look(pid) for pid in self._threads}
        places = [
            Place(
                scope=Scope.TASK,
                where=f"process {pid}",
                members=[each for counted in threads.values() for each in counted],
            )
            for pid, threads in self._threads.items()
        ]
        reading = read_places(self.name, places, lap)
        for pid, tids in ended.items():  # what they did up to their end has been read
            for tid in tids:
                del self._threads[pid][tid]
            if not self._threads[pid]:
                del self._threads[pid]
        return reading

    def close(self) -> None:
        """Stops counting."""
        self._threads.clear()

    def _look(self, pid: int) -> set[int]:
        """Takes up the threads that are new; returns those that have ended."""
        counted = self._threads[pid]
        alive = self._computer.tasks_of(pid)
        for tid in alive - counted.keys():
            try:
                counted[tid] = [Counted(group, tid=tid) for group in self._groups]
            except OSError as error:
                if error.errno == errno.ESRCH:  # it has ended since
                    continue
                why = refusal.of_event(error, self._computer.paranoid(), whole_cpu=False)
                raise SourceError(f"{self.name}, process {pid}: {why}") from error
        return counted.keys() - alive


def read_places(name: str, places: Iterable[Place], lap: tuple[int, int]) -> Reading:
    """Reads places into one reading.

    Raises:
        SourceError: one counts no more.
    """
    counts: list[Count] = []
    missing: list[Missing] = []
    for place in places:
        try:
            place.read(counts, missing)
        except OSError as error:
            raise SourceError(f"{name}, {place.where}: {error.strerror or error}") from error
    return Reading(time_ns=lap[0], elapsed_ns=lap[1], counts=tuple(counts), missing=tuple(missing))


def _native(event: Event) -> tuple[int, int, int, int, bool]:
    return (event.type, event.config, event.config1, 0, event.user_only)
