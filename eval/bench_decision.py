"""Measures one scheduling decision: `python -m veltair.eval.bench_decision [--json FILE]`.

Each policy decides over networks of 200 layers, tasks that wait, and workers that run. The call
comes from Python, so its cost is in the figure: a worker, which calls from C++, spends less.
"""

from __future__ import annotations

import time
from itertools import repeat
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from veltair.eval.benchmark import origin, run_benchmark
from veltair.eval.record import check_writable, spread, write_result
from veltair.runtime._native import sched

BOUND_NS = 2_000
MODELS = 8
LAYERS = 200
VARIANTS = 4
LEVELS = 5
WAITING = 64
WORKERS = 8
CORES = 64
HELD = 6  # by each worker; the rest is free
CALLS = 1_000  # a sample is their mean: one call is too short for a clock read at each end


def profile(random: np.random.Generator) -> sched.ModelProfile:
    """Returns a network whose layers are faster on more cores and slower under interference."""
    layer_ns = random.integers(50_000, 500_000, (LAYERS, VARIANTS, 1, 1))
    scale = np.linspace(1, 2, LEVELS)[None, :] / np.arange(1, CORES + 1)[:, None]
    times = (layer_ns * scale).astype(np.int64)
    return sched.ModelProfile(
        qos_ns=15_000_000,
        cores=list(range(1, CORES + 1)),
        levels=LEVELS,
        model_ns=times[:, 0].sum(axis=0).ravel().tolist(),
        variants=[VARIANTS] * LAYERS,
        layer_ns=times.ravel().tolist(),
    )


def busy_state(models: list[sched.ModelProfile]) -> sched.State:
    """Returns a server where each worker is amid a task and others wait."""
    tasks = [
        sched.Task(model=index % MODELS, arrival_ns=index, deadline_ns=15_000_000, order=index)
        for index in range(WORKERS + WAITING)
    ]
    workers = [
        sched.Running(task=task, layer_begin=0, layer_end=LAYERS // 2, cores_held=HELD)
        for task in range(WORKERS)
    ]
    return sched.State(
        models=models,
        tasks=tasks,
        queue=range(WORKERS, WORKERS + WAITING),
        workers=workers,
        total_cores=CORES,
        free_cores=CORES - WORKERS * HELD,
    )


def measure(policy: sched.Policy, state: sched.State, samples: int) -> dict[str, Any]:
    """Returns the spread of one decision's time at each event, ns."""
    found: dict[str, Any] = {}
    for event in (sched.EventKind.WORKER_IDLE, sched.EventKind.BLOCK_END):
        times_ns = np.empty(samples)
        for sample in range(samples):
            begun = time.perf_counter_ns()
            for _ in repeat(None, CALLS):
                policy.decide(state, event, 0, 1_000_000)
            times_ns[sample] = (time.perf_counter_ns() - begun) / CALLS
        found[event.name.lower()] = spread(times_ns)
    return found


def command(
    samples: Annotated[int, typer.Option(min=3)] = 200,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to save it.")] = None,
) -> None:
    """Measure one decision of each scheduling policy."""
    check_writable(json_file)
    result = origin("bench_decision")
    random = np.random.default_rng(0)
    models = [profile(random) for _ in range(MODELS)]
    state = busy_state(models)
    result |= {"bound_ns": BOUND_NS, "layers": LAYERS, "cores": CORES, "policies": {}}
    for name in sched.policy_names():
        found = measure(sched.make_policy(name, CORES, models), state, samples)
        result["policies"][name] = found
        print(f"{name}:", ", ".join(f"{event} {ns['p50']:.0f} ns" for event, ns in found.items()))
    if json_file is not None:
        write_result(json_file, result)


if __name__ == "__main__":
    run_benchmark("bench_decision", command)
