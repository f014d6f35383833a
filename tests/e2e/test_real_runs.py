"""Given arrivals through real servers, and the two comparisons made of such runs, small."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factories import write_slow_artifact

from veltair.eval.artifact_copies import copy_artifacts
from veltair.eval.children import python
from veltair.eval.real_runs import ServerPlan, one_at_a_time, replay, running
from veltair.runtime.simulate.arrivals import Arrivals
from veltair.runtime.simulate.run import QUEUE_FULL, SERVED

QUERIES = 40
GAP_NS = 15_000_000
PATIENT = {"long": 60_000_000_000, "short": 60_000_000_000}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models of a few milliseconds."""
    folder = tmp_path_factory.mktemp("repository")
    for name, repeats in (("long", 40), ("short", 10)):
        write_slow_artifact(folder / name / "1", repeats=repeats, qos_ns=100_000_000)
    return folder


def run(module: str, *arguments: str) -> str:
    """Runs a comparison and returns what it prints."""
    finished = subprocess.run(
        python(module, *arguments), capture_output=True, text=True, check=False, timeout=240
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_every_query_has_one_outcome_and_begins_after_its_arrival(
    repository: Path, tmp_path: Path
) -> None:
    # Nobody's target is so near that a stall of the machine makes a query late: one that finds no
    # slot then ends a late one in its place, which is another outcome.
    patient = tmp_path / "patient"
    copy_artifacts(repository, patient, ["long", "short"], qos_ns=PATIENT)
    plan = ServerPlan(repository=patient, policy="layer", workers=3, slots=3)
    spaced = Arrivals(
        time_ns=np.arange(QUERIES, dtype=np.int64) * GAP_NS,
        model=(np.arange(QUERIES) % 2).astype(np.int32),
    )
    at_once = Arrivals(time_ns=np.zeros(QUERIES, np.int64), model=np.zeros(QUERIES, np.int32))
    with running(plan, tmp_path) as client:
        found = replay(client, ["long", "short"], spaced)
        crowd = replay(client, ["long", "short"], at_once)
    assert (found.outcome == SERVED).sum() + (found.outcome == QUEUE_FULL).sum() == QUERIES
    served = found.outcome == SERVED
    assert served.sum() > QUERIES // 2
    assert (found.submitted_ns >= spaced.time_ns).all()
    assert (found.start_ns >= spaced.time_ns)[served].all()
    assert (found.end_ns > found.start_ns)[served].all()
    assert found.errors == ()
    # Three slots can't take forty queries that come at once.
    assert (crowd.outcome == QUEUE_FULL).any()
    assert set(crowd.outcome) <= {SERVED, QUEUE_FULL}


@pytest.mark.parametrize("beside", [0, 1])
def test_queries_one_at_a_time_are_told_apart_from_those_beside(
    repository: Path, tmp_path: Path, beside: int
) -> None:
    plan = ServerPlan(repository=repository, policy="model", workers=3, slots=3)
    order = [("long", "short", "short")[index % 3] for index in range(QUERIES)]
    with running(plan, tmp_path) as client:
        found = one_at_a_time(client, order, load=0.5, beside=beside)
        again = one_at_a_time(client, order, load=1.0, beside=beside)  # all slots came back
    for begin_ns, compute_ns in (zip(*found, strict=True), zip(*again, strict=True)):
        assert len(compute_ns) == QUERIES
        assert all(
            later >= earlier + took
            for earlier, took, later in zip(begin_ns, compute_ns, begin_ns[1:], strict=False)
        )
        long = np.array(order) == "long"
        assert np.median(np.array(compute_ns)[long]) > 2 * np.median(np.array(compute_ns)[~long])


def test_policies_are_measured_once_and_reported(repository: Path, tmp_path: Path) -> None:
    arguments = [str(repository), "--out", str(tmp_path), "--scratch", str(tmp_path / "scratch")]
    arguments += ["--pairs", "long+short", "--policies", "model", "--loads", "0.2,0.4"]
    arguments += ["--queries", str(QUERIES), "--wait-s", "0", "--attempts", "1"]
    arguments += ["--admission-loads", "0.4", "--rounds", "2"]
    first = run("veltair.eval.policies", *arguments)
    assert first.count("serving at") == 4  # without and with admission, in each round
    found: dict[str, Any] = json.loads((tmp_path / "policies.json").read_text())
    assert [(p["round"], p["policy"], p["load"]) for p in found["points"]] == [
        (number, *point)
        for number in (0, 1)
        for point in (("model", 0.2), ("model", 0.4), ("model+admission", 0.4))
    ]
    for point in found["points"]:
        whole = point["figures"]["all"]
        assert whole["queries"] == QUERIES
        assert whole["served"] + whole["refused"] == QUERIES
        assert sum(point["figures"][name]["queries"] for name in ("long", "short")) == QUERIES
    again = run("veltair.eval.policies", *arguments)
    assert "serving at" not in again
    assert json.loads((tmp_path / "policies.json").read_text())["points"] == found["points"]


def test_the_simulator_gets_what_the_server_got(repository: Path, tmp_path: Path) -> None:
    run(
        "veltair.eval.sim_vs_real",
        *(str(repository), "--out", str(tmp_path), "--scratch", str(tmp_path / "scratch")),
        *("--models", "long,short", "--policies", "veltair-as", "--loads", "0.3"),
        *("--queries", str(QUERIES), "--calibration-queries", "5"),
        *("--attempts", "1", "--wait-s", "0"),
    )
    found = json.loads((tmp_path / "sim_vs_real.json").read_text())
    (point,) = found["points"]
    real, simulated = point["real"], point["simulated"]
    for name in ("all", "long", "short"):
        assert real[name]["queries"] == simulated[name]["queries"] > 0
    assert real["all"]["served"] == simulated["all"]["served"] == QUERIES
    assert simulated["long"]["mean_ms"] > simulated["short"]["mean_ms"]
    assert point["foretold"]["all"]["queries"] == QUERIES
    assert len(point["pace"]) == len(point["speed"]["long"])
    assert all(pace > 0 and pace != 1 for pace in point["pace"])
    assert point["over_foretold"] > 0
    # At the pace of the run's own blocks, service is its own but for what the steps smooth.
    service_ms = [side["all"]["service_ms"] for side in (real, simulated)]
    assert service_ms[1] == pytest.approx(service_ms[0], rel=0.25)
    assert point["beside"].keys() == {"long", "short"}
    assert min(point["beside"].values()) >= 1
    (calibration,) = found["calibrations"]
    alone = calibration["measured"]["profiles"]
    assert alone["long"]["model_ns"][0][0] > alone["short"]["model_ns"][0][0] > 0
    assert calibration["measured"]["costs"]["start_ns"] > 0
    assert "veltair-as" in (tmp_path / "sim_vs_real.md").read_text()
