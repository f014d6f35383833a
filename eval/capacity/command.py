"""`veltair eval`: the highest rate at which each system keeps each workload's targets."""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console

from veltair.eval.capacity.evaluation import Evaluation
from veltair.eval.capacity.models import candidates
from veltair.eval.capacity.progress import EvalProgress, say
from veltair.eval.capacity.result import write
from veltair.eval.capacity.stages import Plan
from veltair.eval.capacity.summary import notes, table
from veltair.eval.capacity.systems import chosen_systems
from veltair.eval.capacity.trials import Case, Trials
from veltair.eval.capacity.workloads import MEASURED_QOS, WORKLOADS, changed_run, read_workload
from veltair.eval.children import stopped_by_signals
from veltair.eval.patience import Patience
from veltair.eval.points import PointStore
from veltair.eval.record import provenance
from veltair.eval.run_options import Attempts, Fresh, WaitS
from veltair.runtime.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from veltair.eval.capacity.system import System

QUICK_WORKLOAD = "medium"
QUICK_SYSTEMS = "model,veltair-deadline,onnxruntime,openvino,null"
QUICK_RUN: dict[str, float] = {"min_seconds": 3.0, "min_queries": 20, "max_seconds": 4.0}
SCRATCH = Path("build/eval")


def command(
    out: Annotated[
        Path, typer.Option("--output", "-o", help="Folder of the results; gets result.json.")
    ],
    workloads: Annotated[
        str | None, typer.Option(help=f"Names, or .toml files.  [default: {WORKLOADS}]")
    ] = None,
    systems: Annotated[
        str | None, typer.Option(help="Names, or ours, peers, all.  [default: all]")
    ] = None,
    metric: Annotated[
        str, typer.Option(help="qps95: highest rate with 95 % of each model's queries in time.")
    ] = "qps95",
    percentile: Annotated[
        float | None, typer.Option(min=1, max=99.99, help="The metric's, in its place.")
    ] = None,
    qos: Annotated[
        str, typer.Option(help="The targets to take of the workloads' files.")
    ] = MEASURED_QOS,
    repository: Annotated[
        Path, typer.Option(help="Folder of <model>/<version>/ artifacts.")
    ] = Path("repository"),
    onnx: Annotated[Path, typer.Option(help="Folder of <model>.onnx files, for peers.")] = Path(
        "onnx"
    ),
    repetitions: Annotated[
        int | None, typer.Option(min=1, max=100, help="Of each search.  [default: 3]")
    ] = None,
    lowest_qps: Annotated[
        float,
        typer.Option(
            min=0.01,
            max=1e6,
            help="The lowest rate to ask for; who doesn't keep it is unmeetable.",
        ),
    ] = Plan.lowest_qps,
    loads: Annotated[
        str | None,
        typer.Option(help="Parts of the capacity to run at.  [default: 0.25,0.75,1.25,1.5]"),
    ] = None,
    min_seconds: Annotated[
        float | None, typer.Option(min=0.1, max=86_400, help="Of each run.")
    ] = None,
    max_seconds: Annotated[
        float | None, typer.Option(min=0.1, max=86_400, help="Of each run.")
    ] = None,
    min_queries: Annotated[
        int | None, typer.Option(min=1, help="Of the rarest model in each run, expected.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of the arrivals, in place of the workloads' own.")
    ] = None,
    attempts: Attempts = 2,
    wait_s: WaitS = 10.0,
    quick: Annotated[
        bool, typer.Option("--quick", help="One workload in 5 minutes: shorter, whatever disturbs.")
    ] = False,
    fresh: Fresh = False,
    scratch: Annotated[Path, typer.Option(help="Where to keep what was measured.")] = SCRATCH,
) -> None:
    """Find the highest rate at which each system keeps each workload's targets.

    What has been measured is kept: the same command goes on where it was stopped.
    """
    plan = Plan(
        percentile=_percentile(metric, percentile),
        repetitions=repetitions or (2 if quick else 3),
        tolerance=0.1 if quick else 0.04,
        lowest_qps=lowest_qps,
        loads=_loads(loads, () if quick else Plan.loads),
        solo_queries=10 if quick else 20,
        grid=not quick,
        gantt=not quick,
    )
    chosen = chosen_systems(systems or (QUICK_SYSTEMS if quick else "all"), plan.percentile)
    run: dict[str, Any] = {"seed": seed} | (QUICK_RUN if quick else {})
    given = {"min_seconds": min_seconds, "max_seconds": max_seconds, "min_queries": min_queries}
    run |= {name: value for name, value in given.items() if value is not None}
    cases = [
        _case(name, qos, run, repository, onnx if _needs_onnx(chosen) else None)
        for name in (workloads or (QUICK_WORKLOAD if quick else WORKLOADS)).split(",")
    ]
    _check_names(cases)
    settings = asdict(plan) | {
        "qos": qos,
        "runs": {c.facts.name: msgspec.to_builtins(c.run) for c in cases},
    }
    patience = Patience(attempts=attempts, wait_s=wait_s)
    store = PointStore(scratch / "points")
    if fresh:
        store.clear()
    out.mkdir(parents=True, exist_ok=True)
    with stopped_by_signals():
        measure(
            plan,
            cases,
            chosen,
            store,
            out=out,
            scratch=scratch,
            settings=settings,
            patience=Patience(attempts=1, wait_s=0) if quick else patience,
        )


