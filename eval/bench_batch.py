"""What a batch saves: `python -m veltair.eval.bench_batch ARTIFACT...`.

Each batch of an artifact runs in turns with as many runs of one sample, on the same cores.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veltair.eval.bench_command import parse_counts
from veltair.eval.benchmark import origin, run_benchmark
from veltair.eval.interleave import Plan, ratios, time_blocks
from veltair.eval.own_process import in_own_process
from veltair.eval.record import check_writable, spread, write_result
from veltair.runtime.errors import InputError
from veltair.runtime.manifest import read_manifest
from veltair.runtime.model import Model
from veltair.runtime.run_command import first_cpus

if TYPE_CHECKING:
    from collections.abc import Sequence

MODULE = "bench_batch"


def command(
    artifacts: Annotated[list[Path], typer.Argument(metavar="DIR...", help="With batches.")],
    cores: Annotated[
        str | None, typer.Option(help="Core counts, e.g. 1,2; one and all if not given.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=3600, help="For each artifact and core count.")
    ] = 30.0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to save it.")] = None,
) -> None:
    """Measure batches in turns with as many runs of one sample."""
    check_writable(json_file)
    # A run is long: short turns, and many, since a machine's clock may change within seconds.
    plan = Plan(budget_ns=round(seconds * 1e9), block_runs=1, most_rounds=1_000)
    usable = sorted(os.sched_getaffinity(0))
    counts = parse_counts(cores) or sorted({1, len(usable)})
    result: dict[str, Any] = {**origin(MODULE), "plan": asdict(plan), "cases": []}
    for folder in artifacts:
        for count in counts:
            cpus = first_cpus(usable, count)
            case = in_own_process(f"{folder} on {count}", batch_case, folder, cpus, plan)
            result["cases"].append(case)
            for row in case["batches"]:
                ratio = row["ratio"]
                print(
                    f"{case['model']} on {count}: a batch of {row['size']} takes "
                    f"{ratio['p50']:.3f} of its samples' time "
                    f"({ratio['p10']:.3f} to {ratio['p90']:.3f})",
                    flush=True,
                )
    if json_file is not None:
        write_result(json_file, result)


def batch_case(folder: Path, cpus: Sequence[int], plan: Plan) -> dict[str, Any]:
    """Measures one artifact on some processors, to which the calling process is bound.

    Returns:
        `model`, `cores`; `batches`: of each `size` the time of a run, and the `ratio` of it to that
        of as many runs of one sample.

    Raises:
        InputError: the artifact has no batches.
    """
    os.sched_setaffinity(0, cpus)
    one = Model.load(folder, verify=False, cpus=cpus)
    sizes = read_manifest(one.folder).sizes
    if sizes == (1,):
        raise InputError(f"{folder}: has no batches; compile it with --batch 1,8")
    batches = [Model.load(folder, batch=size, verify=False, cpus=cpus) for size in sizes[1:]]
    most = max(sizes)
    runs = [partial(_run, one, most), *(partial(_run, batch, 1) for batch in batches)]
    times = time_blocks(runs, plan)
    rows = []
    for index, size in enumerate(sizes[1:], start=1):
        share = ratios(times, index, 0) * most / size
        rows.append({"size": size, "run_ns": spread(times[index].ravel()), "ratio": spread(share)})
    return {
        "model": one.manifest.name,
        "cores": len(cpus),
        "rounds": times.shape[1],
        "one_ns": spread(times[0].ravel() // most),
        "batches": rows,
    }


def _run(model: Model, rounds: int) -> None:
    model.time_run(None, rounds)


if __name__ == "__main__":
    run_benchmark(MODULE, command)
