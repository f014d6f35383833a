"""A server under `mpirun`: start, answers, idleness, clients that come and die."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil
import pytest
from factories import tiny_input, tiny_reference

from mpi.serving import (
    ENVIRONMENT,
    RunningServer,
    mpirun_command,
    serve_command,
    wait_until,
)
from veltair.runtime.client import LocalClient
from veltair.runtime.errors import NotFoundError, RefusedError
from veltair.runtime.serve_command import MPIRUN_OPTIONS, find_mpirun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[RunningServer]:
    command = mpirun_command(3, "--repository", str(repository), "--http-port", "0")
    with RunningServer(command) as running:
        yield running.wait_ready()


def ask(client: LocalClient, model: str, version: int | None = None, seed: int = 1) -> None:
    """One query, checked."""
    slot = client.allocate(model, version)
    data = tiny_input(seed)
    slot.inputs["data"][...] = data
    client.submit(slot, tag=seed)
    (completion,) = client.wait(timeout_s=60)
    assert completion.ok, completion.error
    assert completion.tag == seed
    weights = slot.version if model == "tiny" and slot.version == 2 else 0
    np.testing.assert_allclose(
        slot.outputs["scores"], tiny_reference(data, weights), rtol=1e-4, atol=1e-4
    )
    slot.release()


def test_prints_a_line_for_each_model_and_the_address(server: RunningServer) -> None:
    models = {line.split(":")[0]: line for line in server.lines if line.startswith("model ")}
    assert "ready" in models["model tiny version 1"]
    assert "ready" in models["model slow version 1"]
    assert "unavailable" in models["model broken version 1"]
    assert "weights.bin" in models["model broken version 1"]
    assert server.address.startswith("http://127.0.0.1:")


def test_answers_queries_of_all_models_and_versions(server: RunningServer) -> None:
    with server.client() as client:
        ask(client, "tiny", 1)
        ask(client, "tiny", 2)
        ask(client, "tiny")  # the highest version
        ask(client, "slow")
        with pytest.raises(NotFoundError, match="has no version 3; it has: 1, 2"):
            client.allocate("tiny", 3)
        with pytest.raises(NotFoundError, match="no model 'none'"):
            client.allocate("none")


def test_a_damaged_artifact_is_unavailable_with_the_reason(server: RunningServer) -> None:
    with server.client() as client:
        with pytest.raises(RefusedError, match=r"weights\.bin") as refused:
            client.allocate("broken")
        assert refused.value.reason == "unavailable"
        info = {model.name: model for model in client.models()}["broken"]
        assert info.state == "unavailable"


def test_http_is_served_too(server: RunningServer) -> None:
    with urllib.request.urlopen(f"{server.address}/v2/health/ready", timeout=10) as answer:
        assert answer.status == 200


def test_many_queries_at_once_are_all_answered(server: RunningServer) -> None:
    with server.client() as client:
        before = next(m for m in client.stats().models if m.name == "tiny" and m.version == 1)
        sent: dict[int, np.ndarray] = {}
        for tag in range(50):
            slot = client.allocate("tiny", 1)
            sent[tag] = tiny_input(tag)
            slot.inputs["data"][...] = sent[tag]
            client.submit(slot, tag=tag)
        answered = set()
        while len(answered) < 50:
            completions = client.wait(timeout_s=60)
            assert completions
            for completion in completions:
                assert completion.ok
                assert completion.tag not in answered
                answered.add(completion.tag)
                np.testing.assert_allclose(
                    completion.slot.outputs["scores"],
                    tiny_reference(sent[completion.tag]),
                    rtol=1e-4,
                    atol=1e-4,
                )
                completion.slot.release()
        after = next(m for m in client.stats().models if m.name == "tiny" and m.version == 1)
        assert after.accepted - before.accepted == 50
        assert after.succeeded - before.succeeded == 50
        assert sum(after.latency.counts) - sum(before.latency.counts) == 50
        assert after.pending == 0


@pytest.mark.parametrize(("workers", "warned"), [(1, False), (3, False), (4, True)])
def test_more_workers_than_cores_are_allowed_and_warned_about(
    repository: Path, tmp_path: Path, workers: int, warned: bool
) -> None:
    config = tmp_path / "serve.toml"
    config.write_text(f"[engine]\ncores = [{min(os.sched_getaffinity(0))}]\n")
    arguments = ("--repository", str(repository), "--http-port", "0", "--config", str(config))
    with RunningServer(mpirun_command(workers + 1, *arguments)) as running:
        running.wait_ready()
        with running.client() as client:
            ask(client, "tiny")
    warning = "4 workers, 1 cores: allowed; at most 1 of them run at once"
    assert any(warning in line for line in running.lines) is warned


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_cores_join_a_running_block(scheduled: Callable[[int, str], RunningServer]) -> None:
    """`wide` begins on the one core that `slow` leaves, and gets the other when `slow` ends.

    The policy is one that gives cores by the profile alone, which is made up here.
    """
    with scheduled(3, 'policy = "model"') as running, running.wait_ready().client() as client:
        needed = {model.name: model.needed_cores for model in client.models()}
        assert (needed["slow"], needed["wide"]) == (1, 2)
        for seed in range(10):
            data = tiny_input(seed)
            for model in ("slow", "wide"):
                slot = client.allocate(model)
                slot.inputs["data"][...] = data
                client.submit(slot)
            completions = client.wait(timeout_s=60)
            while len(completions) < 2:
                completions += client.wait(timeout_s=60)
            for completion in completions:
                assert completion.ok, completion.error
                scores = completion.slot.outputs["scores"]
                np.testing.assert_allclose(scores, tiny_reference(data), rtol=1e-4, atol=1e-4)
                completion.slot.release()
            # Side by side: `wide` did not wait for `slow` to end.
            slow, wide = sorted(completions, key=lambda c: c.slot.model)
            assert wide.end_ns - wide.compute_ns < slow.end_ns
        assert client.stats().cores_in_use == 0


def test_the_queue_is_bounded(server: RunningServer) -> None:
    with server.client() as client:
        slots = [client.allocate("slow") for _ in range(64)]
        with pytest.raises(RefusedError, match="all 64 slots") as refused:
            client.allocate("slow")
        assert refused.value.reason == "queue_full"
        ask(client, "tiny")  # other models are not concerned
        slots[0].release()
        client.allocate("slow")


def test_a_client_that_is_killed_gives_its_slots_back(server: RunningServer) -> None:
    code = (
        "import sys, time\n"
        "from veltair.runtime.client import LocalClient\n"
        "client = LocalClient.attach(sys.argv[1])\n"
        "for tag in range(20): client.submit(client.allocate('slow'), tag=tag)\n"
        "held = [client.allocate('slow') for _ in range(44)]\n"
        "print('full', flush=True)\n"
        "time.sleep(600)\n"
    )
    with server.client() as client:
        doomed = subprocess.Popen(
            [sys.executable, "-c", code, server.address], stdout=subprocess.PIPE, text=True
        )
        assert doomed.stdout is not None
        assert doomed.stdout.readline() == "full\n"
        with pytest.raises(RefusedError):
            client.allocate("slow")
        doomed.kill()
        doomed.wait()
        doomed.stdout.close()

        def all_back() -> bool:
            slow = next(m for m in client.stats().models if m.name == "slow")
            return slow.pending == 0

        wait_until(all_back)
        slots = [client.allocate("slow") for _ in range(64)]
        for slot in slots:
            slot.release()


def test_the_descriptor_tells_of_completions(server: RunningServer) -> None:
    import select

    with server.client() as client:
        descriptor = client.fileno()
        assert not select.select([descriptor], [], [], 0)[0]
        slot = client.allocate("tiny")
        slot.inputs["data"][...] = tiny_input()
        client.submit(slot, tag=3)
        assert select.select([descriptor], [], [], 30)[0]
        assert [completion.tag for completion in client.poll()] == [3]
        assert not select.select([descriptor], [], [], 0)[0]


def test_attaching_to_nobody(server: RunningServer) -> None:
    with pytest.raises(NotFoundError, match="no Veltair server with the HTTP port 1 "):
        LocalClient.attach("127.0.0.1:1")


# What a rank can't do without: it wakes for its beat, and looks whether MPI has a message.
BEATING = """
import select
from mpi4py import MPI
while True:
    select.poll().poll(250)
    MPI.COMM_WORLD.iprobe(source=MPI.ANY_SOURCE)
