"""The probe's benchmark, as briefly as it goes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CPUS = len(os.sched_getaffinity(0))


@pytest.mark.skipif(CPUS < 2, reason="a bubble needs a processor of its own")
def test_readings_beside_bubbles_are_saved(tmp_path: Path) -> None:
    file = tmp_path / "probe.json"
    options = ["--rounds", "2", "--window-ms", "20", "--buffers-kb", "256", "--json", str(file)]
    done = subprocess.run(
        [sys.executable, "-m", "veltair.eval.bench_probe", *options],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())
    assert [row["layout"] for row in found["rows"]] == ["one_set", "all_lines"]
    for row in found["rows"]:
        assert row["touched_bytes"] == 4096
        assert row["cost"] > 0
        for kind in ("first", "again"):
            rates = [each["gbps"] for each in row[kind]["rates"]]
            assert rates == sorted(rates)
            assert rates[0] == 0
            assert all(each["step_ns"]["p50"] > 0 for each in row[kind]["rates"])
    assert {"perf_group", "probe"} == set(found["reads"])
    assert "one_set" in done.stdout
