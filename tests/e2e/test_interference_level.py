"""A server measures how much it is disturbed, and chooses versions by it."""

from __future__ import annotations

import json
import os
import threading
import time
import urllib.request
from typing import TYPE_CHECKING

import msgspec
import pytest
from factories import disturbed_profile, write_tiny_artifact
from mpi.serving import RunningServer, mpirun_command, wait_until
from proxy_models import linear_model, proxy_file, term

from veltair.runtime._native import ipc
from veltair.runtime.manifest import Profile
from veltair.runtime.rendezvous import port_of, request_segment
from veltair.runtime.replay import replay

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LONGER = 50  # the tiny model's times, so that a sleep's lateness is little of them
STEPS = 8
MS = 1_000_000
CONFIDENCE = 'veltair_interference_confidence{complex="node"}'


def slow_profile() -> Profile:
    tiny = disturbed_profile()
    return msgspec.structs.replace(
        tiny,
        layer_ns=tuple(
            tuple(tuple(tuple(LONGER * ns for ns in row) for row in variant) for variant in layer)
            for layer in tiny.layer_ns
        ),
        model_ns=tuple(tuple(LONGER * ns for ns in row) for row in tiny.model_ns),
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write_tiny_artifact(tmp_path / "repository" / "tiny" / "1", profile=slow_profile())
    return tmp_path / "repository"


def write_config(folder: Path, source: str, more: str = "") -> Path:
    path = folder / "serve.toml"
    path.write_text(
        f'[server]\nhttp_port = 0\nrecord = "{folder / "record"}"\n[engine]\nexecutor = "null"\n'
        f'virtual_cores = 1\n[scheduling]\npolicy = "veltair-ac"\n[interference]\n'
        f'source = "{source}"\n{more}'
    )
    return path


class Queries:
    """Asks a server one query after the other, as long as the block runs."""

    def __init__(self, server: RunningServer, pause_s: float = 0) -> None:
        self._client = server.client()
        self._pause_s = pause_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def _ask(self) -> None:
        while not self._ended.is_set():
            self._client.submit(
                self._client.allocate("tiny"), deadline_ns=time.monotonic_ns() + 10_000 * MS
            )
            (completion,) = self._client.wait(timeout_s=10)
            completion.slot.release()
            time.sleep(self._pause_s)

    def __enter__(self) -> Queries:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._client.close()


def metrics(server: RunningServer) -> dict[str, float]:
    with urllib.request.urlopen(f"{server.address}/metrics", timeout=10) as reply:
        lines = reply.read().decode().splitlines()
    rows = [line.rsplit(" ", 1) for line in lines if line.startswith("veltair_")]
    return {name: float(value) for name, value in rows}


def attached(server: RunningServer) -> ipc.Segment:
    descriptor = request_segment(port_of(server.address))
    try:
        return ipc.Segment.attach(descriptor)
    finally:
        os.close(descriptor)


def level(segment: ipc.Segment) -> float:
    """The level that is known, or one that no test waits for."""
    found = segment.level()
    return found.slowdown / 1e6 if found.is_known(time.monotonic_ns()) else -1.0


@pytest.fixture
def server(tmp_path: Path, repository: Path) -> Iterator[RunningServer]:
    config = write_config(tmp_path, "self")
    arguments = ["--repository", str(repository), "--config", str(config)]
    with RunningServer(mpirun_command(2, *arguments)) as running:
        yield running.wait_ready()


def followed_ns(segment: ipc.Segment, slowdown: float) -> int:
    """How long until the level is nearer to a new slow-down than to the last one."""
    segment.emulated_slowdown = round(slowdown * 1e6)
    begun_ns = time.monotonic_ns()
    while abs(level(segment) - slowdown) > 0.4:
        assert time.monotonic_ns() - begun_ns < 10_000 * MS, level(segment)
        time.sleep(0.001)
    return time.monotonic_ns() - begun_ns


def test_the_level_follows(server: RunningServer, tmp_path: Path) -> None:
    segment = attached(server)
    assert any("interference level: measured by self" in line for line in server.lines)
    assert "veltair_interference_level" not in str(metrics(server))  # nothing has run
    rises, falls = [], []
    with Queries(server):
        wait_until(lambda: 0 <= level(segment) < 0.3)
        for _ in range(STEPS):
            rises.append(followed_ns(segment, 0.9))
            wait_until(lambda: level(segment) > 0.8)
            seen = metrics(server)
            falls.append(followed_ns(segment, 0.0))
            wait_until(lambda: level(segment) < 0.3)
        wait_until(lambda: metrics(server)[CONFIDENCE] > 0.5)  # nothing disturbs any more
        # The machine may hold processes up, but not at every step.
        assert min(rises) < 50 * MS, rises
        assert min(falls) < 50 * MS, falls
    assert seen['veltair_interference_level{complex="node"}'] > 0.5
    assert seen['veltair_interference_level{complex="0"}'] > 0.5
    # Less than without a slow-down, which is that of all blocks and so might be a slower machine;
    # about 0.28 once it has lasted. The level is known from 0.05 on.
    assert seen[CONFIDENCE] > 0.1
    assert seen['veltair_interference_source_info{source="self"}'] == 1
    # Only before the first block had ended.
    assert 1 <= seen["veltair_decisions_level_unknown"] < seen["veltair_decisions"] / 2
    # Versions were chosen by it, and would be again.
    lines = [json.loads(line) for line in (tmp_path / "record").read_text().splitlines()]
    decisions = [line for line in lines if line["kind"] == "decision"]
    chosen = {line["decision"]["level"] for line in decisions if line.get("slowdown", 0) > 700_000}
    assert chosen == {2}
    assert {0, 2} <= {line["decision"]["level"] for line in decisions}
    report = replay(tmp_path / "record")
    assert (report.asked, report.differing) == (len(decisions), 0)
    # An idle server measures nothing, and says so.
    wait_until(lambda: level(segment) < 0)
    told_ns = segment.level().time_ns
    time.sleep(0.3)
    assert segment.level().time_ns == told_ns
    assert metrics(server)[CONFIDENCE] == 0
    server.ranks()[0].terminate()
    assert server.wait_end() == 0
    server.assert_gone()


def test_a_trained_source_is_read_beside_own_blocks(tmp_path: Path, repository: Path) -> None:
    path = tmp_path / "proxy.json"
    # Whatever a step takes: the level is 0.4.
    flat = term("probe_step", coefficient=0.0, low=0.0, high=1e9)
    model = msgspec.structs.replace(linear_model(flat, sources=("probe",)), intercept=0.4)
    proxy_file(model).write(path)
    config = write_config(tmp_path, "probe")
    config.write_text(config.read_text().replace("virtual_cores = 1\n", ""))
    arguments = ["--repository", str(repository), "--config", str(config), "--proxy", str(path)]
    with RunningServer(mpirun_command(2, *arguments)) as running:
        segment = attached(running.wait_ready())
        segment.emulated_slowdown = 0
        assert any("interference level: measured by probe" in line for line in running.lines)
        with Queries(running, pause_s=0.01):  # in which the probe's walks find a core
            wait_until(lambda: 0.35 < level(segment) < 0.45)
            assert metrics(running)['veltair_interference_source_info{source="probe"}'] == 1
        running.ranks()[0].terminate()
        assert running.wait_end() == 0


def test_a_file_that_is_none_is_refused(tmp_path: Path, repository: Path) -> None:
    (tmp_path / "proxy.json").write_text('{"schema": 1, "mach')
    config = write_config(tmp_path, "self")
    proxy = ["--proxy", str(tmp_path / "proxy.json")]
    arguments = ["--repository", str(repository), "--config", str(config), *proxy]
    with RunningServer(mpirun_command(2, *arguments)) as running:
        assert running.wait_end() != 0
        assert any("cut" in line and "veltair calibrate" in line for line in running.lines)
