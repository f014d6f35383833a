"""Measures the targets of a small machine: `python -m veltair.eval.capacity.targets`.

A model's target is three times the best peer's median latency on all cores for a query that comes
after 50 ms of idleness, rounded up to a whole millisecond. They are derived once and written into
the workloads' files as `[qos.small]`, with how; `veltair eval` reads them and measures none. With
`--check` the files stay, and what it says is how far the machine is from the one they suit: other
tenants of a virtual machine's host empty its caches, which no counter of the guest tells.
"""

from __future__ import annotations

import importlib.util
import math
import os
import statistics
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from veltair.eval.benchmark import run_benchmark
from veltair.eval.capacity.models import candidates
from veltair.eval.capacity.result import ModelTarget, WorkloadFacts
from veltair.eval.capacity.workloads import MEASURED_QOS, WORKLOADS, read_workload
from veltair.eval.idleness import IdlePlan, time_idleness
from veltair.eval.own_process import in_own_process
from veltair.eval.patience import Patience
from veltair.eval.peers import PEERS, load_peer
from veltair.eval.record import revision
from veltair.eval.run_options import Attempts, WaitS
from veltair.runtime.artifact import open_artifact
from veltair.runtime.errors import InputError
from veltair.runtime.files import write_whole
from veltair.runtime.machine import machine_facts
from veltair.runtime.model import sample_inputs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from veltair.eval.capacity.system import Candidate
    from veltair.eval.capacity.workloads import WorkloadFile

STEM = "capacity.targets"
FACTOR = 3
MOST_SLOWER = 1.15  # as slow as when the targets were derived, that still compares
IDLE_NS = 50_000_000

_NS_PER_MS = 1e6


@dataclass(frozen=True, kw_only=True)
class Fastest:
    """The best peer with one model.

    Attributes:
        peer: its name and version.
        ms: its median latency after idleness.
        others: what else used the processors meanwhile, as a share of them.
    """

    peer: str
    ms: float
    others: float

    @property
    def target_ms(self) -> int:
        """The target that follows."""
        return math.ceil(FACTOR * self.ms)


def command(
    workloads: Annotated[
        str, typer.Option(help="Names, or .toml files; their [qos.small] is replaced.")
    ] = WORKLOADS,
    repository: Annotated[
        Path, typer.Option(help="Folder of <model>/<version>/ artifacts.")
    ] = Path("repository"),
    onnx: Annotated[Path, typer.Option(help="Folder of <model>.onnx files.")] = Path("onnx"),
    seconds: Annotated[float, typer.Option(min=0.1, help="For each model.")] = 20.0,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Write nothing; say how slow the machine is now by the files' targets, and exit "
            f"with 1 beyond {MOST_SLOWER:g} times.",
        ),
    ] = False,
    attempts: Attempts = 3,
    wait_s: WaitS = 30.0,
) -> None:
    """Measure the targets of this machine and write them into the workloads' files."""
    peers = [name for name in PEERS if importlib.util.find_spec(name) is not None]
    if not peers:
        raise InputError(f"none of {', '.join(PEERS)} is installed; pip install 'veltair[peers]'")
    files = [read_workload(name) for name in workloads.split(",")]
    names = tuple(dict.fromkeys(name for file in files for name in file.mix.models))
    written_ms = _written_ms(files) if check else {}
    plan = IdlePlan(budget_ns=round(seconds * 1e9), idle_ns=(IDLE_NS,))
    patience = Patience(attempts=attempts, wait_s=wait_s)
    found = {}
    for model in candidates(_unmeasured(names), repository, onnx):
        fastest = _fastest(model, peers, plan, patience)
        found[model.name] = fastest
        print(
            f"{model.name}: {fastest.peer} takes {fastest.ms:.3f} ms after "
            f"{IDLE_NS / _NS_PER_MS:.0f} ms of idleness; target {fastest.target_ms} ms "
            f"(others used {fastest.others:.1%} of the processors)",
            flush=True,
        )
    if check:
        slower = slowness(found, written_ms)
        print(f"{slower:.2f} times as slow as when the targets were derived (geometric mean)")
        if slower > MOST_SLOWER:
            print("wait until the machine is quiet; or, if it stays so, derive them anew")
            raise typer.Exit(1)
        return
    for file in files:
        write_whole(file.path, with_targets(file, found, machine_facts()).encode())
        print(f"{file.path}: [qos.{MEASURED_QOS}] written")


