"""Capacity on a machine that is only described: `python -m veltair.eval.capacity.simulated`.

VELTAIR's evaluation on its 64 cores (section 5), from the machine model and our own versions of the
layers: the rate at which 95 % of each model's queries keep their targets, by policy and workload;
latency over that alone; cores in use; a load sweep; ablations. Nothing here is measured but the
artifacts' profiles, on another machine. Writes `result.json` (as `veltair eval` does),
`ablations.json` and `simulated.md`. A command that was stopped goes on where it was.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veltair.eval.benchmark import origin, run_benchmark
from veltair.eval.capacity.result import Result, SystemFacts, write
from veltair.eval.capacity.simulated_at_aim import at_aims
from veltair.eval.capacity.simulated_machine import Setting, SimulatedMachine
from veltair.eval.capacity.simulated_questions import questions
from veltair.eval.capacity.simulated_rates import in_paper
from veltair.eval.capacity.simulated_report import report
from veltair.eval.capacity.simulated_study import (
    BASELINE,
    BY_TIME_LEFT,
    FULL,
    Plan,
    Study,
    median_qps,
)
from veltair.eval.capacity.workloads import WORKLOADS, read_workload
from veltair.eval.points import PointStore
from veltair.eval.record import SIMULATING, write_result
from veltair.proxy.machine_file import (
    Machine,
    find_machine,
    machine_measured_on,
    measured_text,
)
from veltair.runtime.artifact import resolve_folder
from veltair.runtime.errors import InputError
from veltair.runtime.files import write_whole
from veltair.runtime.manifest import LANES, Manifest, read_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from veltair.eval.capacity.result import Capacity, Solo, Trial, WorkloadFacts
    from veltair.eval.capacity.simulated_study import Ablation, Usage

STEM = "simulated"
POLICIES = (
    "layer,prema,model,block-6,block-11,veltair-as,veltair-ac,veltair,deadline,veltair-deadline"
)
QOS = "paper"
SPEEDS = "0.8,0.85,0.9,0.95,1,1.05,1.1,1.15,1.2"


def command(
    folders: Annotated[
        list[Path], typer.Argument(metavar="ARTIFACT...", help="<model>/ or <model>/<version>/.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder of the results, made.")] = Path(
        "eval/results/simulated_3990x"
    ),
    machine: Annotated[
        str, typer.Option(help="That is simulated: a shipped name, or a file.")
    ] = "threadripper_3990x",
    measured_on: Annotated[
        str,
        typer.Option(
            help="Where the artifacts' profiles were measured, likewise.  [default: the shipped "
            "one of their processor]"
        ),
    ] = "",
    workloads: Annotated[str, typer.Option(help="To simulate.")] = WORKLOADS,
    policies: Annotated[str, typer.Option(help=f"To compare; {BASELINE} always is.")] = POLICIES,
    seeds: Annotated[int, typer.Option(min=1, help="Of each search.")] = 3,
    rarest: Annotated[int, typer.Option(min=1, help="Queries of a run's rarest model.")] = 200,
    queries: Annotated[int, typer.Option(min=20, help="Of a run, at least.")] = 3000,
    percentile: Annotated[
        float, typer.Option(min=1, max=100, help="Of each model's queries, in time.")
    ] = 95.0,
    ablations: Annotated[
        str, typer.Option(help="Workloads to ask them of; may be empty.")
    ] = WORKLOADS,
    speeds: Annotated[
        str, typer.Option(help="Of the kernels, parts of what the profiles say; may be empty.")
    ] = SPEEDS,
    scratch: Annotated[Path, typer.Option(help="Where finished runs are kept.")] = Path(
        "build/simulated"
    ),
) -> None:
    """Simulate the paper's evaluation."""
    computing = _speeds(speeds)
    out.mkdir(parents=True, exist_ok=True)
    found_from = origin(f"capacity.{STEM}", uses=SIMULATING)
    there = find_machine(machine, Path(), "--machine")
    manifests = _manifests(folders)
    asked = [read_workload(name).facts(QOS) for name in _words(workloads)]
    studied = [facts for facts in asked if facts.name in _words(ablations)]
    _check_models(asked, manifests)
    _check_isa(manifests, there, machine)
    profiles = [manifest.profile for manifest in manifests.values()]
    simulated = SimulatedMachine(
        manifests,
        there,
        machine,
        machine_measured_on(measured_on, profiles, "--measured-on"),
        PointStore(scratch / "points"),
        percentile=percentile,
    )
    plan = Plan(seeds=seeds, rarest=rarest, queries=queries)
    study = Study(simulated, plan)
    names = list(dict.fromkeys([BASELINE, *_words(policies)]))
    settings = asdict(plan) | {
        "policies": names,
        "machine": machine,
        "measured_on": sorted({measured_text(profile) for profile in profiles}),
        "isa": sorted({manifest.isa for manifest in manifests.values()}),
    }
    compared = _compared(study, asked, names)
    whole = Result(
        origin=found_from | {"machine": there.processor.name},
        simulated=True,
        percentile=percentile,
        plan=settings,
        workloads=tuple(asked),
        systems=tuple(_facts(name) for name in names),
        trials=tuple(compared.trials),
        capacities=tuple(compared.capacities),
        solos=tuple(compared.solos),
        cores=there.processor.cores,
    )
    write(out, whole)
    extra: dict[str, Any] = {
        "usage": [asdict(each) for each in compared.usage],
        "slack": [
            {"workload": facts.name, "policy": name, "planned": part, "qps": qps}
            for facts in asked
            for name in names
            for part, qps in study.slack(facts, Setting(policy=name)).items()
        ],
        "as_in_paper": [
            {
                "workload": facts.name,
                "policy": name,
                "qps": study.capacity(facts, Setting(policy=name)).qps,
            }
            for facts in asked
            for name in (BASELINE, FULL)
        ],
        "needed_cores": {
            name: count for facts in asked for name, count in study.needed_cores(facts).items()
        },
        "runs": compared.runs,
        "alone": compared.alone,
        "target_qps": {facts.name: study.target_qps(facts) for facts in asked},
        "memory_qps": {facts.name: study.memory_qps(facts) for facts in asked},
        "shortest_ms": {
            name: ms for facts in asked for name, ms in study.shortest_ms(facts).items()
        },
        "speeds": [
            asdict(study.at_speed(facts, name, speed))
            for facts in asked
            for name in (BASELINE, FULL, BY_TIME_LEFT)
            if name in names
            for speed in computing
        ],
        "ablations": [asdict(each) for each in _ablations(study, studied, there)],
    }
    extra["at_aims"] = at_aims(study, asked, names, in_paper(extra))
    write_result(out / "ablations.json", {**found_from, **extra})
    text = report(whole, extra)
    write_whole(out / f"{STEM}.md", text.encode())
    print(text)


