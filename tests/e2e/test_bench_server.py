"""What the server's benchmark looks at: all of its processes, and each worker's memory."""

from __future__ import annotations

import json
import subprocess
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from veltair.eval.bench_server import ask, processes, workers_private_bytes
from veltair.eval.children import python
from veltair.eval.null_model import NULL_MODEL, compile_quietly, null_model
from veltair.eval.served import served
from veltair.runtime.client import LocalClient
from veltair.runtime.errors import NotFoundError
from veltair.runtime.manifest import read_manifest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def null_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("null") / "repository"
    compile_quietly(repository, NULL_MODEL, null_model())
    return repository


def test_sees_every_process_and_each_worker(null_repository: Path) -> None:
    with served(null_repository, workers=2) as server:
        names = [process.name() for process in processes(server)]
        assert len(names) == 1 + 1 + 2 * 3  # veltair serve, a launcher, three ranks and guardians
        with LocalClient.attach(server.address) as client:
            begun = time.monotonic_ns()
            waits_ns = ask(client, NULL_MODEL, 4)
            assert len(waits_ns) == 4
            assert 0 < max(waits_ns) < time.monotonic_ns() - begun
            with pytest.raises(NotFoundError):
                ask(client, "none", 1)
        private = workers_private_bytes(server)
    assert sorted(private) == [1, 2]
    assert all(1 << 20 < size < psutil.virtual_memory().total for size in private.values())


def test_saves_what_it_found(null_repository: Path, tmp_path: Path) -> None:
    file = tmp_path / "server.json"
    options = [
        "--model",
        NULL_MODEL,
        "--starts",
        "2",
        "--idle-s",
        "1",
        "--queries",
        "10",
        "--json",
        str(file),
    ]
    command = python("veltair.eval.bench_server", str(null_repository), *options)
    subprocess.run(command, check=True, capture_output=True)
    result = json.loads(file.read_text())
    manifest = read_manifest(null_repository / NULL_MODEL / "1")
    assert result["arena_bytes"] == manifest.activation_bytes
    assert 0 <= result["idle_share"] < 1
    assert result["start_ns"]["p50"] > 0
    assert result["queue_ns"]["p50"] > 0
    assert result["machine"]["cores"] >= 1
    assert "bench_server" in result["command"]
