"""The pages of the two comparisons say what the points say."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from veltair.eval import policies, policies_report, sim_vs_real, sim_vs_real_report
from veltair.eval.latency_figures import Figures, medians
from veltair.eval.unevenness import Unevenness
from veltair.runtime.disturbance import Disturbance

QUIET = Disturbance(driver=0.001, others=0.0, steal=0.0)
MEASURED = {"revision": "abc", "command": "it", "load_average_before": 0.1}
MACHINE = {"machine": {"cores": 2, "cpu": "some"}}


def figures(**changes: float) -> Figures:
    """Figures of 100 queries, 90 of them in time."""
    whole = Figures(
        queries=100,
        served=100,
        refused=0,
        failed=0,
        offered_qps=50.0,
        satisfied_qps=45.0,
        satisfied_share=0.9,
        mean_ms=20.0,
        p50_ms=18.0,
        p95_ms=40.0,
        p99_ms=50.0,
        wait_ms=5.0,
        service_ms=15.0,
    )
    return replace(whole, **changes)


@pytest.mark.parametrize(
    ("changes", "within"),
    [
        ({}, True),
        ({"mean_ms": 21.9, "p95_ms": 36.1, "satisfied_share": 0.929}, True),
        ({"mean_ms": 22.1}, False),
        ({"p95_ms": 35.9}, False),
        ({"satisfied_share": 0.931}, False),
        ({"mean_ms": float("nan")}, False),
    ],
)
def test_the_bounds_are_of_all_three_figures(changes: dict[str, float], within: bool) -> None:
    assert sim_vs_real_report.is_within(figures(), figures(**changes)) is within


def compared(simulated: Figures, disturbance: Disturbance = QUIET) -> str:
    """The page of one point."""
    point = sim_vs_real.Point(
        policy="model",
        load=0.5,
        rate_qps=50.0,
        real={"all": figures(), "resnet50": figures()},
        simulated={"all": simulated, "resnet50": simulated},
        foretold={"all": figures(mean_ms=30.0)},
        late_ms=0.1,
        disturbance=disturbance,
        pace=(0.9, 1.3),
        over_foretold=1.04,
        speed={"resnet50": (1.0, 1.1)},
        beside={"resnet50": 1.05},
        unevenness=Unevenness(spread=0.125, memory_ns=80_000_000),
        again=2,
        errors=(),
    )
    result: dict[str, Any] = MEASURED | MACHINE
    result |= {
        "workload": {"models": ["resnet50"], "queries": 100, "seed": 1},
        "workers": 4,
        "qos_ns": {"resnet50": 50_000_000},
        "qos_scale": 1.0,
        "steady": 0.1,
        "pace_step_ms": 20.0,
        "calibrations": [
            {
                "load": 0.5,
                "capacity_qps": 100.0,
                "measured": {
                    "profiles": {"resnet50": {"cores": [1, 2], "model_ns": [[40e6], [25e6]]}},
                    "costs": {
                        "start_ns": 100_000,
                        "boundary_ns": 3000,
                        "gain_ns": 90_000,
                    },
                },
                "disturbance": {"others": 0.0},
            }
        ],
    }
    return sim_vs_real_report.markdown(result, [point])


def test_a_point_within_its_bounds_needs_no_reason() -> None:
    page = compared(figures(mean_ms=20.5))
    assert "Of 1 points 1 are within" in page
    assert "| +2.5% |" in page
    assert "Of 1 points 0 are within the bounds. Waiting" in page  # as foretold
    assert "| 30.00 | +50.0% |" in page
    assert "| 0.90 to 1.30 | +4.0% | resnet50 1.00 to 1.10 |" in page
    assert "beyond the bounds" not in page
    assert "| resnet50 +5.0% | 0.12, 80 ms | 2 |" in page


def test_a_point_beyond_its_bounds_has_the_measured_reasons() -> None:
    page = compared(
        figures(mean_ms=15.0, wait_ms=1.0, service_ms=14.0, refused=7),
        Disturbance(driver=0.0, others=0.25, steal=0.0),
    )
    assert "Of 1 points 0 are within" in page
    assert "-1.00 ms are service and -4.00 ms waiting" in page
    assert "other processes used 25.0% of the processors" in page
    assert "0 queries refused and 0 failed, simulated 7 refused" in page


def point(
    load: float, satisfied_qps: float, policy: str = "model", number: int = 0
) -> policies.Point:
    """A point of the pair."""
    return policies.Point(
        pair="a+b",
        policy=policy,
        load=load,
        round=number,
        figures={"all": figures(satisfied_qps=satisfied_qps)},
        disturbance=QUIET,
        errors=(),
    )


def test_the_top_is_flat_where_the_last_load_keeps_the_peak() -> None:
    assert policies_report.flat_top({1.2: 40, 0.3: 20, 0.9: 50}) == (50, 0.8)
    assert policies_report.flat_top({0.3: 0}) is None


def test_a_point_is_the_median_of_its_rounds() -> None:
    slow = [point(0.9, 50, number=0), point(1.2, 9, number=0)]
    fast = [point(load, 48, number=number) for number in (1, 2) for load in (0.9, 1.2)]
    first, second = policies_report.summaries(slow + fast)
    assert (first.load, first.figures["all"].satisfied_qps) == (0.9, 48)
    assert (second.load, second.figures["all"].satisfied_qps) == (1.2, 48)
    assert second.satisfied_qps == (9, 48)


def test_a_median_leaves_out_what_is_not_known() -> None:
    runs = [figures(p99_ms=ms, refused=count) for ms, count in ((math.nan, 1), (3.0, 2), (5.0, 6))]
    found = medians(runs)
    assert (found.p99_ms, found.refused) == (4.0, 2)
    assert math.isnan(medians([figures(p99_ms=math.nan)]).p99_ms)


def test_the_page_has_every_policy_and_those_that_are_not_served() -> None:
    points = [point(0.9, 50), point(1.2, 20), point(0.9, 50, "block-6"), point(1.2, 49, "block-6")]
    points.append(point(1.2, 48, "model+admission"))
    result: dict[str, Any] = MEASURED | MACHINE
    result |= {
        "plan": {"queries": 100, "rounds": 1, "seed": 1, "workers": 4, "slots": 64},
        "pairs": {
            "a+b": {
                "capacity_qps": 80.0,
                "qos_ns": {"a": 50_000_000, "b": 10_000_000},
                "model_ns": {"a": [[40e6], [25e6]], "b": [[5e6], [3e6]]},
                "others_while_profiling": {"a": 0.0, "b": 0.2},
                "not_served": {"prema": "it waits"},
                "failed": {"layer": "the server ended"},
            }
        },
    }
    page = policies_report.markdown(result, points)
    assert "| model | 50.0 (50.0 to 50.0) | 20.0 (20.0 to 20.0) | 40% | no |" in page
    assert "| block-6 | 50.0 (50.0 to 50.0) | 49.0 (49.0 to 49.0) | 98% | yes |" in page
    assert "| model+admission |  | 48.0 (48.0 to 48.0) |  |  |" in page
    assert "- `prema` is not served: it waits" in page
    assert "- `layer` is incomplete: the server ended" in page