def measure(
    plan: Plan,
    cases: Sequence[Case],
    systems: Sequence[System],
    store: PointStore,
    *,
    out: Path,
    scratch: Path,
    settings: dict[str, Any],
    patience: Patience,
) -> None:
    """Runs an evaluation, writes its result after each stage, and prints it at the end.

    Args:
        plan: what to measure.
        cases: workloads.
        systems: that are compared.
        store: what was measured before.
        out: folder of the result.
        scratch: folder of what systems write while they run.
        settings: for the result.
        patience: with other processes.
    """
    console = Console()
    origin = provenance(shlex.join(["veltair", "eval", *sys.argv[2:]]))
    cpus = sorted(os.sched_getaffinity(0))
    trials = Trials(
        store, cpus=cpus, scratch=scratch, percentile=plan.percentile, patience=patience
    )
    evaluation = Evaluation(plan, cases, systems, trials, cores=len(cpus), folder=out)
    for name, why in evaluation.missing.items():
        say(console, f"{name} is skipped: {why}")
    progress = EvalProgress(console, evaluation.stages_s())
    trials.told = progress.trial

    def save() -> None:
        write(out, evaluation.result(origin, settings))

    try:
        with progress:
            evaluation.run(progress, save)
    except KeyboardInterrupt:
        say(console, f"stopped; {out} has what was found, and the same command goes on from there")
        raise
    finally:
        save()
    result = evaluation.result(origin, settings)
    console.print(table(result))
    for line in notes(result):
        say(console, line)


def _case(name: str, qos: str, run: dict[str, Any], repository: Path, onnx: Path | None) -> Case:
    workload = read_workload(name)
    facts = workload.facts(qos)
    return Case(
        facts=facts,
        run=changed_run(workload.run, **run),
        candidates=candidates(facts, repository, onnx),
    )


def _needs_onnx(systems: Sequence[System]) -> bool:
    return any(each.kind == "peer" and each.missing() is None for each in systems)


def _check_names(cases: Sequence[Case]) -> None:
    names = [case.facts.name for case in cases]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--workloads names {name!r} twice; files need names of their own")


def _percentile(metric: str, percentile: float | None) -> float:
    found = re.fullmatch(r"qps(\d{1,2}(?:\.\d{1,2})?)", metric)
    if found is None or float(found[1]) < 1:
        raise InputError(
            f"--metric {metric}: must be qps and a percentile from 1 to 99.99, as qps95 or qps99"
        )
    return float(found[1]) if percentile is None else percentile


def _loads(text: str | None, default: tuple[float, ...]) -> tuple[float, ...]:
    if text is None:
        return default
    try:
        loads = tuple(float(word) for word in text.split(",") if word)
    except ValueError:
        loads = (0.0,)
    if not all(0 < load <= 10 for load in loads):
        raise InputError(
            f"--loads {text}: must be numbers above 0 and at most 10 with commas between, "
            "e.g. 0.75,1.25"
        )
    return tuple(load for load in loads if load not in (0.5, 1.0))  # those are run anyway
