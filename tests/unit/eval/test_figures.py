"""The figures' computations on few queries: from the paper's profile to the files."""

from __future__ import annotations

import csv
import importlib.util
import json
from pathlib import Path

import pytest

from veltair.eval.figures import granularity
from veltair.eval.figures.__main__ import write


def test_blocks_cover_the_model_under_each_threshold() -> None:
    for models in range(1, 6):
        found = granularity.allocation(models)
        assert found.ends[-1] == len(found.demand) == 53
        assert list(found.ends) == sorted(set(found.ends))
        assert len(found.ends) == len(found.block_cores)
    # Three of 16 cores leave 16 of 64, 5 each: pivots need 21 or more.
    three = granularity.allocation(3)
    assert three.threshold == 5
    assert [layer for layer, need in enumerate(three.demand) if need >= 21] == list(three.ends[:-1])


def test_a_pair_needs_twice_the_cores_of_one() -> None:
    by_policy = {each.policy: each for each in granularity.core_use()}
    assert by_policy["model"].maximum == 2 * granularity.allocation(1).average
    assert by_policy["layer"].maximum > by_policy["veltair-as"].maximum


def test_whole_models_keep_fewer_queries_in_time_on_more_cores_than_they_need() -> None:
    found = {(p.policy, p.rate_qps): p.satisfied for p in granularity.sweep_of_model(1_000)}
    planned = granularity.on_cores(granularity.allocation(1).average)
    # By the profile two instances of 24 cores serve 241 queries a second, four of 16 serve 349.
    assert found[granularity.on_cores(24), 300] < found[planned, 300] - 0.1
    model = {p.rate_qps: p.satisfied for p in granularity.sweep(1_000) if p.policy == "model"}
    assert {rate: found[planned, rate] for rate in granularity.RATES} == pytest.approx(model)


def test_the_files_say_what_was_simulated(tmp_path: Path) -> None:
    write(tmp_path, 300)
    found = json.loads((tmp_path / "veltair_granularity.json").read_text())
    assert found["scenario"]["arrivals"]["queries"] == 300
    assert len(found["points"]) == len(granularity.POLICIES) * len(granularity.RATES)
    with (tmp_path / "veltair_granularity.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    layer = next(
        row
        for row in rows
        if (row["policy"], row["rate_qps"], row["metric"]) == ("layer", "300", "conflict_rate")
    )
    assert layer["paper"] == "0.238"
    point = next(p for p in found["points"] if p["policy"] == "layer" and p["rate_qps"] == 300)
    assert float(layer["ours"]) == pytest.approx(point["conflict_rate"], rel=1e-3)
    assert "| yes |" in (tmp_path / "veltair_granularity.md").read_text()
    if importlib.util.find_spec("matplotlib"):
        assert (tmp_path / "veltair_fig3_fig5a.svg").stat().st_size > 1000
