"""`veltair machine` on the machine at hand, and a simulation of what it wrote."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from factories import write_tiny_artifact

from veltair.eval.machine_rates import Rates, complexes_of
from veltair.proxy.machine_file import FIGURES, read_machine
from veltair.runtime.machine import cpu_flags, machine_facts

SCENARIO = """
[machine]
cores = 1
model = "here.toml"
[policy]
scheduling = "veltair"
[[model]]
name = "tiny"
profile = "tiny"
qos_ms = 50.0
[arrivals]
rate_qps = 100.0
queries = 200
"""


def veltair(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "veltair.runtime.cli", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_machine_is_measured_and_simulated(tmp_path: Path) -> None:
    done = veltair("machine", "-o", "here.toml", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    machine = read_machine(tmp_path / "here.toml")
    for figure in FIGURES:
        assert figure in done.stdout
    assert machine.processor.name == machine_facts()["cpu"]
    assert machine.processor.cores == len(os.sched_getaffinity(0))
    assert machine.caches.l2_kib == int(machine_facts()["l2_bytes"]) >> 10
    # A core of any processor with these instructions: a third of a pipe at least, at most 4.
    assert 0.5 < machine.processor.frequency_ghz < 6.5
    assert 0.3 < machine.processor.fmas_per_cycle < 4.5
    write_tiny_artifact(tmp_path / "tiny" / "1")
    (tmp_path / "scenario.toml").write_text(SCENARIO)
    done = veltair("simulate", "scenario.toml", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "200 queries" in done.stdout


def test_a_folder_that_is_missing_is_said_before_anything_is_measured(tmp_path: Path) -> None:
    done = veltair("machine", "-o", "none/here.toml", folder=tmp_path)
    assert done.returncode == 2
    assert "no folder none" in done.stderr


@pytest.mark.skipif(not {"avx2", "fma"} <= cpu_flags(), reason="the loops are of these")
def test_loops_of_the_smaller_instruction_set_work_too(tmp_path: Path) -> None:
    rates = Rates("x86-64-v3", tmp_path)
    cpus = sorted(os.sched_getaffinity(0))[:1]
    gflops, ghz = rates.peak(cpus)
    assert 0.5 < ghz < 7
    assert 4 < gflops / ghz < 40  # 8 lanes, 2 operations, a pipe or two
    assert rates.reading(cpus, 1 << 16) > rates.reading(cpus, 256 << 20) * 0.5
    assert [each.cpus for each in complexes_of(cpus)] == [tuple(cpus)]
