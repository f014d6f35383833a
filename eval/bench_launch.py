"""Measures what a parallel launch costs: `python -m veltair.eval.bench_launch [--json FILE]`.

These times bound how small a layer can be and still gain from a second core: an empty launch while
the gang is awake, and the wake-up of a gang that sleeps. The leader often finishes an empty launch
before another core has seen it, so a launch that no core can finish alone is measured too. And a
sleeping core's wake-up is mostly the system's, in a virtual machine the host's: the wake-up of one
plain thread is measured in turns with the gang's, for what the gang adds.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from veltair.eval.benchmark import origin, run_benchmark
from veltair.eval.record import check_writable, write_result
from veltair.runtime import _native
from veltair.runtime.errors import InputError

_BOUNDS_NS = {
    "empty_launch": 1_000,
    "empty_launch_chosen": 1_000,
    "all_cores_awake": 1_000,
    "all_cores_asleep": 50_000,
    "one_thread_asleep": 50_000,
}
_TURN = 25


def measure(cpus: list[int], launches: int, wake_ups: int, sleep_ns: int) -> dict[str, Any]:
    """Measures on a gang of these processors, all granted.

    Returns:
        Percentiles in ns and the bound, for each of `empty_launch` (one task a core),
        `empty_launch_chosen` (as many tasks as the gang chooses for a kernel), `all_cores_awake`
        (launch of tasks that wait for each other, to its end), `all_cores_asleep` (the same after
        `sleep_ns` of idleness) and `one_thread_asleep` (the system alone); the last two where
        there are two cores.
    """
    gang = _native.Gang(cpus, restore_affinity=True)
    gang.set_cores(range(len(cpus)))
    launch_ns = np.empty(launches, np.int64)
    results: dict[str, Any] = {}
    for name, num_task in (("empty_launch", len(cpus)), ("empty_launch_chosen", 0)):
        _native.time_empty_launches(gang, num_task, launch_ns)
        results[name] = _summary(name, launch_ns)
    meeting_ns = np.empty(launches, np.int64)
    _native.time_wake_ups(gang, 0, meeting_ns)
    results["all_cores_awake"] = _summary("all_cores_awake", meeting_ns)
    if len(cpus) > 1:
        asleep_ns, system_ns = _time_asleep(gang, wake_ups, sleep_ns)
        results["all_cores_asleep"] = _summary("all_cores_asleep", asleep_ns)
        results["one_thread_asleep"] = _summary("one_thread_asleep", system_ns)
    return results


def _time_asleep(
    gang: _native.Gang, wake_ups: int, sleep_ns: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Wake-ups of the gang and of one plain thread, in turns of `_TURN`; ns of each."""
    turns = -(-wake_ups // _TURN)
    times_ns = np.empty((2, turns, _TURN), np.int64)
    for turn in range(turns):
        _native.time_wake_ups(gang, sleep_ns, times_ns[0, turn])
        _native.time_system_wake_ups(gang, sleep_ns, times_ns[1, turn])
    return times_ns[0].ravel(), times_ns[1].ravel()


def _summary(name: str, times_ns: NDArray[np.int64]) -> dict[str, int]:
    points = (10, 50, 90, 99)
    values = np.percentile(times_ns, points)
    return {
        "count": len(times_ns),
        **{f"p{point}_ns": int(ns) for point, ns in zip(points, values, strict=True)},
        "bound_ns": _BOUNDS_NS[name],
    }


def command(
    cores: Annotated[int | None, typer.Option(help="How many cores; all if not given.")] = None,
    launches: Annotated[int, typer.Option(min=100)] = 200_000,
    wake_ups: Annotated[int, typer.Option(min=10)] = 500,
    sleep_ms: Annotated[float, typer.Option(help="Idleness before a wake-up.", min=0.1)] = 2.0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to save it.")] = None,
) -> None:
    """Measure empty launches and wake-ups of a gang."""
    usable = sorted(os.sched_getaffinity(0))
    if cores is not None and not 1 <= cores <= len(usable):
        raise InputError(f"--cores {cores}: give a number from 1 to {len(usable)}")
    check_writable(json_file)
    cpus = usable[:cores]
    result = {
        **origin("bench_launch"),
        "cpus": cpus,
        "sleep_ns": round(sleep_ms * 1e6),
        "results": measure(cpus, launches, wake_ups, round(sleep_ms * 1e6)),
    }
    for name, summary in result["results"].items():
        verdict = "within" if summary["p50_ns"] <= summary["bound_ns"] else "above"
        percentiles = ", ".join(f"{k[:-3]} {v}" for k, v in summary.items() if k[0] == "p")
        print(f"{name}: {percentiles} ns; the median is {verdict} {summary['bound_ns']} ns")
    if json_file is not None:
        write_result(json_file, result)


if __name__ == "__main__":
    run_benchmark("bench_launch", command)