def slowness(found: Mapping[str, Fastest], written_ms: Mapping[str, float]) -> float:
    """Returns how many times as slow the machine is now as when targets were derived.

    Args:
        found: what the best peer takes now, by model.
        written_ms: targets, by model; each up to a millisecond more than follows from a latency.

    Returns:
        The geometric mean over the models.
    """
    return statistics.geometric_mean(
        FACTOR * each.ms / written_ms[name] for name, each in found.items()
    )


def _written_ms(files: Sequence[WorkloadFile]) -> dict[str, float]:
    """Returns the measured targets of files, by model; ConfigError where one has none."""
    facts = [file.facts(MEASURED_QOS) for file in files]
    return {model.name: model.qos_ns / _NS_PER_MS for each in facts for model in each.models}


def with_targets(
    file: WorkloadFile, found: Mapping[str, Fastest], machine: Mapping[str, Any]
) -> str:
    """Returns a workload's file with its last section replaced, or added where it has none.

    Args:
        file: the workload.
        found: by model.
        machine: as of `machine_facts`.

    Raises:
        InputError: another section follows.
    """
    heading = f"[qos.{MEASURED_QOS}]"
    kept, _, replaced = file.path.read_text(encoding="utf-8").partition(heading)
    follow = [line for line in replaced.splitlines() if line.startswith("[")]
    if [line for line in follow if line != f"[qos.{MEASURED_QOS}.ms]"]:
        raise InputError(f"{file.path}: {heading} is not the last section; move it to the end")
    how = (
        f"{FACTOR} times the best peer's median latency on all {machine['cores']} processors "
        f"for a query after {IDLE_NS / _NS_PER_MS:.0f} ms of idleness, rounded up; measured by "
        f"python -m veltair.eval.{STEM} at {revision()[:12]} on {machine['cpu']}"
    )
    lines = [heading, f'how = "{how}"', "", f"[qos.{MEASURED_QOS}.ms]"]
    for name in file.mix.models:
        fastest = found[name]
        said = f"{fastest.peer}: {fastest.ms:.3f} ms, others used {fastest.others:.1%}"
        lines.append(f"{name} = {fastest.target_ms}  # {said}")
    return kept.rstrip() + "\n\n" + "\n".join(lines) + "\n"


def latencies_ms(
    model: Candidate, peers: Sequence[str], cpus: Sequence[int], plan: IdlePlan
) -> dict[str, float]:
    """Returns each peer's median latency after idleness; the calling process is bound.

    Args:
        model: with its ONNX file and its artifact.
        peers: of `PEERS`.
        cpus: processors to use.
        plan: with one time of idleness.
    """
    os.sched_setaffinity(0, cpus)
    assert model.artifact is not None
    assert model.onnx is not None
    inputs = sample_inputs(open_artifact(model.artifact, verify=False).manifest.inputs)
    engines = [load_peer(name, model.onnx, len(cpus), model.shapes) for name in peers]
    times_ns = time_idleness([partial(engine.run, inputs) for engine in engines], plan)
    return {
        f"{engine.name} {engine.version}": float(np.median(times_ns[index, :, 1])) / _NS_PER_MS
        for index, engine in enumerate(engines)
    }


def _fastest(model: Candidate, peers: Sequence[str], plan: IdlePlan, patience: Patience) -> Fastest:
    cpus = sorted(os.sched_getaffinity(0))
    measure = partial(in_own_process, model.name, latencies_ms, model, peers, cpus, plan)
    found, disturbance = patience.quietest(measure)
    peer = min(found, key=lambda name: found[name])
    return Fastest(peer=peer, ms=found[peer], others=disturbance.others + disturbance.steal)


def _unmeasured(names: Sequence[str]) -> WorkloadFacts:
    """The models as a workload that has no targets yet."""
    share = 1 / len(names)
    models = tuple(ModelTarget(name=name, qos_ns=0, share=share) for name in names)
    return WorkloadFacts(name="targets", models=models, targets="to be measured")


if __name__ == "__main__":
    run_benchmark(STEM, command)
