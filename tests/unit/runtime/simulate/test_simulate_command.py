"""`veltair simulate` and `veltair capacity` from their arguments to their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from veltair.runtime.cli import app

SCENARIO = """
[machine]
cores = 4
conflict_us = 0.0
decision_us = 0.0
[policy]
scheduling = "model"
[[model]]
name = "small"
profile = "small.csv"
qos_ms = 4.0
[[model]]
name = "large"
profile = "large.csv"
qos_ms = 40.0
weight = 0.5
[arrivals]
process = "poisson"
rate_qps = 300.0
queries = 3000
warmup_queries = 100
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    (tmp_path / "small.csv").write_text(
        "layer,us_1c,us_2c,us_4c\na,1000,600,400\nb,2000,1100,700\n"
    )
    (tmp_path / "large.csv").write_text("layer,us_1c,us_4c\na,10000,3000\nb,9000,2500\n")
    path = tmp_path / "scenario.toml"
    path.write_text(SCENARIO)
    return path


def call(*arguments: object) -> Any:  # noqa: ANN401 # typer's result
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def simulated(scenario: Path, *arguments: str) -> dict[str, Any]:
    out = scenario.parent / "out.json"
    result = call("simulate", scenario, "--json", out, *arguments)
    assert result.exit_code == 0, result.output
    figures: dict[str, Any] = json.loads(out.read_text())
    return figures


def test_a_slow_and_uneven_machine(scenario: Path) -> None:
    rarely = ("--set", "arrivals.rate_qps=1")  # nobody waits for anybody
    usual = simulated(scenario, *rarely)
    slow = simulated(scenario, *rarely, "--set", "machine.pace=1.25")
    assert slow["mean_ms"] == pytest.approx(1.25 * usual["mean_ms"], rel=1e-6)
    uneven = ("--set", "machine.pace_spread=0.3", "--set", "machine.pace_memory_ms=1000")
    one = simulated(scenario, *rarely, *uneven)
    again = simulated(scenario, *rarely, *uneven)
    other = simulated(scenario, *rarely, *uneven, "--set", "machine.pace_seed=2")
    assert one["mean_ms"] == again["mean_ms"] != other["mean_ms"]
    # The mean of exp(N(0, 0.3)); its 95th percentile is 1.64 deviations out.
    assert one["mean_ms"] == pytest.approx(np.exp(0.3**2 / 2) * usual["mean_ms"], rel=0.05)
    small, usual_small = one["models"]["small"], usual["models"]["small"]
    assert small["p95_ms"] == pytest.approx(np.exp(1.645 * 0.3) * usual_small["p95_ms"], rel=0.1)


def test_a_slow_moment_does_not_end_the_service(scenario: Path) -> None:
    # Targets near the shortest times, and moments at which no query could be in time: whoever then
    # refuses all has to notice that they have passed.
    arguments = ["--set", "policy.scheduling=deadline", "--set", "arrivals.rate_qps=20"]
    arguments += ["--set", "model.small.qos_ms=2.2", "--set", "model.large.qos_ms=11"]
    arguments += ["--set", "machine.pace_spread=0.5", "--set", "machine.pace_memory_ms=2000"]
    late = simulated(scenario, *arguments)
    refused = simulated(scenario, *arguments, "--set", "policy.refuse_late=true")
    assert 0.5 < late["satisfied_share"] < 0.95
    assert refused["drops"]["deadline"] > 0
    assert refused["satisfied_share"] > late["satisfied_share"] - 0.05


