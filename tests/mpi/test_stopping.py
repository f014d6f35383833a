"""Ends of a server: clean ones answer what was accepted, and none leaves anything behind."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from factories import TINY_COLUMNS, TINY_INNER, TINY_ROWS, tiny_input

from mpi.serving import RunningServer, mpirun_command, serve_command, wait_until
from veltair.runtime.client import LocalClient
from veltair.runtime.errors import RefusedError, UnavailableError
from veltair.runtime.serve_command import SESSION_FOLDER

QUERIES = 60


def fill(client: LocalClient, count: int = QUERIES) -> None:
    """Queues more work than `mpirun` would wait for."""
    for tag in range(count):
        slot = client.allocate("slow")
        slot.inputs["data"][...] = tiny_input(tag)
        client.submit(slot, tag=tag)


def collect(client: LocalClient, count: int = QUERIES) -> tuple[set[int], set[int]]:
    """Waits for all answers; returns the tags of those with outputs, and of those without."""
    good: list[int] = []
    bad: list[int] = []
    while len(good) + len(bad) < count:
        completions = client.wait(timeout_s=60)
        assert completions, f"{len(good)} of {count} answered"
        for completion in completions:
            (good if completion.ok else bad).append(completion.tag)
            completion.slot.release()
    assert len(set(good) | set(bad)) == count
    return set(good), set(bad)


def start(kind: str, repository: Path) -> RunningServer:
    arguments = ["--repository", str(repository), "--http-port", "0"]
    make = {"mpirun": mpirun_command(3, *arguments), "serve": serve_command(2, *arguments)}
    return RunningServer(make[kind])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("kind", ["mpirun", "serve"])
def test_a_clean_stop_answers_what_was_accepted(
    kind: str, number: signal.Signals, repository: Path
) -> None:
    with start(kind, repository) as server:
        server.wait_ready()
        client = server.client()
        fill(client)
        if kind == "mpirun" and number == signal.SIGINT:
            os.killpg(server.process.pid, number)  # as a terminal's Ctrl-C does
        else:
            server.process.send_signal(number)
        good, _ = collect(client)
        assert good == set(range(QUERIES))
        with pytest.raises((RefusedError, UnavailableError)):
            client.allocate("slow")
        client.close()
        code = server.wait_end()
        server.assert_gone()
        if kind == "serve":
            assert code == 0


def test_mpirun_has_a_folder_that_nobody_left_behind(repository: Path) -> None:
    """In /tmp it would refuse to start where a killed one of its process's number left its own."""
    with start("serve", repository) as server:
        server.wait_ready()
        (mpirun,) = psutil.Process(server.process.pid).children()
        folder = Path(mpirun.environ()[SESSION_FOLDER])
        assert (folder / f"ompi.{mpirun.pid}").is_dir()
        server.process.terminate()
        assert server.wait_end() == 0
        assert not folder.exists()


def test_a_clean_stop_answers_http_requests_too(repository: Path) -> None:
    body = json.dumps(
        {
            "inputs": [
                {
                    "name": "data",
                    "datatype": "FP32",
                    "shape": [TINY_ROWS, TINY_INNER],
                    "data": tiny_input().ravel().tolist(),
                }
            ]
        }
    ).encode()

    def post(address: str) -> int:
        request = urllib.request.Request(f"{address}/v2/models/slow/infer", body)
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert len(json.load(answer)["outputs"][0]["data"]) == TINY_ROWS * TINY_COLUMNS
            return int(answer.status)

    with start("mpirun", repository) as server, ThreadPoolExecutor(QUERIES) as pool:
        server.wait_ready()
        client = server.client()
        answers = [pool.submit(post, server.address) for _ in range(QUERIES)]

        def accepted() -> int:
            return next(m.accepted for m in client.stats().models if m.name == "slow")

        wait_until(lambda: accepted() == QUERIES)
        server.process.send_signal(signal.SIGTERM)
        assert [answer.result() for answer in answers] == [200] * QUERIES
        server.wait_end()
        server.assert_gone()
        client.close()


def test_a_signal_to_any_rank_stops_the_server(repository: Path) -> None:
    with start("mpirun", repository) as server:
        server.wait_ready()
        with server.client() as client:
            fill(client)
            server.ranks()[-1].send_signal(signal.SIGTERM)
            assert collect(client)[0] == set(range(QUERIES))
        assert server.wait_end() == 0
        server.assert_gone()


def test_a_second_ctrl_c_drops_what_waits(repository: Path) -> None:
    with start("serve", repository) as server:
        server.wait_ready()
        with server.client() as client:
            fill(client)
            server.process.send_signal(signal.SIGINT)
            wait_until(lambda: client.stats().state == "draining")
            server.process.send_signal(signal.SIGINT)
            _, dropped = collect(client)
            assert dropped  # some had begun, and have outputs
        server.wait_end()
        server.assert_gone()


def test_the_drain_has_an_end(repository: Path, tmp_path: Path) -> None:
    config = tmp_path / "serve.toml"
    config.write_text("[server]\ndrain_timeout_ms = 100\n")
    arguments = ["--repository", str(repository), "--http-port", "0", "--config", str(config)]
    with RunningServer(serve_command(2, *arguments)) as server:
        server.wait_ready()
        with server.client() as client:
            fill(client)
            server.process.send_signal(signal.SIGTERM)
            _, dropped = collect(client)
            assert dropped
        assert server.wait_end() == 0
        server.assert_gone()


@pytest.mark.parametrize("victim", ["rank 0", "mpirun", "everything"])
def test_a_killed_server_leaves_nothing(victim: str, repository: Path) -> None:
    with start("mpirun", repository) as server:
        server.wait_ready()
        client = server.client()
        fill(client)
        ranks = server.ranks()
        if victim == "rank 0":
            ranks[0].kill()
        elif victim == "mpirun":
            server.process.kill()
        else:
            for process in server.tree():
                process.kill()
        server.assert_gone()

        def told() -> bool:
            try:
                client.poll()
            except UnavailableError:
                return True
            return False

        wait_until(told)
        with pytest.raises(UnavailableError):
            client.allocate("tiny")
        client.close()
    assert not [p for p in psutil.process_iter() if p.pid in {rank.pid for rank in ranks}]
