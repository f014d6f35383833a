"""A simulated machine whose pace has been measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from veltair.runtime.simulate.arrivals import Arrivals
from veltair.runtime.simulate.run import KnownPace, simulate
from veltair.runtime.simulate.scenario import read_scenario

MS = 1_000_000
SCENARIO = """
[machine]
cores = 1
pace = 2.0
decision_us = 0.0
[policy]
scheduling = "model"
[[model]]
name = "small"
profile = "small.csv"
qos_ms = 100.0
[arrivals]
process = "uniform"
rate_qps = 1.0
queries = 2
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "small.csv").write_text("layer,us_1c\na,1000\nb,3000\n")
    path = tmp_path / "scenario.toml"
    path.write_text(SCENARIO)
    return path


def ends_ms(path: Path, pace: KnownPace | None) -> list[float]:
    """When queries that come at 0 and 20 ms, and take 4 at pace 1, end."""
    arrivals = Arrivals(time_ns=np.array([0, 20 * MS]), model=np.zeros(2, np.int32))
    found = simulate(read_scenario(path), arrivals=arrivals, pace=pace)
    return [end_ns / MS for end_ns in found.end_ns.tolist()]


def test_what_is_known_multiplies_the_scenarios_pace(path: Path) -> None:
    assert ends_ms(path, None) == [8, 28]
    assert ends_ms(path, KnownPace(factors=(), step_ns=MS)) == [8, 28]
    # Of the work, 4 ms: 2 by 4 ms at a pace of 2, 4/3 by 8 at one of 3, and the rest at one of 6.
    pace = KnownPace(factors=(1, 1.5, 3), step_ns=4 * MS)
    assert ends_ms(path, pace) == pytest.approx([12, 44], abs=1e-5)


def test_a_pace_that_no_machine_has_is_refused(path: Path) -> None:
    for factors in ((1.0, 0.0), (1.0, -1.0), (float("nan"),), (float("inf"),)):
        with pytest.raises(ValueError, match="above 0"):
            ends_ms(path, KnownPace(factors=factors, step_ns=MS))
    with pytest.raises(ValueError, match="above 0"):
        ends_ms(path, KnownPace(factors=(1.0,), step_ns=0))
