"""Measured slow-downs become the interference levels that the simulator reads."""

from __future__ import annotations

import pytest
from factories import one_layer_profile

from veltair.eval.calibration import with_levels

MS = 1_000_000


def test_a_level_is_a_number_of_busy_neighbours() -> None:
    found = with_levels(one_layer_profile(40, 25), 1.1, cores=2)
    assert found.levels == pytest.approx((0, 0.1, 0.2))
    # One core: one neighbour at most. Both cores: none.
    assert found.model_ns == ((40 * MS, 44 * MS, 44 * MS), (25 * MS, 25 * MS, 25 * MS))
    assert found.layer_ns == ((found.model_ns,),)


def test_neighbours_slow_down_in_proportion_to_their_number() -> None:
    found = with_levels(one_layer_profile(90, 60, 40, 30), 1.3, cores=4)
    assert [round(ns / MS) for ns in found.model_ns[0]] == [90, 99, 108, 117, 117]
    assert [round(ns / MS) for ns in found.model_ns[1]] == [60, 66, 72, 72, 72]


@pytest.mark.parametrize("cores", [1, 2, 4])
def test_levels_ascend_where_neighbours_cost_nothing_too(cores: int) -> None:
    found = with_levels(one_layer_profile(40), 1.0, cores=cores)
    assert set(found.model_ns[0]) == {40 * MS}
    assert list(found.levels) == sorted(set(found.levels))
    assert found.levels[0] == 0


def test_one_core_has_no_neighbours() -> None:
    assert with_levels(one_layer_profile(40), 1.0, cores=1).model_ns == ((40 * MS, 40 * MS),)
