"""Workers that die or hang: no query is lost, the others serve on, a replacement joins."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from factories import tiny_input

from mpi.serving import RunningServer, mpirun_command, wait_until
from veltair.runtime.client import LocalClient

WORKERS = 3


@pytest.fixture
def server(repository: Path) -> RunningServer:
    command = mpirun_command(WORKERS + 1, "--repository", str(repository), "--http-port", "0")
    return RunningServer(command)


def fill(client: LocalClient, count: int) -> None:
    for tag in range(count):
        slot = client.allocate("slow")
        slot.inputs["data"][...] = tiny_input(tag)
        client.submit(slot, tag=tag)


def collect(client: LocalClient, count: int) -> None:
    """Every query is answered once, with outputs."""
    answered = set()
    while len(answered) < count:
        completions = client.wait(timeout_s=60)
        assert completions, f"{len(answered)} of {count} answered"
        for completion in completions:
            assert completion.ok, completion.error
            assert completion.tag not in answered
            answered.add(completion.tag)
            completion.slot.release()


def test_a_killed_worker_loses_no_query_and_is_replaced(server: RunningServer) -> None:
    with server:
        server.wait_ready()
        with server.client() as client:
            fill(client, 40)
            wait_until(lambda: client.stats().cores_in_use > 0)
            for rank in server.ranks()[1:3]:
                rank.kill()
            collect(client, 40)
            wait_until(lambda: client.stats().workers_alive == WORKERS)
            slow = next(m for m in client.stats().models if m.name == "slow")
            assert (slow.accepted, slow.succeeded, slow.pending) == (40, 40, 0)
            # The replacements serve: kill the last of the first ones too.
            server.ranks()[-1].kill()
            fill(client, 20)
            collect(client, 20)
            wait_until(lambda: client.stats().workers_alive == WORKERS)
        server.ranks()[0].send_signal(signal.SIGTERM)
        assert server.wait_end() == 0  # the deaths were made good
        server.assert_gone()
        assert sum("has died; its query goes to another" in line for line in server.lines) == 3


def test_a_death_is_seen_while_a_replacement_hangs(server: RunningServer) -> None:
    with server:
        server.wait_ready()
        with server.client() as client:
            fill(client, 30)
            server.ranks()[1].kill()
            wait_until(lambda: "--replacement" in server.ranks()[-1].cmdline())
            replacement = server.ranks()[-1]
            replacement.suspend()
            server.ranks()[1].kill()
            collect(client, 30)
            replacement.resume()
            wait_until(lambda: client.stats().workers_alive == WORKERS)
        server.ranks()[0].send_signal(signal.SIGTERM)
        assert server.wait_end() == 0
        server.assert_gone()


def test_a_hanging_worker_is_ended_and_replaced(server: RunningServer) -> None:
    with server:
        server.wait_ready()
        with server.client() as client:
            fill(client, 30)
            wait_until(lambda: client.stats().cores_in_use > 0)
            server.ranks()[1].suspend()
            collect(client, 30)
            wait_until(lambda: client.stats().workers_alive == WORKERS)
        assert "has been silent" in server.wait_line("silent")
        server.tree()
        server.process.send_signal(signal.SIGTERM)
        server.wait_end()
        server.assert_gone()


def test_a_place_that_keeps_dying_is_given_up(server: RunningServer) -> None:
    with server:
        server.wait_ready()
        with server.client() as client:
            for death in range(3):
                wait_until(lambda: client.stats().workers_alive == WORKERS)
                # Whoever took the place that died before is the newest.
                server.ranks()[1 if death == 0 else -1].kill()
                wait_until(lambda: client.stats().workers_alive < WORKERS)
            server.wait_line("is not replaced")
            fill(client, 10)
            collect(client, 10)
            assert client.stats().workers_alive == WORKERS - 1
        server.tree()
        server.process.send_signal(signal.SIGTERM)
        server.wait_end()
        server.assert_gone()


def test_a_replacement_that_comes_too_late_ends_with_the_server(server: RunningServer) -> None:
    with server:
        server.wait_ready()
        server.ranks()[1].kill()
        server.wait_line("has died")  # the next one starts now
        server.ranks()[0].send_signal(signal.SIGTERM)
        assert server.wait_end() == 0
        server.assert_gone()
