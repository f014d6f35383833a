"""Servers under each batching policy: tasks of several queries, right answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpi.serving import RunningServer, ask_and_check, mpirun_command

QUERIES = 40
PLENTY_NS = 2_000_000_000


@pytest.mark.parametrize("policy", ["eager", "timeout", "deferred"])
def test_every_query_is_answered_right(repository: Path, tmp_path: Path, policy: str) -> None:
    config = tmp_path / "serve.toml"
    config.write_text(
        f'[batching]\npolicy = "{policy}"\nmax_batch = 4\nexecutors = 1\n'
        '[placement]\npolicy = "first-fit"\n'
    )
    command = mpirun_command(
        3, "--repository", str(repository), "--config", str(config), "--http-port", "0"
    )
    with RunningServer(command) as running, running.wait_ready().client() as client:
        # Under `eager` nothing waits for another, so a slow client may have to ask again.
        rounds = 10 if policy == "eager" else 1
        for asked in range(QUERIES, (rounds + 1) * QUERIES, QUERIES):
            ask_and_check(client, QUERIES, PLENTY_NS)
            models = client.stats().models
            (stats,) = [each for each in models if (each.name, each.version) == ("tiny", 1)]
            assert stats.succeeded == asked
            if stats.executions < asked:
                break
        assert asked / 4 <= stats.executions < asked
