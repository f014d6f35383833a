"""`veltair profile` and `veltair compile --levels`: what they measure here, say and refuse."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from e2e.test_compile_command import tiny
from factories import write_tiny_artifact
from typer.testing import CliRunner

from veltair.proxy.levels import LEAST_STEP
from veltair.runtime.cli import app
from veltair.runtime.manifest import Profile, read_manifest

CPUS = sorted(os.sched_getaffinity(0))


def veltair(*words: object) -> Any:  # noqa: ANN401 # typer has its own result class
    return CliRunner().invoke(app, [str(word) for word in words])


def check_levels(profile: Profile, wanted: int, said: str) -> None:
    """Whatever this machine has: distinct levels, or it says that there are fewer."""
    levels, made = profile.levels, profile.interference
    assert made is not None
    assert 1 <= len(levels) <= wanted
    step = max(LEAST_STEP, made.noise)
    assert all(b - a >= step for a, b in itertools.pairwise(levels))
    assert made.highest >= levels[-1]
    rates = made.evicted_share or made.bytes_per_s
    assert rates[0] == 0
    assert len(rates) == len(levels)
    assert (f"{wanted} levels of interference were asked for" in said) is (len(levels) < wanted)
    for table in (profile.model_ns, *(t for layer in profile.layer_ns for t in layer)):
        assert [len(row) for row in table] == [len(levels)] * len(CPUS)


@pytest.mark.skipif(len(CPUS) < 2, reason="a bubble needs a processor of its own")
@pytest.mark.parametrize("co_runner", ["bubbles", "evictors"])
def test_an_artifact_gets_levels(tmp_path: Path, co_runner: str) -> None:
    write_tiny_artifact(tmp_path / "tiny" / "1")
    result = veltair("profile", tmp_path / "tiny", "--levels", 3, "--co-runner", co_runner)
    assert result.exit_code == 0, result.output
    assert f"{tmp_path / 'tiny' / '1'}: profile replaced" in result.stdout
    profile = read_manifest(tmp_path / "tiny" / "1").profile
    check_levels(profile, 3, result.stderr)
    assert ("level 1 (slow-down" in result.stdout) is (len(profile.levels) > 1)
    assert sorted(os.sched_getaffinity(0)) == CPUS
    # And back to one.
    assert veltair("profile", tmp_path / "tiny" / "1").exit_code == 0
    profile = read_manifest(tmp_path / "tiny" / "1").profile
    assert (profile.levels, profile.interference) == ((0.0,), None)


@pytest.mark.skipif(len(CPUS) < 2, reason="a bubble needs a processor of its own")
def test_a_compile_measures_levels(tmp_path: Path) -> None:
    model = tiny(tmp_path / "net.onnx")
    arguments = ["compile", model, "-o", tmp_path / "repo", "--shape", "x=1,3,8,8"]
    result = veltair(*arguments, "--levels", 2)
    assert result.exit_code == 0, result.output
    check_levels(read_manifest(tmp_path / "repo" / "net" / "1").profile, 2, result.stderr)


def test_a_co_runner_that_is_not_there(tmp_path: Path) -> None:
    write_tiny_artifact(tmp_path / "1")
    result = veltair("profile", tmp_path / "1", "--levels", 2, "--co-runner", "fish")
    assert result.exit_code == 2
    assert "--co-runner fish: unknown; choose bubbles or evictors" in result.stderr


@pytest.mark.parametrize("levels", ["0", "-1", "21", "many"])
def test_levels_that_make_no_sense(tmp_path: Path, levels: str) -> None:
    write_tiny_artifact(tmp_path / "1")
    result = veltair("profile", tmp_path / "1", "--levels", levels)
    assert result.exit_code == 2
    assert "--levels" in result.stderr


def test_what_is_no_artifact(tmp_path: Path) -> None:
    result = veltair("profile", tmp_path)
    assert result.exit_code == 4
    assert "not an artifact" in result.stderr


def test_one_processor_has_no_room_for_a_bubble(tmp_path: Path) -> None:
    write_tiny_artifact(tmp_path / "1")
    before = (tmp_path / "1" / "manifest.json").read_bytes()
    script = (
        f"import os; os.sched_setaffinity(0, {{{CPUS[0]}}})\n"
        "from veltair.runtime.cli import app\n"
        f"app(['profile', {str(tmp_path / '1')!r}, '--levels', '2'])"
    )
    finished = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    assert finished.returncode == 2, finished.stderr
    assert "two processors that share a cache" in finished.stderr
    assert (tmp_path / "1" / "manifest.json").read_bytes() == before
