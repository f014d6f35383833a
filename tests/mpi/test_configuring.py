"""Policies that change while a server is loaded: every query is answered once."""

from __future__ import annotations

import itertools
import sys
import threading
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from factories import tiny_input, tiny_reference
from typer.testing import CliRunner

from mpi.serving import RunningServer, mpirun_command, wait_until
from veltair.runtime import cli
from veltair.runtime._native import ipc, sched
from veltair.runtime.client import LocalClient
from veltair.runtime.config import load_config
from veltair.runtime.errors import RefusedError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

POLICIES = [*sched.policy_names(), "block-2"]
PARAMETERS = (
    ("scheduling.max_block_ms=0.5", "batching.policy=eager", "queue.admission=true"),
    (
        "queue.admission=false",
        "scheduling.margin_percent=50",
        "batching.policy=timeout",
        "batching.timeout_ms=3",
    ),
    ("scheduling.partition_cores=1", "batching.policy=none", "placement.policy=first-fit"),
    ("scheduling.max_block_ms=3", "batching.policy=deferred", "batching.max_batch=4"),
    ("scheduling.partition_cores=0", "batching.executors=1", "placement.policy=local"),
)
QUERIES = 200  # at least; then as many as it takes to see every policy
AT_ONCE = 24
PLENTY_NS = 60_000_000_000
PAUSE_S = 0.02
NULL = """
[engine]
executor = "null"
virtual_cores = 64
[queue]
max_queries = 512
[[model]]
name = "resnet50"
profile = "veltair_3990x_resnet50.csv"
qos_ms = 15.0
"""


def configure(address: str, *changes: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, ["configure", "--address", address, *changes])
    return result.exit_code, result.stdout if result.exit_code == 0 else result.stderr


class Load(threading.Thread):
    """Keeps some queries of a model in the server until told to stop, and counts the answers."""

    def __init__(self, client: LocalClient, model: str, version: int) -> None:
        super().__init__()
        self.client, self.model, self.version = client, model, version
        self.stopping = threading.Event()
        self.answered: list[int] = []
        self.wrong: list[object] = []

    def run(self) -> None:
        sent = itertools.count()
        waiting = 0
        while not self.stopping.is_set() or waiting:
            while waiting < AT_ONCE and not self.stopping.is_set():
                self.submit(next(sent))
                waiting += 1
            for completion in self.client.wait(timeout_s=60):
                waiting -= 1
                self.answered.append(completion.tag)
                if not completion.ok:
                    self.wrong.append((completion.tag, completion.error))
                elif self.model == "tiny":
                    expected = tiny_reference(tiny_input(completion.tag % 7))
                    outputs = completion.slot.outputs["scores"]
                    if not np.allclose(outputs, expected, rtol=1e-4, atol=1e-4):
                        self.wrong.append(completion.tag)
                completion.slot.release()

    def submit(self, tag: int) -> None:
        slot = self.client.allocate(self.model, self.version)
        if self.model == "tiny":
            slot.inputs["data"][...] = tiny_input(tag % 7)
        self.client.submit(slot, tag=tag, deadline_ns=time.monotonic_ns() + PLENTY_NS)


@pytest.fixture
def arguments(request: pytest.FixtureRequest, repository: Path, tmp_path: Path) -> list[str]:
    if request.param == "kernels":
        return ["--repository", str(repository), "--http-port", "0"]
    (tmp_path / "serve.toml").write_text(NULL)
    return ["--config", str(tmp_path / "serve.toml"), "--http-port", "0"]


@pytest.mark.parametrize(
    ("arguments", "model"), [("null", "resnet50"), ("kernels", "tiny")], indirect=["arguments"]
)
def test_no_query_is_lost_or_answered_twice(arguments: list[str], model: str) -> None:
    with (
        RunningServer(mpirun_command(5, *arguments)) as running,
        running.wait_ready().client() as client,
    ):
        load = Load(client, model, version=1)
        load.start()
        rounds = zip(POLICIES * 2, itertools.cycle(PARAMETERS), strict=False)
        for changes, (policy, parameters) in enumerate(rounds, start=1):
            code, said = configure(running.address, f"scheduling.policy={policy}", *parameters)
            assert code == 0, said
            assert client.stats().scheduling == policy
            assert client.stats().policy_changes == changes
            if policy == POLICIES[3]:
                running.ranks()[1].kill()  # whoever replaces it begins with the policy in force
            time.sleep(PAUSE_S)
        configure(running.address, "batching.policy=none")  # what was deferred goes on at once
        wait_until(lambda: len(load.answered) >= QUERIES)
        wait_until(lambda: client.stats().workers_alive == 4)
        load.stopping.set()
        load.join()
        assert not load.wrong
        assert sorted(load.answered) == list(range(len(load.answered)))
        served = next(each for each in client.stats().models if each.name == model)
        assert (served.succeeded, served.pending) == (len(load.answered), 0)
        assert client.stats().cores_in_use == 0
        assert ipc.Board(client._segment).check() == ""
        running.wait_line(f'policies changed: scheduling.policy = "{POLICIES[0]}"')


