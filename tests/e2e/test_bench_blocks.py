"""Block boundaries and cores that change hands, measured in workers of this process."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from veltair.eval.children import python
from veltair.eval.null_model import NULL_MODEL, compile_quietly, null_model

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a core that changes hands needs two")
def test_saves_what_it_found(tmp_path: Path) -> None:
    compile_quietly(tmp_path / "repository", NULL_MODEL, null_model(), qos_ms=1000)
    file = tmp_path / "blocks.json"
    artifact = str(tmp_path / "repository" / NULL_MODEL / "1")
    options = ["--turns", "1", "--rounds", "3", "--json", str(file)]
    command = python("veltair.eval.bench_blocks", artifact, *options)
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    assert run.stderr == ""
    result = json.loads(file.read_text())
    assert "bench_blocks" in result["command"]
    # A block a layer costs more than one block, and less than a system call that sleeps.
    assert 0 < result["boundary_ns"]["p50"] < 1_000_000
    assert 0 < result["boundary_changing_ns"]["p50"] < 1_000_000
    assert 0 <= result["let_go"]["mean_ns"] <= result["let_go"]["longest_ns"]
