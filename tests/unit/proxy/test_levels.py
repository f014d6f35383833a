"""Levels: which rates are chosen, which of them are told apart, what a machine says."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from veltair.proxy.evictors import Evictors
from veltair.proxy.levels import (
    LEAST_STEP,
    Curve,
    calibrate,
    curve_of,
    rates_for,
    reference_beside,
    told_apart,
)
from veltair.runtime.errors import InputError

CPUS = sorted(os.sched_getaffinity(0))


def curve(*slowdowns: float, noise: float = 0.0) -> Curve:
    rates = tuple(100 * i for i in range(len(slowdowns)))
    return Curve(rates=rates, slowdowns=slowdowns, noise=noise)


def test_slow_downs_are_medians_of_ratios_by_round() -> None:
    """A round in which the whole machine was twice as slow changes nothing."""
    rounds = np.array([[10.0, 10.0, 12.0, 15.0]] * 9)
    rounds[3:5] *= 2
    found = curve_of((0, 50, 100), rounds)
    assert found.rates == (0, 50, 100)
    assert found.slowdowns == pytest.approx((0.0, 0.2, 0.5))
    assert found.noise == 0


def test_noise_is_what_two_of_the_same_differ_by() -> None:
    random = np.random.default_rng(1)
    alone = 10 + random.normal(0, 1, (100, 2))
    found = curve_of((0, 100), np.column_stack([alone, alone[:, 1]]))
    # Each ratio has a deviation of about 0.14; 2.56 of them, over the root of 100.
    assert found.noise == pytest.approx(0.036, rel=0.4)


def test_levels_are_evenly_spread_slow_downs() -> None:
    assert rates_for(curve(0, 0.1, 0.2, 0.3, 0.4), 5) == (0, 100, 200, 300, 400)
    assert rates_for(curve(0, 0.1, 0.2, 0.3, 0.4), 3) == (0, 200, 400)
    # Where the curve is flat first and then steep, the rates crowd into the steep part.
    assert rates_for(curve(0, 0.0, 0.0, 0.4), 3) == (0, 150, 300)


def test_a_curve_that_falls_again_is_read_where_it_rises() -> None:
    assert rates_for(curve(0, 0.2, 0.1, 0.4, 0.3), 3) == (0, 100, 300)


def test_a_machine_that_nothing_disturbs_has_one_level() -> None:
    assert rates_for(curve(0, -0.01, -0.02), 4) == (0,)
    assert told_apart(curve(0)) == curve(0)


def test_levels_closer_than_noise_are_one() -> None:
    found = told_apart(curve(0, 0.02, 0.06, 0.07, 0.2, noise=0.05))
    assert found.rates == (0, 200, 400)
    assert found.slowdowns == (0, 0.06, 0.2)
    assert told_apart(curve(0, LEAST_STEP / 2, LEAST_STEP)).rates == (0, 200)
    assert told_apart(curve(0, -0.3, -0.1)).slowdowns == (0,)


@pytest.mark.skipif(len(CPUS) < 2, reason="an evictor needs a processor of its own")
def test_evictors_make_levels_of_shares(tmp_path: Path) -> None:
    """Whatever this machine has, no rate is beyond the whole, and a model's weights are evicted."""
    found = calibrate(CPUS, 3, "evictors")
    assert found.footprint_bytes == 0
    assert found.curve.rates[0] == 0
    assert found.curve.rates[-1] <= 1_000_000
    weights = tmp_path / "weights.bin"
    weights.write_bytes(bytes(10_000))
    with found.co_runners(weights) as disturbing:
        assert isinstance(disturbing, Evictors)
        disturbing.set_rate(disturbing.highest_rate())


def test_the_memory_of_a_reference_beside_evictors_is_there_as_long_as_it_is() -> None:
    facts = {"l2_bytes": 4096, "l3_bytes": 1 << 20}
    with reference_beside("bubbles", facts, CPUS[0]) as private:
        assert private.kernel.working_set_bytes == 16384
        assert private.victims == ()
    with reference_beside("evictors", facts, CPUS[0]) as reference:
        assert reference.kernel.working_set_bytes == 16384
        (memory,) = reference.victims
        assert (memory.begin_bytes, memory.end_bytes) == (0, 16384)
        with Evictors(CPUS[-1:], [memory]) as evictors:
            evictors.set_rate(1_000_000)
            times = np.empty(3, np.int64)
            reference.kernel.time(times)
    with pytest.raises(InputError, match="can't be read"):
        Evictors(CPUS[-1:], [memory])


def test_one_processor_has_no_room_for_a_bubble() -> None:
    with pytest.raises(InputError, match="measure with --levels 1"):
        calibrate(CPUS[:1], 2)
