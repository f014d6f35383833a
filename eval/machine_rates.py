"""Measures the machine at hand for the machine model: each figure of its file.

A rate is that of the best of many short rounds, as what others take of the machine only lowers it.
Where several cores work at once they begin each round together, and it lasts until the last of them
has ended, so that a core that was held up doesn't make the others look faster. What Linux says of
caches and cores is read from it.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from veltair.eval.fma_peak import OPTIONS, FmaPeak, build_peak
from veltair.eval.native_code import build
from veltair.proxy.machine_file import (
    Caches,
    Launch,
    Machine,
    Memory,
    Processor,
)
from veltair.proxy.topology import SharedCache, shared_cache
from veltair.runtime import _native
from veltair.runtime.errors import VeltairError
from veltair.runtime.machine import cpu_flags, machine_facts
from veltair.runtime.manifest import LANES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from veltair.runtime.manifest import Isa

_T = TypeVar("_T")

_ROUNDS = 60
_ADDITIONS = 4_000_000
_PEAK_NS = 1_000_000
_LAUNCHES = 20_000
_READ_BYTES = 64 << 20  # that one core reads a round, at least
_L2_SIZES = 2  # of what is read from the L3
_L3_SIZES = 4  # of what is read from memory
_MOST_BYTES = 1 << 30
_MOST_PIPES = 2  # for multiply-adds of full width; no x86-64 core has more


class Rates:
    """What the native loops measure, on threads that are each bound to a processor."""

    def __init__(self, isa: Isa, folder: Path) -> None:
        """Builds the loops in a folder.

        Raises:
            InputError: no C++ compiler on this machine.
        """
        self._lanes = LANES[isa]
        self._peak_library = build_peak(isa, folder / "fma_peak.so")
        library = build("machine_rates.cc", folder / "machine_rates.so", *OPTIONS[isa])
        self._loops = ctypes.CDLL(str(library))
        self._loops.RunAdditions.restype = ctypes.c_int64
        self._loops.RunAdditions.argtypes = [ctypes.c_int64]
        self._loops.ReadOnce.restype = ctypes.c_int64
        self._loops.ReadOnce.argtypes = [ctypes.c_void_p, ctypes.c_int64]
        self._step_bytes = int(self._loops.StepBytes())

    def peak(self, cpus: Sequence[int]) -> tuple[float, float]:
        """Returns GFLOP/s and GHz of a core while all of some do the same.

        The clock is that of additions of which each waits for the one before. Who shares the core,
        as a neighbour of a virtual machine may, can hold these up more than multiply-adds: so it is
        not less than these need on two pipes.
        """

        def measure(_: int) -> tuple[float, float]:
            peak = FmaPeak(self._peak_library, _PEAK_NS)
            fma_ns, add_ns = np.min(
                [
                    (_timed(peak.run), _timed(lambda: self._loops.RunAdditions(_ADDITIONS)))
                    for _ in range(_ROUNDS)
                ],
                axis=0,
            )
            gflops = peak.flops / fma_ns
            return gflops, max(_ADDITIONS / add_ns, gflops / (self._lanes * 2 * _MOST_PIPES))

        rates, clocks = zip(*_on_each(cpus, measure), strict=True)
        return float(np.median(rates)), float(np.median(clocks))

    def reading(self, cpus: Sequence[int], each_bytes: int) -> float:
        """Returns GB/s that some cores together read, each memory of its own."""
        size = max(each_bytes // self._step_bytes, 1) * self._step_bytes
        passes = max(_READ_BYTES // size, 1)
        start = threading.Barrier(len(cpus))

        def measure(_: int) -> list[int]:
            memory = _aligned(size)

            def read() -> None:
                for _ in range(passes):
                    self._loops.ReadOnce(memory.ctypes.data, size)

            read()
            took_ns = []
            for _ in range(_ROUNDS):
                start.wait()
                took_ns.append(_timed(read))
            return took_ns

        slowest_ns = np.max(_on_each(cpus, measure), axis=0)
        return len(cpus) * size * passes / float(slowest_ns.min())


def measure_machine(folder: Path) -> Machine:
    """Measures this machine; takes some tens of seconds.

    Args:
        folder: for what is built.

    Raises:
        InputError: no C++ compiler on this machine.
        VeltairError: it says too little about itself.
    """
    cpus = sorted(os.sched_getaffinity(0))
    complexes = complexes_of(cpus)
    isa: Isa = "x86-64-v4" if "avx512f" in cpu_flags() else "x86-64-v3"
    facts = machine_facts()
    l2_bytes, l3_bytes = int(facts["l2_bytes"]), complexes[0].size_bytes
    rates = Rates(isa, folder)
    peak, clock = rates.peak(cpus)
    first = complexes[0].cpus
    near_bytes = min(l2_bytes * _L2_SIZES, l3_bytes // len(first))
    far_bytes = min(l3_bytes * _L3_SIZES, _MOST_BYTES // len(cpus))
    l3_gbps = rates.reading(first, near_bytes) / len(first)
    core_gbps = min(rates.reading(first[:1], far_bytes), l3_gbps)
    complex_gbps = max(rates.reading(first, far_bytes), core_gbps)
    total_gbps = complex_gbps
    if len(complexes) > 1:
        total_gbps = max(rates.reading(cpus, far_bytes), complex_gbps)
    base_ns, core_ns = launches(cpus)
    lanes = LANES[isa]
    return Machine(
        processor=Processor(
            name=str(facts["cpu"]),
            cores=len(cpus),
            complexes=len(complexes),
            frequency_ghz=round(clock, 3),
            vector_lanes=lanes,
            fmas_per_cycle=round(peak / clock / lanes / 2, 3),
        ),
        caches=Caches(
            l2_kib=l2_bytes >> 10, l3_mib=l3_bytes / (1 << 20), l3_core_gbps=round(l3_gbps, 1)
        ),
        memory=Memory(
            core_gbps=round(core_gbps, 1),
            complex_gbps=round(complex_gbps, 1),
            total_gbps=round(total_gbps, 1),
        ),
        launch=Launch(base_ns=round(base_ns), core_ns=round(core_ns)),
        sources=_sources(near_bytes, far_bytes),
    )


def complexes_of(cpus: Sequence[int]) -> list[SharedCache]:
    """The L3s of some processors, each with those of them that share it.

    Raises:
        VeltairError: Linux doesn't say.
    """
    found: dict[tuple[int, ...], SharedCache] = {}
    for cpu in cpus:
        cache = shared_cache(cpu)
        if cache is None:
            raise VeltairError(
                f"/sys doesn't say which L3 processor {cpu} has, so this machine can't be "
                "described; copy the file of a like one from proxy/machines and change it"
            )
        own = tuple(each for each in cache.cpus if each in cpus)
        found[own] = SharedCache(size_bytes=cache.size_bytes, cpus=own)
    sizes = {len(each.cpus) for each in found.values()}
    if len(sizes) > 1:
        raise VeltairError(
            f"this process may use {sorted(sizes)} processors of different L3s; allow it as many "
            "of each (`taskset -c`), so that the machine is even"
        )
    return list(found.values())


def launches(cpus: Sequence[int]) -> tuple[float, float]:
    """Returns ns of a launch on one core, and what each further one adds, of a gang awake."""
    times_ns = np.empty(_LAUNCHES, np.int64)
    medians = []
    for count in (1, len(cpus)):
        gang = _native.Gang(list(cpus[:count]), restore_affinity=True)
        gang.set_cores(range(count))
        _native.time_wake_ups(gang, 0, times_ns)
        medians.append(float(np.median(times_ns)))
    further = max(len(cpus) - 1, 1)
    return medians[0], max(medians[1] - medians[0], 0.0) / further


def _sources(near_bytes: int, far_bytes: int) -> dict[str, str]:
    return {
        "processor.name": "/proc/cpuinfo",
        "processor.cores": "processors that this process may use, sched_getaffinity",
        "processor.complexes": "/sys/devices/system/cpu/cpu*/cache: who shares an L3",
        "processor.frequency_ghz": "measured: additions that wait for each other, all cores at "
        "once, in turns with multiply-adds",
        "processor.vector_lanes": "/proc/cpuinfo: AVX-512 or AVX2",
        "processor.fmas_per_cycle": "measured: independent multiply-adds in registers, all cores "
        "at once, over lanes and frequency",
        "caches.l2_kib": "/sys/devices/system/cpu/cpu0/cache",
        "caches.l3_mib": "/sys/devices/system/cpu/cpu*/cache",
        "caches.l3_core_gbps": f"measured: each core of a complex reads {near_bytes >> 10} KiB of "
        "its own in order, all at once",
        "memory.core_gbps": f"measured: one core reads {far_bytes >> 20} MiB in order",
        "memory.complex_gbps": f"measured: each core of a complex reads {far_bytes >> 20} MiB in "
        "order, all at once",
        "memory.total_gbps": f"measured: each core reads {far_bytes >> 20} MiB in order, all at "
        "once",
        "launch.base_ns": "measured: an empty launch of the gang on one core, awake",
        "launch.core_ns": "measured: a launch in which all cores meet, awake, for each core "
        "beyond the first",
    }


def _on_each(cpus: Sequence[int], measure: Callable[[int], _T]) -> list[_T]:
    """Runs the same on a thread for each processor, bound to it, all at once."""

    def bound(cpu: int) -> _T:
        os.sched_setaffinity(0, [cpu])  # of the calling thread alone
        return measure(cpu)

    with ThreadPoolExecutor(len(cpus)) as pool:
        return list(pool.map(bound, cpus))


def _aligned(size: int) -> NDArray[np.uint8]:
    memory = np.ones(size + 63, np.uint8)
    return memory[-memory.ctypes.data % 64 :][:size]


def _timed(run: Callable[[], object]) -> int:
    begin_ns = time.perf_counter_ns()
    run()
    return time.perf_counter_ns() - begin_ns
