"""Measures what the probe sees and costs: `python -m veltair.eval.bench_probe [--json FILE]`.

A bubble (`proxy/bubbles.py`) runs at rates from none to all it can, and beside it, on another
processor, the probe: in its own layout, which meets each line again after one rest (`one_set`), and
for comparison walking through all lines of buffers (`all_lines`). For each, what a step takes at
each rate, first and again, what the probe took of its core, and in the same turn the slow-down of
the reference kernel that levels are reckoned by (`proxy/levels.py`). The rates change within a
round, so what the machine does to all of them falls out; how sure a reading is shows in
`above_alone`, the share of the rounds in which it was above the one without a bubble, and in
`correlation` with the slow-down.

It also measures what reading a source takes: a group of the kernel's own events by one system call,
and the whole reading of the probe in Python. Bound: 5 us for a group.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from veltair.eval.benchmark import origin, run_benchmark
from veltair.eval.record import check_writable, spread, write_result
from veltair.proxy.bubbles import BYTES_PER_GB, Bubbles
from veltair.proxy.sources.computer import Computer
from veltair.proxy.sources.probe import BUDGET, LINES, Probe, stride_bytes
from veltair.proxy.topology import divided, usable
from veltair.runtime._native import proxy
from veltair.runtime.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from veltair.proxy.topology import Sides

MODULE = "bench_probe"
_PARTS = (0.0, 0.125, 0.25, 0.5, 1.0)  # of the highest rate
_FOOTPRINT_BYTES = 32 << 20
_REFERENCE_BYTES = 4 << 20
_PASSES = 5
_SETTLE_S = 0.05
_LINE_BYTES = 64
_READS = 5_000
_READ_BOUND_NS = 5_000
_COST_BOUND = 0.005  # of one core
_SOFTWARE = [(1, 1, 0, 0, True), (1, 2, 0, 0, True)]  # the kernel's task clock and page faults


def sizes_of(text: str) -> list[int]:
    """Parses sizes in KiB with commas between.

    Raises:
        InputError: they aren't that, or one is too small for a walk.
    """
    least, most = LINES * _LINE_BYTES >> 10, 1 << 20
    parts = text.split(",")
    if not all(p.isascii() and p.isdigit() and least <= int(p) <= most for p in parts):
        raise InputError(
            f"--buffers-kb {text}: must be whole numbers from {least} to {most} with commas between"
        )
    return [int(part) for part in parts]


def measure(
    sides: Sides, buffers_kb: Sequence[int], rounds: int, window_s: float
) -> list[dict[str, Any]]:
    """Measures the probe's own layout, and each buffer, beside bubbles.

    Returns:
        One row each: cost, walks a second, and for each rate the spread of a step's time, of its
        slow-down against the same round without bubbles, and of the reference kernel's.
    """
    rows = []
    reference = proxy.Reference(sides.quiet[0], _REFERENCE_BYTES)
    with Bubbles(sides.bubbles, _FOOTPRINT_BYTES) as bubbles:
        rates = _rates(bubbles)
        stride = stride_bytes(_share_bytes(sides.quiet[0]))
        layouts = [("one_set", stride * LINES, stride)]
        layouts += [("all_lines", size << 10, _LINE_BYTES) for size in buffers_kb]
        for name, size, apart in layouts:
            walk = proxy.ProbeWalk([sides.quiet[0]], size, apart, LINES, BUDGET)
            row = _row(walk, rates, reference, bubbles, rounds, window_s)
            rows.append({"layout": name, "stride_bytes": apart, "huge_pages": walk.huge, **row})
            _print(rows[-1])
            del walk
    return rows


def _share_bytes(cpu: int) -> int:
    cache = Computer().cache_of(cpu)
    return 0 if cache is None else cache.share_bytes


def _rates(bubbles: Bubbles) -> list[int]:
    highest = bubbles.highest_rate()
    return [round(highest * part) for part in _PARTS]


def _row(
    walk: proxy.ProbeWalk,
    rates: Sequence[int],
    reference: proxy.Reference,
    bubbles: Bubbles,
    rounds: int,
    window_s: float,
) -> dict[str, Any]:
    step_ns = np.empty((rounds, len(rates)))
    again_ns = np.empty((rounds, len(rates)))
    pass_ns = np.empty((rounds, len(rates)))
    passes = np.empty(_PASSES, np.int64)
    walks, cpu_ns, elapsed_ns = 0, 0, 0
    for turn in range(rounds):
        for column, rate in enumerate(rates):
            bubbles.set_rate(rate)
            time.sleep(_SETTLE_S)
            walk.reading()
            time.sleep(window_s)
            seen = walk.reading()
            while seen.walks == 0:  # nothing to say: the processor was taken away
                time.sleep(window_s)
                seen = walk.reading()
            step_ns[turn, column] = seen.median
            again_ns[turn, column] = seen.again
            walks += seen.walks
            cpu_ns += seen.cpu_ns
            elapsed_ns += seen.elapsed_ns
            reference.time(passes)
            pass_ns[turn, column] = np.median(passes)
    bubbles.set_rate(0)
    return {
        "buffer_bytes": walk.buffer_bytes,
        "touched_bytes": LINES * _LINE_BYTES,
        "cost": cpu_ns / elapsed_ns,
        "cost_bound": _COST_BOUND,
        "walks_per_s": walks * 1e9 / elapsed_ns,
        "first": summary(rates, step_ns, pass_ns),
        "again": summary(rates, again_ns, pass_ns),
    }


def summary(
    rates: Sequence[int], step_ns: NDArray[np.float64], pass_ns: NDArray[np.float64]
) -> dict[str, Any]:
    """Sums up what was measured.

    Args:
        rates: of a bubble, in bytes a second; the first is 0.
        step_ns: float64[rounds, rates]: of the probe, one of its two readings.
        pass_ns: float64[rounds, rates]: of the reference kernel.
    """
    readings = step_ns / step_ns[:, :1] - 1
    levels = pass_ns / pass_ns[:, :1] - 1
    points = []
    for column, rate in enumerate(rates):
        points.append(
            {
                "gbps": rate / BYTES_PER_GB,
                "step_ns": spread(step_ns[:, column]),
                "slowdown": spread(readings[:, column]),
                "reference_slowdown": spread(levels[:, column]),
                "above_alone": float(np.mean(readings[:, column] > 0)),
            }
        )
    beside = readings[:, 1:].ravel(), levels[:, 1:].ravel()
    varied = all(np.ptp(each) > 0 for each in beside)
    return {
        "rates": points,
        "correlation": float(np.corrcoef(*beside)[0, 1]) if varied else None,
    }


def read_costs() -> dict[str, Any]:
    """Times reading: a group of the kernel's events, where that is allowed, and the probe."""
    costs: dict[str, Any] = {}
    try:
        group = proxy.PerfGroup(_SOFTWARE, 0, -1)
        counts = np.empty(len(_SOFTWARE))
        costs["perf_group"] = _timed(lambda: group.read(counts)) | {
            "by_page": group.read(counts).by_page,
            "bound_ns": _READ_BOUND_NS,
        }
    except OSError as error:
        costs["perf_group"] = {"refused": error.strerror}
    probe = Probe(usable(), Computer())
    costs["probe"] = _timed(probe.read)
    probe.close()
    return costs