"""


def wake_ups(processes: Sequence[psutil.Process]) -> int:
    """How often their threads waited, and so were woken, since they began."""
    texts = [
        status.read_text()
        for process in processes
        for status in Path(f"/proc/{process.pid}/task").glob("*/status")
    ]
    return sum(int(re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", t, re.M)[0]) for t in texts)


def test_an_idle_server_costs_nearly_nothing(server: RunningServer) -> None:
    """Where waking costs much, as on some virtual machines: little beyond what ranks must do."""
    ranks = 3
    command = [str(find_mpirun()), *MPIRUN_OPTIONS, "-n", str(ranks)]
    with subprocess.Popen([*command, sys.executable, "-c", BEATING], env=ENVIRONMENT) as bare:
        try:
            time.sleep(3)  # past the last test's work, and the start
            processes = server.tree()
            assert len(processes) >= 1 + 2 * ranks  # mpirun, guardian and rank of each
            others = psutil.Process(bare.pid).children(recursive=True)
            assert len(others) >= ranks

            def used_s(of: Sequence[psutil.Process]) -> float:
                return sum(sum(process.cpu_times()[:2]) for process in of)

            woken = wake_ups(processes)
            begin_s, before_s = time.monotonic(), (used_s(processes), used_s(others))
            time.sleep(5)
            passed_s = time.monotonic() - begin_s
            idle, least = (
                (used_s(of) - before) / passed_s
                for of, before in zip((processes, others), before_s, strict=True)
            )
            rate = (wake_ups(processes) - woken) / passed_s
        finally:
            bare.terminate()
    print(f"idle: {idle:.2%} of one core, bare ranks: {least:.2%}, {rate:.0f} wake-ups a second")
    assert idle < max(0.02, 5 * least)
    assert rate < 50


def test_serving_processes_have_no_compiler(server: RunningServer) -> None:
    for rank in server.ranks():
        mapped = {Path(entry.path).name for entry in rank.memory_maps()}
        assert not any(name.startswith(("libtvm_compiler", "libtvm.so")) for name in mapped)


@pytest.mark.parametrize(
    ("ranks", "arguments", "message"),
    [
        (1, [], "1 rank: a server needs at least 2"),
        (2, [], "--repository is missing"),
        (2, ["--repository", "/nonexistent"], "/nonexistent: not a folder"),
        (2, ["--repository", ".", "--http-port", "65536"], "http_port"),
        (2, ["--repository", ".", "--http-prot", "1"], "--http-prot"),
    ],
)
def test_bad_arguments_end_all_ranks_before_anything_starts(
    ranks: int, arguments: list[str], message: str, tmp_path: Path
) -> None:
    refused = subprocess.run(
        mpirun_command(ranks, *arguments),
        env=ENVIRONMENT,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode == 2
    ours = [line for line in refused.stderr.splitlines() if line.startswith("veltair-serve:")]
    assert len(ours) == 1
    assert message in ours[0]
    assert refused.stdout == ""


def test_a_bad_configuration_is_refused(repository: Path, tmp_path: Path) -> None:
    config = tmp_path / "serve.toml"
    config.write_text("[queue]\nmax_querys = 3\n")
    for command in (
        mpirun_command(2, "--repository", str(repository), "--config", str(config)),
        serve_command(1, "--repository", str(repository), "--config", str(config)),
    ):
        refused = subprocess.run(
            command, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False
        )
        assert refused.returncode == 2
        assert "max_queries" in refused.stderr  # the nearest known key


def test_a_port_in_use_is_refused(repository: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for command in (
            mpirun_command(3, "--repository", str(repository), "--http-port", port),
            serve_command(2, "--repository", str(repository), "--http-port", port),
        ):
            refused = subprocess.run(
                command, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False
            )
            assert refused.returncode == 2
            assert f"http_port {port}" in refused.stderr


def test_a_core_that_is_not_there_is_refused(repository: Path, tmp_path: Path) -> None:
    config = tmp_path / "serve.toml"
    config.write_text(f"[engine]\ncores = [{max(os.sched_getaffinity(0)) + 1}]\n")
    refused = subprocess.run(
        mpirun_command(2, "--repository", str(repository), "--config", str(config)),
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode == 2
    assert "is not a core that this process may use" in refused.stderr


def test_mpiruns_binding_is_undone(repository: Path) -> None:
    command = mpirun_command(2, "--repository", str(repository), "--http-port", "0")
    command[command.index("none")] = "core"
    with RunningServer(command) as bound:
        bound.wait_ready()
        for rank in bound.ranks():
            assert set(rank.cpu_affinity()) == os.sched_getaffinity(0)
        with bound.client() as client:
            assert client.stats().cores == len(os.sched_getaffinity(0))
            ask(client, "tiny")
        bound.ranks()[0].send_signal(signal.SIGTERM)
        assert bound.wait_end() == 0


def test_two_servers_need_two_ports_even_at_two_addresses(
    server: RunningServer, repository: Path, tmp_path: Path
) -> None:
    config = tmp_path / "serve.toml"
    config.write_text('[server]\nhttp_host = "127.0.0.2"\n')
    port = server.address.rpartition(":")[2]
    arguments = ["--repository", str(repository), "--config", str(config), "--http-port", port]
    refused = subprocess.run(
        mpirun_command(2, *arguments),
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode == 2
    assert "another Veltair server" in refused.stderr
