"""What the benchmark of versions makes of runs."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from veltair.eval.bench_versions import WAYS, _row, latencies_ns
from veltair.eval.capacity.system import FAILED, Observed
from veltair.eval.level_runs import wide_model
from veltair.runtime.simulate.arrivals import Arrivals
from veltair.runtime.simulate.run import SERVED

MS = 1_000_000


def test_latency_counts_from_the_arrival() -> None:
    zeros = np.zeros(2, np.int64)
    observed = Observed(
        submitted_ns=zeros,
        start_ns=zeros,
        end_ns=np.array([7, 9]),
        outcome=np.array([SERVED, FAILED]),
        errors=(),
    )
    arrivals = Arrivals(time_ns=np.array([2, 3]), model=np.zeros(2, np.int32))
    assert latencies_ns(observed, arrivals).tolist() == [5, np.inf]


def test_a_model_in_both_ways() -> None:
    one, by_level = WAYS
    late = [np.array([5, 20, 99.0]) * MS, np.array([5, 40, 99.0]) * MS]
    early = [np.array([5, 10, 99.0]) * MS, np.array([5, np.inf, 99.0]) * MS]
    own = np.array([True, True, False])
    row = _row("m", own, {one: late, by_level: early}, 12 * MS)
    assert row["satisfied"] == {one: 0.5, by_level: 0.75}
    assert row["mean_ms"][by_level]["p50"] == pytest.approx(6.25)
    assert row["satisfied_more"]["p50"] == pytest.approx(0.25)
    assert row["mean_ratio"]["p50"] == pytest.approx((7.5 / 12.5 + 5 / 22.5) / 2)


def test_the_wide_network() -> None:
    model = wide_model(8, depth=2)
    onnx.checker.check_model(model)
    assert [node.op_type for node in model.graph.node] == ["MatMul", "Relu"] * 2
