"""Arrivals: their rates, their spread, their seeds, and recorded ones."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veltair.runtime.errors import ConfigError, InputError
from veltair.runtime.simulate.arrivals import generate_arrivals, make_arrivals
from veltair.runtime.simulate.scenario import ArrivalsSection, parse_scenario

PROCESSES = ("poisson", "gamma", "uniform", "diurnal")


def arriving(**fields: Any) -> ArrivalsSection:  # noqa: ANN401 # fields of any type
    return ArrivalsSection(**({"rate_qps": 100.0, "queries": 20_000, "period_s": 20.0} | fields))


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("weights", [[1], [3, 0, 1]])
def test_each_process_has_its_rate_shares_and_seeds(process: str, weights: list[float]) -> None:
    found = generate_arrivals(arriving(process=process), weights)
    assert len(found.model) == len(found.time_ns) == 20_000
    assert (np.diff(found.time_ns) >= 0).all()
    assert found.time_ns[0] >= 0
    assert len(found.time_ns) / (found.time_ns[-1] / 1e9) == pytest.approx(100, rel=0.05)
    share = np.bincount(found.model) / 20_000
    assert share == pytest.approx(np.array(weights) / sum(weights), abs=0.02)
    again = generate_arrivals(arriving(process=process), weights)
    np.testing.assert_array_equal(found.time_ns, again.time_ns)
    np.testing.assert_array_equal(found.model, again.model)
    other = generate_arrivals(arriving(process=process, seed=2), weights)
    assert not np.array_equal(found.time_ns, other.time_ns)


@pytest.mark.parametrize("process", PROCESSES)
def test_models_have_seeds_of_their_own(process: str) -> None:
    two = generate_arrivals(arriving(process=process), [1, 1])
    first, second = (two.time_ns[two.model == model][:100] for model in (0, 1))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(
    ("process", "shape", "variation"),
    [("poisson", 9.0, 1.0), ("gamma", 0.25, 2.0), ("gamma", 4.0, 0.5), ("uniform", 9.0, 1.0)],
)
def test_each_process_has_its_burstiness(process: str, shape: float, variation: float) -> None:
    """By model too: a gamma model's bursts are its own, whatever the others do."""
    found = generate_arrivals(arriving(process=process, shape=shape, queries=60_000), [1, 1])
    for model in (0, 1):
        gaps = np.diff(found.time_ns[found.model == model])
        assert gaps.std() / gaps.mean() == pytest.approx(variation, rel=0.05)


def test_diurnal_rate_rises_and_falls() -> None:
    found = generate_arrivals(arriving(process="diurnal", amplitude=1.0), [1])
    rising = (found.time_ns / 1e9 % 20 < 10).mean()
    assert rising == pytest.approx(0.5 + 1 / np.pi, abs=0.02)
    flat = generate_arrivals(arriving(process="diurnal", amplitude=0.0), [1])
    even = generate_arrivals(arriving(process="poisson"), [1])
    assert np.abs(flat.time_ns - even.time_ns).max() < 1_000  # the warp's rounding


@pytest.mark.parametrize("weights", [[], [0, 0], [-1, 2], [math.inf], [math.nan]])
def test_bad_weights_are_refused(weights: list[float]) -> None:
    with pytest.raises(ConfigError, match="weights"):
        generate_arrivals(arriving(), weights)


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("rate_qps", [1e-300, 1e-6, math.nan, -1.0])
def test_times_that_no_clock_has_are_refused(process: str, rate_qps: float) -> None:
    with pytest.raises(ConfigError, match=r"arrivals\.rate_qps"):
        generate_arrivals(arriving(process=process, rate_qps=rate_qps), [1])


def test_recorded_arrivals(tmp_path: Path) -> None:
    file = tmp_path / "recorded.csv"
    table = {
        "machine": {"cores": 1},
        "model": [{"name": "small", "profile": "small.csv"}],
        "arrivals": {"process": "file", "file": file.name},
    }
    scenario = parse_scenario(table, folder=tmp_path)
    file.write_text("arrival_ns,model\n5,small\n3,small\n9,small\n")
    assert make_arrivals(scenario).time_ns.tolist() == [3, 5, 9]
    for content, part in [
        ("arrival_ns,model\n5,large\n", "large"),
        ("time,model\n5,small\n", "arrival_ns"),
        ("arrival_ns,model\nsoon,small\n", "soon"),
        ("arrival_ns,model\n-1,small\n", "from 0 ns"),
        ("arrival_ns,model\n", "0 queries"),
        ("arrival_ns,model\n99999999999999999999,small\n", "arrivals.file"),
        ("arrival_ns,model\n9223372036854775807,small\n", "arrivals.file"),
    ]:
        file.write_text(content)
        with pytest.raises(InputError, match=r"arrivals\.file") as refused:
            make_arrivals(scenario)
        assert part in str(refused.value)
    file.write_bytes(b"arrival_ns,model\n5,\xff\n")
    with pytest.raises(InputError, match=r"arrivals\.file"):
        make_arrivals(scenario)
    file.unlink()
    file.mkdir()
    with pytest.raises(InputError, match=r"arrivals\.file"):
        make_arrivals(scenario)
