"""`veltair bench`: times artifacts, alone or in turns with other engines on the same ONNX file.

Results are medians with the 10th and 90th percentile; see `interleave` for how they are taken. Each
comparison runs in a process of its own that may use exactly its processors: engines size their
thread pools once in a process, by the processors that they then see.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from veltair.eval.interleave import Plan, ratios, time_blocks
from veltair.eval.own_process import in_own_process
from veltair.eval.peers import Arrays, Engine, check_peers, load_peer, veltair_engine
from veltair.eval.record import check_writable, provenance, spread, write_result
from veltair.runtime.artifact import open_artifact
from veltair.runtime.errors import InputError
from veltair.runtime.model import Model, sample_inputs
from veltair.runtime.run_command import first_cpus

Case = dict[str, Any]


def command(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="<model>/ or <model>/<version>/.")
    ],
    cores: Annotated[
        str | None, typer.Option(help="Core counts, e.g. 1,2; one and all if not given.")
    ] = None,
    against: Annotated[
        str, typer.Option(help="Engines to compare with: onnxruntime, openvino.")
    ] = "",
    onnx: Annotated[
        list[Path] | None,
        typer.Option(help="The ONNX file that the peers run; once for each DIR, in order."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Where to save the result.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="Time to measure for each model and core count.")
    ] = 10.0,
) -> None:
    """Measure artifacts, in turns with other engines where asked."""
    peers = [name for name in against.split(",") if name]
    files = pair_files(folders, onnx or [], peers)
    check_peers(peers)
    check_writable(json_file)
    counts = parse_counts(cores)
    if not 0 < seconds <= 3600:
        raise InputError(f"--seconds {seconds}: must be above 0 and at most 3600")
    plan = Plan(budget_ns=round(seconds * 1e9))
    result: dict[str, Any] = {
        **provenance(shlex.join(["veltair", *sys.argv[1:]])),
        "plan": asdict(plan),
        "cases": [],
    }
    usable = sorted(os.sched_getaffinity(0))
    choices = [first_cpus(usable, count) for count in counts or sorted({1, len(usable)})]
    artifacts = [open_artifact(folder) for folder in folders]
    for artifact, file in zip(artifacts, files, strict=True):
        for cpus in choices:
            case = in_own_process(
                str(artifact.folder), bench_case, artifact.folder, file, cpus, peers, plan
            )
            result["cases"].append(case)
    console = Console()
    # In a file or a pipe there is no width to keep to, and a folded table can't be read.
    Console(width=None if console.is_terminal else 120).print(_table(result["cases"]))
    if json_file is not None:
        write_result(json_file, result)
        print(f"{json_file}: saved")


def parse_counts(text: str | None) -> list[int]:
    """Parses `1,2`; the empty list stands for the default.

    Raises:
        InputError: not a list of positive numbers.
    """
    if text is None:
        return []
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        raise InputError(f"--cores {text}: must be core counts with commas between, e.g. 1,2")
    return [int(part) for part in parts]


def bench_case(
    folder: Path, onnx: Path | None, cpus: Sequence[int], peers: Sequence[str], plan: Plan
) -> Case:
    """Measures one model on some processors; the calling process is bound to them.

    Returns:
        For each engine its version, settings, `run_ns` spread, and for peers the spread of ours
        over theirs (`ratio`) and the largest `difference` of an output, relative to its range.
    """
    os.sched_setaffinity(0, cpus)
    case, _ = compare(Model.load(folder, verify=False), onnx, peers, plan)
    return case


def compare(
    model: Model,
    onnx: Path | None,
    peers: Sequence[str],
    plan: Plan,
    beside: Sequence[Callable[[], object]] = (),
) -> tuple[Case, NDArray[np.int64]]:
    """Measures a model and peers on the processors of this process.

    Args:
        model: ours.
        onnx: the file that the peers run.
        peers: names of engines; without a file there are none.
        plan: how to measure.
        beside: what else to time in the same turns.

    Returns:
        What `bench_case` does, and int64[1 + beside, rounds, runs], ns: our runs and what was
        timed beside.
    """
    inputs = sample_inputs(model.manifest.inputs)
    shapes = {spec.name: spec.shape for spec in model.manifest.inputs}
    cores = len(model.cpus)
    engines = [veltair_engine(model, cores)]
    engines += [load_peer(name, onnx, cores, shapes) for name in peers if onnx is not None]
    outputs = [engine.run(inputs) for engine in engines]
    differences = [largest_difference(outputs[0], theirs) for theirs in outputs]
    times = time_blocks([*(_bound(engine, inputs) for engine in engines), *beside], plan)
    rows: list[dict[str, Any]] = []
    for index, engine in enumerate(engines):
        row: dict[str, Any] = {
            "engine": engine.name,
            "version": engine.version,
            "settings": engine.settings,
            "run_ns": spread(times[index].ravel()),
        }
        if engine.kernels:
            row["kernels"] = engine.kernels
        if index > 0:
            row["ratio"] = spread(ratios(times, 0, index))
            row["difference"] = differences[index]
        rows.append(row)
    case = {
        "model": model.manifest.name,
        "version": model.manifest.version,
        "isa": model.manifest.isa,
        "cores": cores,
        "cpus": list(model.cpus),
        "rounds": times.shape[1],
        "engines": rows,
    }
    return case, times[[0, *range(len(engines), len(times))]]


def largest_difference(ours: Arrays, theirs: Arrays) -> float:
    """Returns the largest absolute difference of any output, over the range of theirs.

    Raises:
        InputError: the outputs have other names or shapes: the ONNX file is another model's.
    """
    worst = 0.0
    for name, expected in theirs.items():
        if name not in ours or ours[name].shape != expected.shape:
            raise InputError(
                f"output {name!r} {list(expected.shape)} of the ONNX file is none of the "
                f"artifact's ({', '.join(ours)}); give the file that it was compiled from"
            )
        extent = float(np.ptp(expected)) or 1.0
        difference = np.abs(ours[name].astype(np.float64) - expected.astype(np.float64)).max()
        worst = max(worst, float(difference) / extent)
    return worst


def _bound(engine: Engine, inputs: Arrays) -> Any:  # noqa: ANN401 # a call without arguments
    return lambda: engine.run(inputs)


def pair_files(
    folders: Sequence[Path], files: Sequence[Path], peers: Sequence[str]
) -> list[Path | None]:
    """Returns the ONNX file of each artifact, None for all where there are no peers.

    Raises:
        InputError: not one file for each, or one that is missing.
    """
    if not peers:
        return [None] * len(folders)
    if len(files) != len(folders):
        raise InputError(
            f"--onnx: {len(files)} files for {len(folders)} artifacts; "
            "give --onnx FILE once for each DIR, in the same order"
        )
    for file in files:
        if not file.is_file():
            raise InputError(f"--onnx {file}: no such file")
    return list(files)


def _table(cases: Sequence[Case]) -> Table:
    table = Table()
    for name in ("model", "cores", "engine"):
        table.add_column(name)
    for name in ("ms", "p10..p90", "ours / theirs", "p10..p90", "difference"):
        table.add_column(name, justify="right")
    for case in cases:
        for row in case["engines"]:
            ms = {name: ns / 1e6 for name, ns in row["run_ns"].items()}
            cells = [f"{ms['p50']:.3f}", f"{ms['p10']:.3f}..{ms['p90']:.3f}", "", "", ""]
            if "ratio" in row:
                ratio = row["ratio"]
                spread_text = f"{ratio['p10']:.2f}..{ratio['p90']:.2f}"
                cells[2:] = [f"{ratio['p50']:.2f}", spread_text, f"{row['difference']:.1e}"]
            engine = f"{row['engine']} {row['version']}"
            table.add_row(case["model"], str(case["cores"]), engine, *cells)
        table.add_section()
    return table
