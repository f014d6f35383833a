"""Measures the simulator: `python -m veltair.eval.bench_simulator [--json FILE]`.

Block events a second on one core: blocks ended, decisions included. ResNet-50's 53 layers a query
under `layer`, the policy with the most blocks, and under the others.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from veltair.eval.benchmark import origin, run_benchmark
from veltair.eval.figures.granularity import scenario
from veltair.eval.record import check_writable, spread, write_result
from veltair.runtime._native import sched
from veltair.runtime.simulate.arrivals import make_arrivals
from veltair.runtime.simulate.profiles import load_profiles
from veltair.runtime.simulate.run import simulate

BOUND_PER_S = 1_000_000
RATE_QPS = 200


def measure(policy: str, queries: int, rounds: int) -> dict[str, float | int]:
    """Returns the spread of the block events a second, over repeated runs of the same load."""
    asked = scenario(scheduling=policy, rate_qps=RATE_QPS, queries=queries)
    profiles, arrivals = load_profiles(asked), make_arrivals(asked)
    rates = np.empty(rounds)
    for number in range(rounds):
        begun = time.process_time_ns()
        found = simulate(asked, profiles=profiles, arrivals=arrivals)
        spent_s = (time.process_time_ns() - begun) / 1e9
        rates[number] = sum(model["blocks"] for model in found.models) / spent_s
    return spread(rates)


def command(
    queries: Annotated[int, typer.Option(min=100)] = 20_000,
    rounds: Annotated[int, typer.Option(min=3)] = 10,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to save it.")] = None,
) -> None:
    """Measure block events a second under each policy."""
    check_writable(json_file)
    result: dict[str, Any] = origin("bench_simulator")
    result |= {"bound_per_s": BOUND_PER_S, "policies": {}}
    for policy in sched.policy_names():
        found = measure(policy, queries, rounds)
        result["policies"][policy] = found
        print(f"{policy}: {found['p50'] / 1e6:.2f} M block events/s")
    if json_file is not None:
        write_result(json_file, result)


if __name__ == "__main__":
    run_benchmark("bench_simulator", command)
