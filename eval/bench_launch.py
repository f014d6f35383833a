"""Measures what a parallel launch costs: `python -m veltair.eval.bench_launch [--json FILE]`.

These times bound how small a layer can be and still gain from a second core: an empty launch while
the gang is awake, and the wake-up of a gang that sleeps. The leader often finishes an empty launch
before another core has seen it, so a launch that no core can finish alone is measured too.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from veltair.eval.record import check_writable, provenance, write_result
from veltair.runtime import _native
from veltair.runtime.errors import InputError, VeltairError

_BOUNDS_NS = {
    "empty_launch": 1_000,
    "empty_launch_chosen": 1_000,
    "all_cores_awake": 1_000,
    "all_cores_asleep": 50_000,
}


def measure(cpus: list[int], launches: int, wake_ups: int, sleep_ns: int) -> dict[str, Any]:
    """Measures on a gang of these processors, all granted.

    Returns:
        Percentiles in ns and the bound, for each of `empty_launch` (one task a core),
        `empty_launch_chosen` (as many tasks as the gang chooses for a kernel), `all_cores_awake`
        (launch of tasks that wait for each other, to its end) and `all_cores_asleep` (the same
        after `sleep_ns` of idleness).
    """
    gang = _native.Gang(cpus, restore_affinity=True)
    gang.set_cores(range(len(cpus)))
    launch_ns = np.empty(launches, np.int64)
    results: dict[str, Any] = {}
    for name, num_task in (("empty_launch", len(cpus)), ("empty_launch_chosen", 0)):
        _native.time_empty_launches(gang, num_task, launch_ns)
        results[name] = _summary(name, launch_ns)
    for name, count, idle_ns in (
        ("all_cores_awake", launches, 0),
        ("all_cores_asleep", wake_ups, sleep_ns),
    ):
        meeting_ns = np.empty(count, np.int64)
        _native.time_wake_ups(gang, idle_ns, meeting_ns)
        results[name] = _summary(name, meeting_ns)
    return results


def _summary(name: str, times_ns: np.typing.NDArray[np.int64]) -> dict[str, int]:
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
    arguments = ["python", "-m", "veltair.eval.bench_launch", *sys.argv[1:]]
    result = {
        **provenance(shlex.join(arguments)),
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


def main() -> None:
    """Entry point of `python -m veltair.eval.bench_launch`."""
    try:
        typer.run(command)
    except VeltairError as error:
        print(f"bench_launch: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
