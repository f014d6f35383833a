"""The first query after idleness, measured in process and through a server."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

from veltair.eval.children import python
from veltair.eval.null_model import NULL_MODEL, compile_quietly, null_model

if TYPE_CHECKING:
    from pathlib import Path


def test_saves_what_it_found(tmp_path: Path) -> None:
    compile_quietly(tmp_path / "repository", NULL_MODEL, null_model())
    file = tmp_path / "idle.json"
    options = ["--cores", "1", "--idle-ms", "1,2", "--seconds", "0.1", "--json", str(file)]
    artifact = str(tmp_path / "repository" / NULL_MODEL)
    command = python("veltair.eval.bench_idle", artifact, *options)
    subprocess.run(command, check=True, capture_output=True)
    result = json.loads(file.read_text())
    assert "bench_idle" in result["command"]
    (case,) = result["cases"]
    assert (case["model"], case["cpus"]) == (NULL_MODEL, [min(os.sched_getaffinity(0))])
    (ours,) = case["engines"]
    for row in (ours, case["server"]):
        assert 0 < row["hot_ns"]["p10"] <= row["hot_ns"]["p90"]
        assert [after["idle_ns"] for after in row["after"]] == [1_000_000, 2_000_000]
        assert all(after["penalty"]["p50"] > 0 for after in row["after"])
    assert ours["engine"] == "veltair"
    assert case["server"].keys() == {"rounds", "hot_ns", "after"}
    assert set(case["causes"]) == {"hot", "asleep", "awake", "evicted"}