@pytest.mark.parametrize("policy", ["deadline", "veltair-deadline"])
def test_who_may_be_late_gives_way(scenario: Path, policy: str) -> None:
    """By deadlines alone the long model loses, and the short one nothing."""
    arguments = ["--set", f"policy.scheduling={policy}", "--set", "arrivals.rate_qps=400"]
    arguments += ["--set", "model.small.qos_ms=20", "--set", "model.large.qos_ms=30"]

    def late(*more: str) -> tuple[float, float]:
        models = simulated(scenario, *arguments, *more)["models"]
        return 1 - models["small"]["satisfied_share"], 1 - models["large"]["satisfied_share"]

    small_alone, large_alone = late("--set", "policy.late_percent=100")
    small, large = late()
    assert small_alone < 0.01
    assert large_alone > 0.15
    assert large < 0.85 * large_alone
    assert 0.02 < small < 0.08  # its 5 %


def test_figures_in_all_and_by_model(scenario: Path) -> None:
    figures = simulated(scenario)
    small, large = figures["models"]["small"], figures["models"]["large"]
    assert figures["queries"] == 2900 == small["queries"] + large["queries"]
    assert figures["offered_qps"] == pytest.approx(300, rel=0.1)
    assert small["queries"] == pytest.approx(2 * large["queries"], rel=0.15)
    # One core is enough for either target, so nobody is faster than that.
    assert small["p50_ms"] >= 3.0
    assert large["mean_ms"] >= 19.0
    weighed = (
        small["satisfied_share"] * small["queries"] + large["satisfied_share"] * large["queries"]
    )
    assert figures["satisfied_share"] == pytest.approx(weighed / 2900)
    assert figures["p50_ms"] <= figures["p95_ms"] <= figures["p99_ms"]
    assert figures["device_idle_share"] == pytest.approx(1 - figures["average_cores"] / 4)
    assert figures["efficiency"] == pytest.approx(1 / figures["cores_per_block"])
    assert figures["max_cores"] == 4
    assert figures["drops"] == {"deadline": 0, "queue_full": 0}
    assert figures["scenario"]["machine"]["cores"] == 4


def test_set_changes_the_policy(scenario: Path) -> None:
    model = simulated(scenario, "--set", "policy.scheduling=model")
    deadline = simulated(scenario, "--set", "policy.scheduling=deadline")
    assert deadline["scenario"]["policy"]["scheduling"] == "deadline"
    assert deadline["satisfied_share"] > model["satisfied_share"]
    assert deadline["drops"]["deadline"] == 0
    refusing = simulated(
        scenario, "--set", "policy.scheduling=deadline", "--set", "policy.refuse_late=true"
    )
    assert refusing["drops"]["deadline"] > 0
    full = simulated(scenario, "--set", "machine.max_queue=1", "--set", "arrivals.rate_qps=2000")
    assert full["drops"]["queue_full"] > 0


def test_the_trace_is_whole(scenario: Path) -> None:
    trace = scenario.parent / "trace.json"
    figures = simulated(scenario, "--trace", str(trace), "--set", "policy.scheduling=layer")
    events = json.loads(trace.read_text())["traceEvents"]
    blocks = [event for event in events if event["ph"] == "X"]
    assert len(blocks) >= figures["blocks"]
    assert all(event["dur"] > 0 for event in blocks)
    used = [event["args"]["cores"] for event in events if event["ph"] == "C"]
    assert max(used) == figures["max_cores"]
    assert min(used) == used[-1] == 0


def test_capacity_is_where_the_share_crosses(scenario: Path) -> None:
    out = scenario.parent / "capacity.json"
    result = call("capacity", scenario, "--percentile", 90, "--seeds", 2, "--json", out)
    assert result.exit_code == 0, result.output
    found = json.loads(out.read_text())
    assert len(found["by_seed_qps"]) == 2
    for seed, rate in enumerate(found["by_seed_qps"], start=1):
        for factor, kept in ((1.0, True), (1.15, False)):
            figures = simulated(
                scenario,
                *("--set", f"arrivals.rate_qps={rate * factor}"),
                *("--set", f"arrivals.seed={seed}"),
            )
            shares = [model["satisfied_share"] for model in figures["models"].values()]
            assert all(share >= 0.9 for share in shares) is kept
