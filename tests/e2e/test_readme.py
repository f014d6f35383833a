"""The README's commands and programs, run as they stand."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tritonclient.http import InferenceServerClient
from tritonclient.utils import InferenceServerException

from veltair.eval.children import child
from veltair.runtime.config import load_config
from veltair.runtime.server.repository import read_models

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*) ?(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    language: str
    role: str
    text: str


BLOCKS = [Block(*match) for match in FENCE.findall((ROOT / "README.md").read_text())]


def blocks(language: str, role: str = "") -> list[str]:
    found = [block.text for block in BLOCKS if block[:2] == (language, role)]
    assert found, f"the README has no block '{language} {role}'"
    return found


def environment() -> dict[str, str]:
    tools = Path(sys.executable).parent
    return {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment(), check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the shell commands have been run."""
    folder = tmp_path_factory.mktemp("readme")
    for block in blocks("sh"):
        for line in block.splitlines():
            assert run(shlex.split(line), folder), f"{line} printed nothing"
    return folder


@pytest.fixture
def port(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Where the README's server listens: at a free port instead of 8000."""
    (line,) = blocks("sh", "server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", environment()["PATH"])
    with child(shlex.split(line.replace("8000", str(port)))) as server:
        wait_until_ready(server, port)
        yield port


def wait_until_ready(server: subprocess.Popen[str], port: int) -> None:
    with InferenceServerClient(f"127.0.0.1:{port}") as client:
        while True:
            assert server.poll() is None, "the server has ended"
            with suppress(OSError, InferenceServerException):  # it doesn't listen yet
                if client.is_server_ready():
                    return
            time.sleep(0.05)


def test_commands_leave_an_artifact(folder: Path) -> None:
    artifact = folder / "repository" / "mobilenet_v2" / "1"
    assert {"manifest.json", "weights.bin", "kernels.so"} <= {f.name for f in artifact.iterdir()}


def test_a_search_ends_in_versions_and_a_report(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "data"))
    (tune,) = blocks("sh", "tune")
    (measure,) = blocks("sh", "measure")
    assert "--trials 64\n" in tune  # of all layers: hours
    tune = tune.replace("--trials 64\n", "--trials 3 --layers logits --no-shipped-logs\n")
    for line in (tune + measure).splitlines():
        assert run(shlex.split(line), folder), f"{line} printed nothing"
    (log,) = (folder / "data").rglob("mobilenet_v2.jsonl")
    assert log.read_bytes().count(b"\n") >= 3
    page = (folder / "repository" / "mobilenet_v2" / "1" / "report.html").read_text()
    assert "samples" in page
    assert "dropped before they were built" in page


def test_an_artifact_of_batches(folder: Path) -> None:
    (commands,) = blocks("sh", "batch")
    compiled, inspected = (run(shlex.split(line), folder) for line in commands.splitlines())
    assert "batch 4: a sample takes" in compiled
    assert "input data: float32[4, 3, 224, 224]" in inspected


def test_program_prints_the_outputs_shape(folder: Path) -> None:
    (program,) = blocks("python")
    assert run([sys.executable, "-c", program], folder) == "(1, 1000)\n"


def test_client_gets_an_answer(folder: Path, port: int) -> None:
    (program,) = blocks("python", "client")
    answer = run([sys.executable, "-c", program.replace("8000", str(port))], folder)
    assert 0 <= int(answer) < 1000


def test_policies_change_while_it_serves(folder: Path, port: int) -> None:
    (line,) = blocks("sh", "configure")
    said = run(shlex.split(line.replace("8000", str(port))), folder)
    assert 'policy = "veltair-as"' in said
    assert 'policy = "eager"' in said


def test_a_model_is_served_by_its_profile_alone(tmp_path: Path) -> None:
    (text,) = blocks("toml", "null")
    (tmp_path / "serve.toml").write_text(text)
    (model,) = read_models(None, load_config(tmp_path / "serve.toml"))
    assert model.profile is not None
    assert model.profile.layers == 53


def test_make_targets_exist() -> None:
    (block,) = blocks("")
    for line in block.splitlines():
        run([*shlex.split(line), "--dry-run"], ROOT)


def test_figures_and_folders_exist() -> None:
    text = (ROOT / "README.md").read_text()
    named = re.findall(r"\]\(([^)]+)\)", text) + re.findall(r"`(\w+)/`", text)
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).exists()] == []
