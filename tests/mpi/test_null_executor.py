"""Servers whose layers only take their time: 64 cores' schedules on any machine."""

from __future__ import annotations

import json
import signal
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mpi.serving import ENVIRONMENT, RunningServer, mpirun_command, serve_command, wait_until
from veltair.runtime.simulate.arrivals import Arrivals
from veltair.runtime.simulate.run import simulate
from veltair.runtime.simulate.scenario import parse_scenario

if TYPE_CHECKING:
    from veltair.runtime.client import Completion, LocalClient

CORES = 64
QUERIES = 300
PLENTY_NS = 60_000_000_000
MODEL = {"name": "resnet50", "profile": "veltair_3990x_resnet50.csv", "qos_ms": 15.0}
CONFIG = f"""
[engine]
executor = "null"
virtual_cores = {CORES}
[queue]
max_queries = 512
[scheduling]
policy = "POLICY"
[[model]]
name = "resnet50"
profile = "veltair_3990x_resnet50.csv"
qos_ms = 15.0
"""


def write_config(folder: Path, policy: str) -> Path:
    path = folder / "serve.toml"
    path.write_text(CONFIG.replace("POLICY", policy))
    return path


def ask(client: LocalClient, count: int, model: str = "resnet50") -> list[Completion]:
    """Sends queries at once; each is answered once."""
    for tag in range(count):
        deadline_ns = time.monotonic_ns() + PLENTY_NS
        client.submit(client.allocate(model), tag=tag, deadline_ns=deadline_ns)
    ended: list[Completion] = []
    while len(ended) < count:
        completions = client.wait(timeout_s=60)
        assert completions, f"{len(ended)} of {count} answered"
        for completion in completions:
            assert completion.ok, completion.error
            completion.slot.release()
        ended += completions
    assert sorted(each.tag for each in ended) == list(range(count))
    return ended


def predicted_ns(policy: str) -> int:
    """What the simulator says of a query that comes alone, without the server's costs."""
    scenario = parse_scenario(
        {
            "machine": {"cores": CORES, "decision_us": 0, "conflict_us": 0},
            "policy": {"scheduling": policy},
            "model": [MODEL],
            "arrivals": {"queries": 1},
        }
    )
    alone = Arrivals(time_ns=np.zeros(1, dtype=np.int64), model=np.zeros(1, dtype=np.int32))
    return int(simulate(scenario, arrivals=alone).end_ns[0])


def most_at_once(completions: list[Completion]) -> int:
    """The largest number of tasks that ran at the same time; one that ends lets the next begin."""
    changes = [(each.end_ns, -1) for each in completions]
    changes += [(each.end_ns - each.compute_ns, 1) for each in completions]
    return max(np.cumsum([change for _, change in sorted(changes)]))


@pytest.mark.parametrize(("policy", "workers"), [("veltair-as", 16), ("deadline", 8)])
def test_64_virtual_cores_serve_as_the_profile_says(
    tmp_path: Path, policy: str, workers: int
) -> None:
    command = serve_command(
        workers, "--config", str(write_config(tmp_path, policy)), "--http-port", "0"
    )
    with RunningServer(command) as running, running.wait_ready().client() as client:
        assert "null executor" in running.lines[-1]
        stats = client.stats()
        assert (stats.cores, stats.workers) == (CORES, workers)
        # The shortest of some: the machine may be busy, and nothing makes a sleep shorter.
        alone_ns = min(ask(client, 1)[0].compute_ns for _ in range(8))
        assert 0 <= alone_ns - predicted_ns(policy) < 3_000_000
        assert most_at_once(ask(client, QUERIES)) >= 3
        assert client.stats().models[0].succeeded == QUERIES + 8
        assert client.stats().cores_in_use == 0


def test_a_replacement_takes_its_time_too(tmp_path: Path) -> None:
    command = mpirun_command(
        3, "--config", str(write_config(tmp_path, "layer")), "--http-port", "0"
    )
    with RunningServer(command) as running, running.wait_ready().client() as client:
        for _ in range(2):
            running.ranks()[1].kill()
            ask(client, 20)
            wait_until(lambda: client.stats().workers_alive == 2)
        tensor = {"name": "input", "datatype": "UINT8", "shape": [1], "data": [3]}
        request = urllib.request.Request(
            f"{running.address}/v2/models/resnet50/infer",
            data=json.dumps({"inputs": [tensor]}).encode(),
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            assert json.load(response)["outputs"][0]["shape"] == [1]
        running.ranks()[0].send_signal(signal.SIGTERM)
        assert running.wait_end() == 0
        running.assert_gone()


def test_artifacts_are_served_by_their_profiles_beside_others(
    repository: Path, tmp_path: Path
) -> None:
    command = mpirun_command(
        2,
        *("--repository", str(repository), "--config", str(write_config(tmp_path, "model"))),
        *("--http-port", "0"),
    )
    with RunningServer(command) as running, running.wait_ready().client() as client:
        states = {(each.name, each.version): each.state for each in client.models()}
        assert states["resnet50", 1] == states["tiny", 2] == "ready"
        expected_ns = next(each.expected_ns for each in client.models() if each.name == "wide")
        assert ask(client, 1, "wide")[0].compute_ns >= expected_ns
        ask(client, 1, "tiny")


NULL = '[engine]\nexecutor = "null"\n'
ENTRY = '[[model]]\nname = "tiny"\nprofile = "veltair_3990x_resnet50.csv"\n'


@pytest.mark.parametrize(
    ("text", "with_repository", "parts"),
    [
        (NULL, False, ["no model", "--repository", "[[model]]"]),
        (ENTRY, False, ["[[model]] 'tiny'", 'executor = "null"']),
        (NULL + ENTRY, False, ["model[0].qos_ms is missing"]),
        (NULL + ENTRY + "qos_ms = 15\n", True, ["model[0].name = 'tiny'", "the repository"]),
        (NULL + ENTRY + "qos_ms = 0.1\n", False, ["model[0].qos_ms = 0.1", "fastest possible"]),
        (
            NULL + "[scheduling]\npolicy = 'partition'\npartition_cores = 9999\n" + ENTRY,
            False,
            ["'partition'", "partition_cores = 9999"],
        ),
        (NULL + ENTRY.replace("veltair", "none"), False, ["model[0].profile", "no such file"]),
    ],
)
def test_what_can_not_be_served_is_refused(
    repository: Path, tmp_path: Path, text: str, with_repository: bool, parts: list[str]
) -> None:
    config = tmp_path / "serve.toml"
    config.write_text(text)
    arguments = ["--config", str(config), "--http-port", "0"]
    if with_repository:
        arguments += ["--repository", str(repository)]
    refused = subprocess.run(
        serve_command(1, *arguments),
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode == 2
    for part in parts:
        assert part in refused.stderr
