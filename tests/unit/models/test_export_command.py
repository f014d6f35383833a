"""`veltair export`: what it writes, and that a refusal leaves nothing behind."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from typing import TYPE_CHECKING

import onnx
from typer.testing import CliRunner

from veltair.runtime.cli import app

if TYPE_CHECKING:
    from pathlib import Path


def export(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["export", *map(str, arguments)])
    return result.exit_code, result.output


def test_writes_a_model_that_onnx_accepts(tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    code, out = export("mobilenet_v2", "-o", file)
    assert code == 0
    assert "seed 0" in out
    onnx.checker.check_model(onnx.load(file), full_check=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.onnx"]


def test_refuses_to_replace_without_force(tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    file.write_text("mine")
    code, out = export("mobilenet_v2", "-o", file)
    assert code == 2
    assert "--force" in out
    assert file.read_text() == "mine"
    assert export("mobilenet_v2", "-o", file, "--force")[0] == 0
    assert file.stat().st_size > 10_000_000


def test_unknown_name_exits_2_and_names_the_nearest(tmp_path: Path) -> None:
    code, out = export("mobilenet", "-o", tmp_path / "m.onnx")
    assert code == 2
    assert "'mobilenet_v2'" in out
    assert not list(tmp_path.iterdir())


def test_missing_folder_is_named(tmp_path: Path) -> None:
    code, out = export("mobilenet_v2", "-o", tmp_path / "none" / "m.onnx")
    assert code == 2
    assert str(tmp_path / "none") in out


def test_only_a_file_is_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for target in (pipe, tmp_path):
        code, out = export("mobilenet_v2", "-o", target, "--force")
        assert code == 2
        assert "not a file" in out
    assert pipe.is_fifo()


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    file.write_text("old")
    done = subprocess.run(
        [sys.executable, "-m", "veltair.runtime.cli", "export", "mobilenet_v2", "-o", file, "-f"],
        check=False,
        capture_output=True,
        text=True,
        preexec_fn=limit_files_to_a_megabyte,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"veltair: {file}: can't be written: File too large")
    assert done.stderr.count("\n") == 1
    assert [(e.name, e.read_text()) for e in tmp_path.iterdir()] == [("m.onnx", "old")]


def limit_files_to_a_megabyte() -> None:
    """Fails the write half-way, as a full disk does."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
