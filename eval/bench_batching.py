"""Measures batching with placement: `python -m veltair.eval.bench_batching [--json FILE]`.

64 models on 256 emulated devices, requests and devices in process, one core. A sample is a whole
simulated run divided by its requests, so the device emulation's own cost is in the figure.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from veltair.eval.benchmark import origin, run_benchmark
from veltair.eval.record import check_writable, spread, write_result
from veltair.eval.symphony_profiles import device_model
from veltair.runtime._native import devices as native
from veltair.runtime._native import sched
from veltair.runtime.simulate.arrivals import Arrivals, generate_arrivals
from veltair.runtime.simulate.device_simulation import DeviceModel, DevicePolicy, simulate_devices
from veltair.runtime.simulate.scenario import ArrivalsSection

BOUND_QPS = 1_000_000
MODELS = 64
DEVICES = 256
# What 256 devices can serve of these models is about this (Symphony's equation 1, batches of 17).
FULL_QPS = 190_000
LOADS = (0.8, 1.2)


def models() -> list[DeviceModel]:
    """Returns the served models: ResNet-50 on the paper's GPU, with targets of 25 to 40 ms."""
    names = [f"model{i}" for i in range(MODELS)]
    return [
        replace(device_model(name, 1.053, 5.072, 25 + i % 16), timeout_ns=5_000_000)
        for i, name in enumerate(names)
    ]


def measure(policy: DevicePolicy, arrivals: Arrivals, samples: int) -> dict[str, Any]:
    """Returns the requests and the events that one core takes in a second of its time."""
    served = models()
    events = simulate_devices(served, arrivals, devices=DEVICES, policy=policy).run.events
    costs = [model.cost(policy.least_percent()) for model in served]
    slo_ns = [model.slo_ns for model in served]
    used_ns = np.empty(samples)
    for sample in range(samples):
        begun = time.thread_time_ns()
        native.run_devices(
            batching=policy.batching,
            placement=policy.placement,
            costs=costs,
            slo_ns=slo_ns,
            devices=DEVICES,
            queue_limit=policy.queue_limit,
            arrival_ns=arrivals.time_ns,
            model=arrivals.model,
        )
        used_ns[sample] = time.thread_time_ns() - begun
    queries = len(arrivals.model)
    return {
        "requests_per_s": spread(queries * 1e9 / used_ns),
        "events_per_s": spread(events * 1e9 / used_ns),
    }


def command(
    samples: Annotated[int, typer.Option(min=3)] = 9,
    queries: Annotated[int, typer.Option(min=1000, help="Of each run.")] = 500_000,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to save it.")] = None,
) -> None:
    """Measure each batching policy below and above what the devices can serve."""
    check_writable(json_file)
    result = origin("bench_batching")
    result |= {"bound_requests_per_s": BOUND_QPS, "models": MODELS, "devices": DEVICES}
    result |= {"queries": queries, "samples": samples, "policies": {}}
    for load in LOADS:
        arrivals = generate_arrivals(
            ArrivalsSection(rate_qps=load * FULL_QPS, queries=queries, seed=0), [1] * MODELS
        )
        for name in sched.batching_names():
            found = measure(DevicePolicy(batching=name), arrivals, samples)
            result["policies"].setdefault(name, {})[f"load_{load}"] = found
            million = found["requests_per_s"]["p50"] / 1e6
            print(f"{name}, load {load}: {million:.1f} M requests a second")
    if json_file is not None:
        write_result(json_file, result)


if __name__ == "__main__":
    run_benchmark("bench_batching", command)
