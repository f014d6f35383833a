"""Times reads of memory in small and in huge pages: `python -m veltair.eval.bench_pages`.

As much memory as the weights of a network of middle size is read from begin to end, right after it
was read before and after idleness. What small pages take longer is what it costs to find them: on a
virtual machine the processor's notes of where pages lie are lost while nobody asks.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from veltair.eval.benchmark import origin, run_benchmark
from veltair.eval.idleness import IdlePlan, summary, time_idleness
from veltair.eval.record import check_writable, write_result
from veltair.runtime.errors import InputError
from veltair.runtime.huge_pages import HUGE_PAGE_BYTES, anonymous, are_offered

IDLE_NS = (50_000_000, 200_000_000, 1_000_000_000)

_NS_PER_MS = 1e6


def command(
    mib: Annotated[int, typer.Option(min=2, help="To read, MiB.")] = 100,
    seconds: Annotated[float, typer.Option(min=0.1, help="For all of it.")] = 60.0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to save it.")] = None,
) -> None:
    """Time reads of memory in small and in huge pages, hot and after idleness."""
    check_writable(json_file)
    if not are_offered():
        raise InputError(
            "this kernel gives no transparent huge pages, so there is nothing to compare: "
            "/sys/kernel/mm/transparent_hugepage/enabled has to say madvise or always"
        )
    result = origin("bench_pages") | {"mib": mib}
    kinds = {
        f"{mmap.PAGESIZE >> 10} KiB": anonymous(mib << 20, huge=False),
        f"{HUGE_PAGE_BYTES >> 10} KiB": anonymous(mib << 20),
    }
    arrays = [np.frombuffer(memory, np.int64) for memory in kinds.values()]
    for array in arrays:
        array[:] = 1  # what was never written isn't there
    plan = IdlePlan(budget_ns=round(seconds * 1e9), idle_ns=IDLE_NS)
    times = time_idleness([array.sum for array in arrays], plan)
    pages = {kind: summary(times[index], plan) for index, kind in enumerate(kinds)}
    for kind, found in pages.items():
        after = ", ".join(
            f"{each['run_ns']['p50'] / _NS_PER_MS:.1f} after {each['idle_ns'] / _NS_PER_MS:.0f} ms"
            for each in found["after"]
        )
        hot_ms = found["hot_ns"]["p50"] / _NS_PER_MS
        print(f"{mib} MiB in pages of {kind}: {hot_ms:.1f} ms hot, {after} of idleness")
    if json_file is not None:
        write_result(json_file, result | {"pages": pages})


if __name__ == "__main__":
    run_benchmark("bench_pages", command)
