from __future__ import annotations

import numpy as np
import pytest

from veltair.eval.loadgen_schedule import _mt19937, server_schedule


def test_generator_is_the_one_that_the_cpp_standard_defines() -> None:
    # [rand.predef]: the 10000th word of a std::mt19937 with its default seed, 5489.
    assert _mt19937(5489).random_raw(10_000)[-1] == 4_123_659_995


@pytest.mark.parametrize("qps", [0.5, 20.0, 3000.0])
def test_arrivals_are_poisson(qps: float) -> None:
    due_ns = server_schedule(11, qps, 20_000)
    gaps_ns = np.diff(due_ns)
    assert due_ns[0] == 0
    assert due_ns.dtype == np.int64
    assert (gaps_ns >= 0).all()
    assert gaps_ns.mean() * qps == pytest.approx(1e9, rel=0.05)
    assert gaps_ns.std() == pytest.approx(gaps_ns.mean(), rel=0.05)


def test_a_longer_schedule_begins_like_a_shorter_one() -> None:
    np.testing.assert_array_equal(
        server_schedule(3, 10.0, 500)[:100], server_schedule(3, 10.0, 100)
    )
    assert len(server_schedule(3, 10.0, 0)) == 0


def test_seeds_give_different_schedules() -> None:
    assert (server_schedule(1, 10.0, 9) != server_schedule(2, 10.0, 9)).any()