def test_what_is_in_force_is_told_and_bad_changes_change_nothing(tmp_path: Path) -> None:
    config = tmp_path / "serve.toml"
    config.write_text(NULL + '[scheduling]\npolicy = "layer"\nmax_block_ms = 7\n')
    command = mpirun_command(2, "--config", str(config), "--http-port", "0")
    with RunningServer(command) as running, running.wait_ready().client() as client:
        code, said = configure(running.address)
        assert code == 0
        before = tomllib.loads(said)
        assert before["scheduling"]["policy"] == "layer"
        assert before["scheduling"]["max_block_ms"] == 7.0
        assert (tmp_path / "said.toml").write_text(said)
        assert load_config(tmp_path / "said.toml").scheduling == load_config(config).scheduling

        for changes, part in (
            (["scheduling.policy=fifo"], "policy = 'fifo'"),
            (["scheduling.polcy=model"], "did you mean 'policy'"),
            (["sched.policy=model"], "did you mean 'scheduling'"),
            (["server.http_port=1"], "can't change while the server runs"),
            (["queue.max_queries=9"], "queue.max_queries can't change while the server runs"),
            (["queue.admission=maybe"], "admission = 'maybe'"),
            (["model.name=x"], "can't change while the server runs"),
            (["scheduling.policy=model", "scheduling.margin_percent=101"], "from 1 to 100"),
            (["scheduling.max_block_ms=NaN"], "max_block_ms = nan"),
            (["scheduling.policy=partition", "scheduling.partition_cores=65"], "65"),
            (["scheduling.policy"], "SECTION.KEY=VALUE"),
        ):
            code, said = configure(running.address, *changes)
            assert (code, part in said) == (2, True), said
        assert tomllib.loads(configure(running.address)[1]) == before
        assert client.stats().policy_changes == 0

        assert configure(running.address, "scheduling.policy=deadline")[0] == 0
        assert configure(running.address, "scheduling.policy=deadline")[0] == 0  # as it was
        assert client.stats().policy_changes == 1
        with urllib.request.urlopen(f"{running.address}/metrics", timeout=60) as page:
            lines = page.read().decode().splitlines()
        assert (
            'veltair_policy_info{batching="none",placement="local",scheduling="deadline"} 1.0'
            in lines
        )
        assert "veltair_policy_changes 1.0" in lines
        assert "veltair_task_returns 0.0" in lines
        assert "veltair_core_revocations 0.0" in lines


def test_admission_changes_while_the_server_runs(tmp_path: Path) -> None:
    (tmp_path / "serve.toml").write_text(NULL)
    command = mpirun_command(2, "--config", str(tmp_path / "serve.toml"), "--http-port", "0")
    with RunningServer(command) as running, running.wait_ready().client() as client:

        def ask_too_late() -> None:
            slot = client.allocate("resnet50", 1)
            client.submit(slot, deadline_ns=time.monotonic_ns() + 1_000)
            (completion,) = client.wait(timeout_s=60)
            assert completion.ok  # late, but served
            completion.slot.release()

        ask_too_late()
        code, said = configure(running.address, "queue.admission=true")
        assert (code, tomllib.loads(said)["queue"]) == (0, {"admission": True})
        with pytest.raises(RefusedError) as refused:
            ask_too_late()
        assert refused.value.reason == "deadline"
        code, said = configure(running.address, "queue.admission=false")
        assert (code, tomllib.loads(said)["queue"]) == (0, {"admission": False})
        ask_too_late()
        assert client.stats().policy_changes == 2
        running.wait_line("policies changed: queue.admission = true (was false)")
