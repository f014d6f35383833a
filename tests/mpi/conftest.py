"""What the tests with `mpirun` share: a repository, its servers, a check that nothing is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from factories import write_slow_artifact, write_tiny_artifact

from mpi.serving import RunningServer, left_in_shared_memory, mpirun_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SLOW_REPEATS = 400


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models `tiny` (versions 1 and 2), `slow`, `wide`, and `broken`: a byte of it has changed."""
    folder = tmp_path_factory.mktemp("repository")
    write_tiny_artifact(folder / "tiny" / "1")
    write_tiny_artifact(folder / "tiny" / "2", seed=2)
    write_slow_artifact(folder / "slow" / "1", repeats=SLOW_REPEATS)
    # Its target is met on both cores only.
    write_slow_artifact(folder / "wide" / "1", repeats=SLOW_REPEATS, qos_ns=SLOW_REPEATS * 40_000)
    write_tiny_artifact(folder / "broken" / "1", name="broken")
    weights = folder / "broken" / "1" / "weights.bin"
    data = bytearray(weights.read_bytes())
    data[100] ^= 1
    weights.write_bytes(data)
    return folder


@pytest.fixture
def scheduled(repository: Path, tmp_path: Path) -> Callable[[int, str], RunningServer]:
    """Makes a server of some ranks with the keys of its `[scheduling]`; `with` starts it."""

    def make(ranks: int, keys: str) -> RunningServer:
        config = tmp_path / "serve.toml"
        config.write_text(f"[scheduling]\n{keys}\n")
        arguments = ("--repository", str(repository), "--config", str(config), "--http-port", "0")
        return RunningServer(mpirun_command(ranks, *arguments))

    return make


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """No test leaves a shared segment."""
    before = left_in_shared_memory()
    yield
    assert left_in_shared_memory() <= before
