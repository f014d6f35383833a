"""Measures the first query after idleness: `python -m veltair.eval.bench_idle ARTIFACT...`.

Runs back to back flatter every engine; a server's queries come after pauses. For each artifact and
number of cores this measures runs back to back and the first run after each idleness: of our engine
and its peers in turns, in one process, and of our server, from a local client's submission to its
answer, the worker's wake-up included. Nothing of ours runs during an idleness.

The peers' penalties say what the machine does to everybody; `causes` says how, for our engine. On
virtual machines the wake-up of a thread costs some ten microseconds; the rest is memory. What lay
in the caches, a core's own too, is gone after 50 ms, also where the core stayed awake all the time:
others use the same processor. With it go the page tables, so that weights in small pages lose more
than in huge ones. Where `awake` is as slow as `asleep` and `read_bytes_per_s` falls alike, that is
so; where `awake` is as fast as `hot`, cores slept.
"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veltair.eval.bench_command import pair_files, parse_counts
from veltair.eval.benchmark import origin, run_benchmark
from veltair.eval.idleness import IdlePlan, summary, time_causes, time_idleness
from veltair.eval.own_process import in_own_process
from veltair.eval.peers import Engine, check_peers, load_peer, veltair_engine
from veltair.eval.record import check_writable, spread, write_result
from veltair.eval.served import served
from veltair.runtime.artifact import Artifact, open_artifact
from veltair.runtime.client import LocalClient
from veltair.runtime.errors import InputError, VeltairError
from veltair.runtime.model import Model, sample_inputs
from veltair.runtime.run_command import first_cpus

if TYPE_CHECKING:
    from collections.abc import Sequence

Case = dict[str, Any]

MODULE = "bench_idle"
CAUSE_ROUNDS = 10
ANSWER_S = 60.0


def command(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="<repository>/<model>/[<version>/].")
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
    idle_ms: Annotated[str, typer.Option(help="Times of idleness, e.g. 50,200.")] = "50,200",
    seconds: Annotated[
        float, typer.Option(min=0.1, max=3600, help="For each model, core count and way.")
    ] = 20.0,
    server: Annotated[bool, typer.Option(help="Whether to measure our server too.")] = True,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to save it.")] = None,
) -> None:
    """Measure the first query after idleness, ours in turns with other engines."""
    peers = [name for name in against.split(",") if name]
    files = pair_files(folders, onnx or [], peers)
    check_peers(peers)
    check_writable(json_file)
    plan = IdlePlan(budget_ns=round(seconds * 1e9), idle_ns=parse_idle(idle_ms))
    counts = parse_counts(cores)
    usable = sorted(os.sched_getaffinity(0))
    choices = [first_cpus(usable, count) for count in counts or sorted({1, len(usable)})]
    artifacts = [open_artifact(folder) for folder in folders]
    result = {**origin(MODULE), "plan": asdict(plan), "cases": []}
    for artifact, file in zip(artifacts, files, strict=True):
        for cpus in choices:
            case = in_own_process(
                str(artifact.folder), idle_case, artifact.folder, file, cpus, peers, plan
            )
            if server:
                case["server"] = server_case(artifact, cpus, plan)
            result["cases"].append(case)
            print_case(case)
    if json_file is not None:
        write_result(json_file, result)


def parse_idle(text: str) -> tuple[int, ...]:
    """Parses `50,200`, milliseconds, into nanoseconds.

    Raises:
        InputError: not a list of numbers from 1 to 10,000.
    """
    parts = text.split(",")
    most_ms = 10_000
    if not all(part.isascii() and part.isdigit() and 1 <= int(part) <= most_ms for part in parts):
        raise InputError(
            f"--idle-ms {text}: must be whole milliseconds from 1 to {most_ms} with commas "
            "between, e.g. 50,200"
        )
    return tuple(int(part) * 1_000_000 for part in parts)


def idle_case(
    folder: Path, onnx: Path | None, cpus: Sequence[int], peers: Sequence[str], plan: IdlePlan
) -> Case:
    """Measures one model on some processors; the calling process is bound to them.

    Returns:
        For each engine what `summary` says, for peers also the spreads of ours over theirs, hot
        (`ratio`) and after each idleness; and for ours the `causes`.
    """
    os.sched_setaffinity(0, cpus)
    model = Model.load(folder, verify=False)
    inputs = sample_inputs(model.manifest.inputs)
    shapes = {spec.name: spec.shape for spec in model.manifest.inputs}
    engines = [veltair_engine(model, len(cpus))]
    engines += [load_peer(name, onnx, len(cpus), shapes) for name in peers if onnx is not None]
    times = time_idleness([partial(engine.run, inputs) for engine in engines], plan)
    rows = []
    for index, engine in enumerate(engines):
        row = {**_identity(engine), **summary(times[index], plan)}
        if index > 0:
            ratio = times[0] / times[index]
            row["ratio"] = spread(ratio[:, 0])
            for number, after in enumerate(row["after"]):
                after["ratio"] = spread(ratio[:, 1 + number])
        rows.append(row)
    causes = time_causes(
        lambda: model.time_layers(inputs, cpus, 1)[0], plan.idle_ns[0], CAUSE_ROUNDS
    )
    return {
        "model": model.manifest.name,
        "version": model.manifest.version,
        "isa": model.manifest.isa,
        "cores": len(cpus),
        "cpus": list(cpus),
        "rounds": times.shape[1],
        "engines": rows,
        "causes": causes,
    }


def server_case(artifact: Artifact, cpus: Sequence[int], plan: IdlePlan) -> Case:
    """Measures a server of the artifact's repository on some processors, with one worker.

    Returns:
        What `summary` says, from submission to answer.
    """
    name, version = artifact.manifest.name, artifact.manifest.version
    repository = artifact.folder.resolve().parents[1]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "serve.toml"
        config.write_text(f"[engine]\ncores = {list(cpus)}\n")
        with (
            served(repository, workers=1, config=config) as server,
            LocalClient.attach(server.address) as client,
        ):
            times = time_idleness([lambda: ask(client, name, version)], plan)
    return {"rounds": times.shape[1], **summary(times[0], plan)}


def ask(client: LocalClient, model: str, version: int) -> None:
    """Sends one query and waits for its answer.

    Raises:
        VeltairError: it was not answered.
    """
    slot = client.allocate(model, version)
    try:
        for values in slot.inputs.values():
            values[...] = 0
        client.submit(slot, deadline_ns=time.monotonic_ns() + int(ANSWER_S * 1e9))
        completed = client.wait(ANSWER_S)
        if len(completed) != 1 or not completed[0].ok:
            why = completed[0].error if completed else f"no answer within {ANSWER_S:.0f} s"
            raise VeltairError(f"{model}: a query was not answered ({why})")
    finally:
        slot.release()


def print_case(case: Case) -> None:
    """Prints one line for each engine, and the causes."""
    print(f"{case['model']} on {case['cores']} core{'s' * (case['cores'] > 1)}", flush=True)
    rows = [(row["engine"], row) for row in case["engines"]]
    rows += [("veltair server", case["server"])] if "server" in case else []
    for name, row in rows:
        cells = [f"hot {row['hot_ns']['p50'] / 1e6:.3f} ms"]
        for after in row["after"]:
            cells.append(
                f"after {after['idle_ns'] / 1e6:.0f} ms {after['run_ns']['p50'] / 1e6:.3f} ms "
                f"(p90 {after['run_ns']['p90'] / 1e6:.3f}, x{after['penalty']['p50']:.2f})"
            )
        print(f"  {name:<15}", ", ".join(cells))
    for kind, cause in case["causes"].items():
        print(
            f"  {kind:<15} layers {cause['run_ns']['p50'] / 1e6:.3f} ms, "
            f"memory read at {cause['read_bytes_per_s']['p50'] / 1e9:.1f} GB/s"
        )


def _identity(engine: Engine) -> Case:
    return {"engine": engine.name, "version": engine.version, "settings": engine.settings}


if __name__ == "__main__":
    run_benchmark(MODULE, command)
