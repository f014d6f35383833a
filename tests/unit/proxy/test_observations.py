"""What training gets from a record."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from calibrations import LEVELS, RUNS, record, turn
from proxy_models import count, reading

from veltair.proxy.observations import Observation, levels_of, noise_of, observations_of, table_of


def test_a_level_is_the_median_slowdown_of_the_reference() -> None:
    turns = [turn(0, of=0), turn(1, of=0, drift=1.5), turn(2, of=0, levels=(0.0, 9.0, 0.8))]
    assert levels_of(turns, 3) == pytest.approx([0.0, 0.5, 1.0])
    assert levels_of([turn(0, of=0, levels=(0.0, -0.2, 0.1))], 3) == pytest.approx([0, 0, 0.1])


def test_each_slot_has_its_own_level(tmp_path: Path) -> None:
    # What was beside the first turn's layer shared no cache with it.
    apart = [turn(0, of=0, levels=(0.0, 0.0, -0.1)), turn(1, of=0), turn(2, of=0)]
    found = observations_of(record(tmp_path / "r", apart), (0, 1, 2))
    assert [each.level for each in found] == pytest.approx([0, 0, 0, 0, 0, 0, 0.5, 1, 0, 0, 0.5, 1])
    table = table_of(found)
    assert table.values[:3, 0] == pytest.approx(0.0)
    assert table.values[4:, 0] == pytest.approx(table.level[4:])


def test_own_blocks_tell_the_level_whatever_the_layer_feels(tmp_path: Path) -> None:
    turns = [
        turn(number, of=work, sensitivity=0.2 + work) for number in range(3) for work in range(2)
    ]
    found = observations_of(record(tmp_path / "r", turns), (0, 1, 2))
    assert len(found) == 6 * 4
    table = table_of(found)
    assert table.features == ("block_level", "block_slowdown")
    assert set(table.sources) == {"self"}
    assert table.values[:, 0] == pytest.approx(table.level)
    assert sorted(set(table.level)) == pytest.approx(LEVELS)
    told = [table.confidence[table.layer == layer, 0].max() for layer in (0, 1)]
    # Of the level, by the layer's own noise, and by what all its runs have alike.
    error = math.hypot(0.05 / math.sqrt(RUNS), 0.03) / 0.2
    assert told[0] == pytest.approx(1 / (1 + (error / 0.1) ** 2))
    assert told[0] < told[1] < 1
    assert [each.slowdown for each in found if each.layer == "conv 1"][-1] == pytest.approx(1.2)


def test_the_profile_of_a_slot_is_of_other_rounds(tmp_path: Path) -> None:
    turns = [turn(0, of=0), turn(1, of=0), turn(2, of=0, drift=1.2)]
    found = table_of(observations_of(record(tmp_path / "r", turns), (0, 1, 2)))
    alone = found.values[found.alone, 0]
    # The third round is slower than the others' profile; that its own is as slow isn't seen.
    assert alone[4:] == pytest.approx(0.2 / 0.5)
    assert alone[:4] == pytest.approx((1 / 1.1 - 1) / 0.5, abs=0.02)
    left_out = observations_of(record(tmp_path / "r", turns), (0, 1))
    assert table_of(left_out).values[:, 0] == pytest.approx([0, 0, 0.5, 1.0] * 2)


def test_a_single_round_has_no_profile(tmp_path: Path) -> None:
    found = observations_of(record(tmp_path / "r", [turn(0, of=0)]), (0,))
    assert [each.told for each in found] == [{}] * 4


def test_sources_become_columns_and_what_is_missing_is_nan() -> None:
    rows = [
        Observation(
            layer=layer, round=0, setting=setting, level=0.1, slowdown=0.0, readings=readings
        )
        for layer, setting, readings in (
            ("b", 0, {"probe": reading(count("probe_step", 7, confidence=0.5))}),
            ("a", 1, {"perf-uncore": reading(count("l3_accesses", 1), count("l3_misses", 1))}),
        )
    ]
    table = table_of(rows)
    assert table.features == ("l3_miss_rate", "l3_access_rate", "l3_miss_traffic", "probe_step")
    assert table.sources == ("perf-uncore",) * 3 + ("probe",)
    assert np.isnan(table.values[0]).tolist() == [True, True, True, False]
    assert np.isnan(table.values[1]).tolist() == [False, False, False, True]
    assert table.confidence[0].tolist() == [0, 0, 0, 0.5]
    assert table.layer.tolist() == [1, 0]
    assert table.alone.tolist() == [True, False]


def test_noise_is_what_two_measurements_alone_differ_by() -> None:
    assert noise_of([turn(0, of=0), turn(1, of=0, drift=2.0)]) == 0