def _timed(read: Callable[[], object]) -> dict[str, Any]:
    times_ns = np.empty(_READS, np.int64)
    for index in range(_READS):
        begin_ns = time.perf_counter_ns()
        read()
        times_ns[index] = time.perf_counter_ns() - begin_ns
    return spread(times_ns) | {"p99": int(np.percentile(times_ns, 99))}


def _print(row: dict[str, Any]) -> None:
    print(
        f"{row['layout']}, {row['buffer_bytes'] >> 10} KiB: cost {row['cost']:.2%} of a core, "
        f"{row['walks_per_s']:.0f} walks/s"
    )
    for name in ("first", "again"):
        found = row[name]
        cells = [
            f"{each['gbps']:.1f} GB/s {each['step_ns']['p50']:.1f} ns "
            f"({each['slowdown']['p50']:+.2f}, above alone {each['above_alone']:.0%}; "
            f"reference {each['reference_slowdown']['p50']:+.2f})"
            for each in found["rates"]
        ]
        sure = "" if found["correlation"] is None else f"correlation {found['correlation']:.2f}; "
        print(f"  {name}: {sure}{', '.join(cells)}", flush=True)


def command(
    buffers_kb: Annotated[
        str, typer.Option(help="Sizes in KiB of buffers to walk through for comparison.")
    ] = "2048,16384",
    rounds: Annotated[int, typer.Option(min=2)] = 15,
    window_ms: Annotated[float, typer.Option(help="Of a reading.", min=1)] = 200.0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to save it.")] = None,
) -> None:
    """Measure the probe's reading and cost beside bubbles of rising rate."""
    check_writable(json_file)
    sizes = sizes_of(buffers_kb)
    sides = divided(usable())
    result = {
        **origin(MODULE),
        "window_s": window_ms / 1e3,
        "rounds": rounds,
        "footprint_bytes": _FOOTPRINT_BYTES,
        "cpus": {"probe": sides.quiet[0], "bubbles": list(sides.bubbles)},
        "reads": read_costs(),
        "rows": measure(sides, sizes, rounds, window_ms / 1e3),
        "load_average_after": os.getloadavg()[0],
    }
    for name, cost in result["reads"].items():
        print(f"reading {name}: {cost}")
    if json_file is not None:
        write_result(json_file, result)


if __name__ == "__main__":
    run_benchmark(MODULE, command)
