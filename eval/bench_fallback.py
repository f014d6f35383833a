"""What falling back costs: `python -m veltair.eval.bench_fallback MODEL.onnx...`.

Each model is compiled so that all of it falls back, and runs in turns with ONNX Runtime alone on
the same file, with the same number of threads. What differs is ours: the way through the engine,
the threads' cores, and that they sleep as soon as a run ends.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from veltair.compiler.clean import load_clean
from veltair.compiler.pipeline import CompileOptions, compile_model
from veltair.compiler.progress import Silent
from veltair.compiler.target_options import choose_isa
from veltair.eval.bench_command import bench_case, parse_counts
from veltair.eval.benchmark import origin, run_benchmark
from veltair.eval.interleave import Plan
from veltair.eval.own_process import in_own_process
from veltair.eval.record import check_writable, write_result
from veltair.runtime.run_command import first_cpus

MODULE = "bench_fallback"
PEER = "onnxruntime"


def command(
    files: Annotated[list[Path], typer.Argument(metavar="MODEL.onnx...", help="ONNX files.")],
    cores: Annotated[
        str | None, typer.Option(help="Core counts, e.g. 1,2; one and all if not given.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=3600, help="For each model and core count.")
    ] = 20.0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to save it.")] = None,
) -> None:
    """Measure models that fall back wholly, in turns with ONNX Runtime alone."""
    check_writable(json_file)
    plan = Plan(budget_ns=round(seconds * 1e9))
    usable = sorted(os.sched_getaffinity(0))
    counts = parse_counts(cores) or sorted({1, len(usable)})
    result: dict[str, Any] = {**origin(MODULE), "plan": asdict(plan), "cases": []}
    with tempfile.TemporaryDirectory() as folder:
        for number, file in enumerate(files):
            artifact = fallen(file, Path(folder) / str(number))
            for count in counts:
                cpus = first_cpus(usable, count)
                case = in_own_process(
                    f"{file.stem} on {count}", bench_case, artifact, file, cpus, [PEER], plan
                )
                result["cases"].append({**case, "model": file.stem})
                ratio = case["engines"][1]["ratio"]
                print(
                    f"{file.stem} on {count}: {ratio['p50']:.3f} of ONNX Runtime's time "
                    f"({ratio['p10']:.3f} to {ratio['p90']:.3f})",
                    flush=True,
                )
    if json_file is not None:
        write_result(json_file, result)


def fallen(file: Path, repository: Path) -> Path:
    """Compiles a model so that all of it falls back; returns the artifact's folder."""
    refused = {node.name: "asked for" for node in load_clean(file, {}).graph.node}
    options = CompileOptions(
        model=file,
        repository=repository,
        name="fallen",
        version=1,
        qos_ns=0,
        shapes={},
        isa=choose_isa("auto"),
        jobs=1,
        force=False,
        profiled=False,
        refused=refused,
    )
    compile_model(options, Silent())
    return options.target


if __name__ == "__main__":
    run_benchmark(MODULE, command)
