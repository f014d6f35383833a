"""The load of a comparison: the same for every policy, and in proportion to the capacity."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from factories import one_layer_profile, write_tiny_artifact

from veltair.eval.workload import Workload, capacity_qps, digests

MS = 1_000_000


def test_arrivals_are_those_of_their_seed_at_every_rate() -> None:
    workload = Workload(models=("a", "b"), queries=2000, seed=3)
    slow, fast = workload.arrivals(10), workload.arrivals(40)
    np.testing.assert_allclose(slow.time_ns / 4, fast.time_ns, atol=1)
    np.testing.assert_array_equal(slow.model, fast.model)
    assert np.bincount(slow.model).min() > 900
    assert slow.time_ns[-1] == pytest.approx(2000 / 10 * 1e9, rel=0.1)
    other = Workload(models=("a", "b"), queries=2000, seed=4).arrivals(10)
    assert not np.array_equal(other.time_ns, slow.time_ns)


def test_capacity_counts_the_least_processor_time_of_each_model() -> None:
    # 40 ms on one core beat 2 x 25 ms; 2 x 9 ms beat 20 ms: 58 core-ms for a query of each.
    pair = [one_layer_profile(40, 25), one_layer_profile(20, 9)]
    assert capacity_qps(pair, cores=2) == pytest.approx(2 * 2 / 0.058)
    # What was measured on more cores than there are is no help: 60 core-ms.
    assert capacity_qps(pair, cores=1) == pytest.approx(2 / 0.060)


def test_another_artifact_is_another_workload(tmp_path: Path) -> None:
    write_tiny_artifact(tmp_path / "tiny" / "1")
    before = digests(tmp_path, ["tiny"])
    assert digests(tmp_path, ["tiny"]) == before
    write_tiny_artifact(tmp_path / "tiny" / "2", qos_ns=1)
    assert digests(tmp_path, ["tiny"]) != before