@dataclass
class _Compared:
    """What every policy and workload came to; `solos` has each model once, `alone` by workload."""

    trials: list[Trial] = field(default_factory=list)
    capacities: list[Capacity] = field(default_factory=list)
    solos: list[Solo] = field(default_factory=list)
    alone: list[dict[str, Any]] = field(default_factory=list)
    usage: list[Usage] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)


def _compared(study: Study, asked: Sequence[WorkloadFacts], names: list[str]) -> _Compared:
    found = _Compared()
    for facts in asked:
        settings = [study.at_best(facts, Setting(policy=name)) for name in names]
        capacities = [study.capacity(facts, setting) for setting in settings]
        found.capacities += capacities
        baseline_qps = median_qps(capacities[names.index(BASELINE)])
        for setting, capacity in zip(settings, capacities, strict=True):
            solos = study.solos(facts, setting)
            found.alone += [{"workload": facts.name, **asdict(solo)} for solo in solos]
            known = {(solo.model, solo.system) for solo in found.solos}
            found.solos += [solo for solo in solos if (solo.model, solo.system) not in known]
            qps = median_qps(capacity)
            if qps > 0:
                found.trials += study.loads(facts, setting, qps)
                run = study.details(facts, setting, qps)
                found.runs.append({"workload": facts.name, "policy": setting.policy, **run})
        if baseline_qps > 0:
            found.usage += study.usage(facts, settings, baseline_qps)
    return found


def _ablations(study: Study, asked: Sequence[WorkloadFacts], machine: Machine) -> list[Ablation]:
    return [
        study.ablation(facts, question, setting)
        for question, settings in questions(machine).items()
        for facts in asked
        for setting in settings
    ]


def _facts(policy: str) -> SystemFacts:
    return SystemFacts(name=policy, kind="simulated", version=version("veltair"))


def _manifests(folders: Sequence[Path]) -> dict[str, Manifest]:
    manifests = [read_manifest(resolve_folder(folder)) for folder in folders]
    return {manifest.name: manifest for manifest in manifests}


def _check_models(asked: Sequence[WorkloadFacts], manifests: Mapping[str, Manifest]) -> None:
    for facts in asked:
        missing = [model.name for model in facts.models if model.name not in manifests]
        if missing:
            raise InputError(
                f"--workloads {facts.name}: no artifact of {', '.join(missing)} is given; compile "
                f"one with `veltair compile {missing[0]} -o DIR` and name its folder"
            )


def _check_isa(manifests: Mapping[str, Manifest], machine: Machine, named: str) -> None:
    lanes = machine.processor.vector_lanes
    for manifest in manifests.values():
        if LANES[manifest.isa] > lanes:
            raise InputError(
                f"{manifest.name}: compiled for {manifest.isa}, vectors of {LANES[manifest.isa]} "
                f"elements, and --machine {named} has vectors of {lanes}; give an artifact that it "
                "can run, e.g. of `veltair compile --isa x86-64-v3`, or another machine"
            )


def _speeds(text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(word) for word in _words(text))
    except ValueError:
        found = (0.0,)
    if not all(0.1 <= speed <= 10 for speed in found):
        raise InputError(
            f"--speeds {text}: must be numbers from 0.1 to 10 with commas between, e.g. 0.9,1,1.1"
        )
    return found


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


if __name__ == "__main__":
    run_benchmark(f"capacity.{STEM}", command)
