"""Servers that record their decisions, from `[server] record` to `veltair replay`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from factories import tiny_input
from typer.testing import CliRunner

from mpi.serving import ENVIRONMENT, RunningServer, mpirun_command
from veltair.runtime.cli import app
from veltair.runtime.client import LocalClient
from veltair.runtime.replay import Report, replay

QUERIES = 40


def command_of(repository: Path, record: Path, policy: str, workers: int = 2) -> list[str]:
    config = record.with_name("serve.toml")
    config.write_text(
        f'[scheduling]\npolicy = "{policy}"\nmax_block_ms = 0.5\n[server]\nrecord = "{record}"\n'
    )
    arguments = ["--repository", str(repository), "--config", str(config), "--http-port", "0"]
    return mpirun_command(workers + 1, *arguments)


def ask(client: LocalClient, model: str, count: int = QUERIES) -> None:
    """Sends queries all at once and awaits every one."""
    for tag in range(count):
        slot = client.allocate(model, 1)
        slot.inputs["data"][...] = tiny_input(tag)
        client.submit(slot, tag=tag)
    while count:
        for completion in client.wait(timeout_s=60):
            completion.slot.release()
            count -= 1


def serve(command: list[str]) -> None:
    with RunningServer(command) as running:
        with running.wait_ready().client() as client:
            ask(client, "tiny")
        running.ranks()[0].send_signal(signal.SIGTERM)
        assert running.wait_end() == 0


def check(report: Report) -> None:
    assert report.asked > 0
    assert (report.differing, report.missing, report.skipped, report.torn) == (0, 0, 0, 0)


@pytest.mark.parametrize("policy", ["layer", "veltair", "deadline", "prema"])
def test_a_servers_decisions_replay(repository: Path, tmp_path: Path, policy: str) -> None:
    record = tmp_path / "record"
    serve(command_of(repository, record, policy))
    report = replay(record)
    check(report)
    assert report.asked >= QUERIES
    header: Any = json.loads(record.read_text().partition("\n")[0])
    assert header["clock"] == "monotonic"
    assert header["workers"] == 2
    assert {"tiny/1", "tiny/2", "slow/1"} <= {model["name"] for model in header["models"]}
    assert report.tallies[0].policy.startswith(f"{policy} (max_block_ns=500000, ")
    result = CliRunner().invoke(app, ["replay", str(record)])
    assert result.exit_code == 0, result.output


def test_a_second_run_is_appended(repository: Path, tmp_path: Path) -> None:
    record = tmp_path / "record"
    for policy in ("model", "layer"):
        serve(command_of(repository, record, policy))
    report = replay(record)
    check(report)
    assert len(report.headers) == 2
    assert [tally.policy.split()[0] for tally in report.tallies] == ["model", "layer"]


def test_a_killed_worker_costs_its_own_last_lines(repository: Path, tmp_path: Path) -> None:
    record = tmp_path / "record"
    with RunningServer(command_of(repository, record, "layer")) as running:
        with running.wait_ready().client() as client:
            worker = running.ranks()[1]
            threading.Timer(0.2, worker.kill).start()
            ask(client, "slow", 10)
            ask(client, "slow", 10)
        running.ranks()[0].send_signal(signal.SIGTERM)
        running.wait_end()
    report = replay(record)
    assert report.differing == 0 < report.asked
    assert report.missing + report.torn <= 2


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("/dev/full", "can't be written (No space left on device)"),
        ("none/record", "can't be written (No such file or directory)"),
        ("text", "the file is there and is no record of decisions"),
    ],
)
def test_an_unusable_place_is_refused(
    repository: Path, tmp_path: Path, record: str, message: str
) -> None:
    (tmp_path / "text").write_text("a letter")
    command = command_of(repository, tmp_path / "record", "model")
    config = tmp_path / "serve.toml"
    config.write_text(f'[server]\nrecord = "{tmp_path / record}"\n')
    ended = subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 2
    assert message in ended.stderr
    assert (tmp_path / "text").read_text() == "a letter"


def test_serving_goes_on_where_recording_fails(repository: Path, tmp_path: Path) -> None:
    """A pipe whose reader goes stands for a disk that fills."""
    record = tmp_path / "record"
    os.mkfifo(record)
    reader = os.open(record, os.O_RDONLY | os.O_NONBLOCK)
    with RunningServer(command_of(repository, record, "layer", workers=1)) as running:
        with running.wait_ready().client() as client:
            assert os.read(reader, 100).startswith(b'{"kind":"header"')
            os.close(reader)
            ask(client, "tiny")
            line = running.wait_line("can't be written")
            assert "Broken pipe" in line
            assert "serves on" in line
            ask(client, "tiny")
        running.ranks()[0].send_signal(signal.SIGTERM)
        assert running.wait_end() == 0
    assert sum("can't be written" in line for line in running.lines) == 1


def test_batches_replay(repository: Path, tmp_path: Path) -> None:
    record = tmp_path / "record"
    command = command_of(repository, record, "model")
    with record.with_name("serve.toml").open("a") as config:
        config.write('[batching]\npolicy = "timeout"\ntimeout_ms = 2\nmax_batch = 4\n')
    serve(command)
    report = replay(record)
    check(report)
    (tally,) = [each for each in report.tallies if each.policy == "timeout and local"]
    assert tally.asked >= QUERIES
