"""The traces that Symphony's paper walks through, §3.3: Figures 4, 5a and 5b."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veltair.runtime.simulate.arrivals import Arrivals
from veltair.runtime.simulate.device_simulation import (
    DeviceModel,
    DevicePolicy,
    DeviceResult,
    simulate_devices,
)

UNIT = 1_000_000  # ns; the paper's unit of time
MODEL = DeviceModel(name="example", alpha_ns=UNIT, beta_ns=5 * UNIT, slo_ns=12 * UNIT)
MISSING = (13, 14, 15)  # the requests that Figure 5 leaves out


def run(batching: str, requests: Sequence[int], busy_until: Sequence[float] = ()) -> DeviceResult:
    """Three GPUs and the paper's model, R_i at 0.75 (i - 1); GPUs may be busy at the beginning."""
    earlier = [
        DeviceModel(name=f"until {end}", alpha_ns=0, beta_ns=round(end * UNIT), slo_ns=0)
        for end in busy_until
    ]
    times = [0] * len(earlier) + [(i - 1) * 3 * UNIT // 4 for i in requests]
    models = [*range(1, len(earlier) + 1), *[0] * len(requests)]
    return simulate_devices(
        [MODEL, *earlier],
        Arrivals(time_ns=np.array(times, dtype=np.int64), model=np.array(models, dtype=np.int32)),
        devices=3,
        policy=DevicePolicy(batching=batching, least_batch_percent=0),
    )


def batches(result: DeviceResult) -> list[tuple[float, int, int]]:
    """(start, GPU from 1, size) of each batch of the paper's model."""
    ours = result.run.model == 0
    columns = (result.run.start_ns / UNIT, result.run.device + 1, result.run.size)
    return list(zip(*(column[ours].tolist() for column in columns), strict=True))


def test_figure_4_deferred_scheduling_staggers() -> None:
    result = run("deferred", range(1, 121))
    assert batches(result) == [(2.25 + 3 * n, n % 3 + 1, 4) for n in range(30)]
    assert result.satisfied().all()


def test_figure_5a_eager_scheduling_deteriorates() -> None:
    # Eager from R16 on: before it, the GPUs run the batches of the staggered pattern.
    requests = range(16, 60)
    result = run("eager", requests, busy_until=(11.25, 14.25, 17.25))
    assert batches(result)[:6] == [
        (11.25, 1, 1),  # R16 arrives as GPU 1 ends
        (14.25, 2, 4),
        (17.25, 3, 4),
        (18.0, 1, 1),  # R25 arrives
        (23.25, 2, 2),  # of the seven that wait, as many as meet R26's deadline
        (24.0, 1, 3),
    ]
    lost = np.flatnonzero(result.run.outcome) - 3
    assert [requests[query] for query in lost[:3]] == [35, 37, 38]


def test_figure_5b_deferred_scheduling_regains_the_pattern() -> None:
    result = run("deferred", [i for i in range(1, 124) if i not in MISSING])
    # Each GPU idles for 2.25, once; from R19 on all is as it was before.
    before = [(2.25, 1, 4), (5.25, 2, 4), (8.25, 3, 4)]
    assert batches(result) == before + [(13.5 + 3 * n, n % 3 + 1, 4) for n in range(27)]
    assert result.satisfied().all()
