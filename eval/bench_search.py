"""What a search from an empty log costs: `python -m veltair.eval.bench_search`.

Two questions. How long a network is searched until it is as fast as with the shipped logs: the
search is run with more and more trials a layer, and after each step both artifacts are timed in
turns. And how much longer a compile takes that keeps several versions of a layer than one that
keeps one: the same few layers, the same trials, in turns, each from an empty log.
"""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from veltair.compiler.target_options import choose_isa
from veltair.eval.bench_command import parse_counts
from veltair.eval.benchmark import origin, run_benchmark
from veltair.eval.children import stopped_by_signals
from veltair.eval.interleave import Plan
from veltair.eval.networks import choose_networks
from veltair.eval.record import write_result
from veltair.eval.search_cost import Setting, SpeedSearch, versions_cost
from veltair.runtime.errors import InputError
from veltair.runtime.run_command import first_cpus

STEM = "search"
NETWORK = "resnet50"
SCRATCH = Path("build/solo")
PARTS = ("speed", "versions")


def command(
    out: Annotated[Path, typer.Option(help="Folder of the result.")] = Path("eval/results"),
    network: Annotated[str, typer.Option(help="To search.")] = NETWORK,
    parts: Annotated[str, typer.Option(help="What to measure.")] = ",".join(PARTS),
    trials: Annotated[str, typer.Option(help="A layer, step by step.")] = "2,4,8,16,32",
    threads: Annotated[str, typer.Option(help="On which both artifacts are timed.")] = "1,2",
    seconds: Annotated[float, typer.Option(min=0.1, help="To time them, each.")] = 10.0,
    convolutions: Annotated[
        int, typer.Option(min=1, help="First ones of the network, to compare versions with.")
    ] = 5,
    rounds: Annotated[int, typer.Option(min=1, help="Compiles of each kind for that.")] = 3,
    round_trials: Annotated[int, typer.Option(min=1, help="A layer in those compiles.")] = 8,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Search what was searched before again.")
    ] = False,
    scratch: Annotated[Path, typer.Option(help="Where artifacts are kept.")] = SCRATCH,
) -> None:
    """Measure searches from an empty log."""
    (name,) = choose_networks(network)
    wanted = _choose_parts(parts)
    isa = choose_isa("auto")
    usable = sorted(os.sched_getaffinity(0))
    choices = [first_cpus(usable, count) for count in parse_counts(threads)]
    plan = Plan(budget_ns=round(seconds * 1e9))
    setting = Setting(network=name, isa=isa, scratch=scratch)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{STEM}.json"
    before = json.loads(path.read_text()) if path.is_file() else {}
    result = origin("bench_search") | {part: before[part] for part in PARTS if part in before}
    with stopped_by_signals():
        if "speed" in wanted:
            search = SpeedSearch(setting, {} if fresh else before.get("speed", {}))
            result["speed"] = search.result
            search.run(parse_counts(trials), choices, plan, partial(write_result, path, result))
        if "versions" in wanted:
            result["versions"] = versions_cost(setting, convolutions, rounds, round_trials)
            write_result(path, result)
    for step in result.get("speed", {}).get("steps", ()):
        over = ", ".join(f"{r['p50']:.2f} on {n}" for n, r in step["ratio"].items())
        print(f"{step['trials']} trials, {step['search_ns'] / 60e9:.1f} min: time {over}")
    if "versions" in result:
        cost = result["versions"]
        print(
            f"{cost['versions']} versions over 1: compile {cost['wall']['p50']:.3f}, search "
            f"{cost['search']['p50']:.3f}"
        )


def _choose_parts(text: str) -> tuple[str, ...]:
    parts = tuple(part for part in text.split(",") if part)
    if not parts or not set(parts) <= set(PARTS):
        raise InputError(f"--parts {text}: choose from {', '.join(PARTS)}")
    return parts


if __name__ == "__main__":
    run_benchmark("bench_search", command)
