"""The comparison of counters, and its page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from calibrations import record, turn
from proxy_models import count, reading

from veltair.eval.proxy_accuracy import accuracy_of, command, measured
from veltair.eval.simulated_counters import REFERENCE, Machine, Party, run_together, simulated
from veltair.runtime.errors import InputError


def test_the_papers_two_counters_are_compared_with_the_best_subset() -> None:
    found = accuracy_of(simulated("amd", layers=10))
    kinds = found["kinds"]["perf-uncore"]
    assert set(kinds) == {"two", "chosen", "all", "ridge", "boosted"}
    assert len(kinds["two"]["r2_folds"]) == 5
    assert found["best"] == "perf-uncore"
    assert (found["rows"], found["layers"]) == (160, 10)
    levels = [each["level"] for each in found["told"]]
    assert levels == sorted(levels)
    assert sum(each["rows"] for each in found["told"]) == 160
    told = [each["told"]["p50"] for each in found["told"]]
    assert told[-1] > told[0]


def test_a_record_is_compared_and_a_page_made(tmp_path: Path) -> None:
    turns = [
        turn(
            number,
            of=work,
            sensitivity=0.2 + 0.1 * work,
            reading=lambda level: reading(count("probe_step", 100 + 50 * level)),
        )
        for number in range(3)
        for work in range(4)
    ]
    made = record(tmp_path / "p.record.jsonl", turns)
    found = measured(made)
    assert [each["level"] for each in found["settings"]] == pytest.approx([0.0, 0.5, 1.0])
    assert found["slowdowns"][0]["slowdown"]["p50"] == pytest.approx(0.5)
    for rows in ("single", "windows"):
        kinds = found[rows]["kinds"]
        assert kinds["probe"]["chosen"]["r2"] == pytest.approx(1.0)
        assert set(kinds) == {"probe", "self", "probe + self"}
        assert "two" not in kinds["probe"]
    command(record=made.path, out=tmp_path)
    saved = json.loads((tmp_path / "proxy_accuracy.json").read_text())
    assert saved["measured"]["single"]["rows"] == 48
    page = (tmp_path / "proxy_accuracy.md").read_text()
    assert "| probe | chosen: probe_step | 1.00 (1.00 to 1.00) |" in page
    assert "## Simulated: perf-uncore" in page


def test_one_round_is_too_little(tmp_path: Path) -> None:
    made = record(tmp_path / "p.record.jsonl", [turn(0, of=work) for work in range(4)])
    with pytest.raises(InputError, match="has 1 rounds that can be used"):
        measured(made)
    with pytest.raises(InputError, match="no such folder"):
        command(record=None, out=tmp_path / "none")


def test_what_runs_beside_costs_time_in_the_simulation() -> None:
    machine = Machine()
    alone = run_together(machine, [REFERENCE])[0]
    assert alone.miss_rate == pytest.approx(0.02)  # it fits

    def beside(footprint: float, rate: float) -> float:
        bubble = Party(footprint_bytes=footprint, bytes_per_s=rate)
        return run_together(machine, [REFERENCE, bubble, bubble, bubble])[0].run_ns

    assert alone.run_ns <= beside(1e6, 1e9) < beside(1e6, 20e9)  # the cache's bandwidth
    assert beside(1e6, 4e9) < beside(30e6, 4e9)  # and the memory's
    large = Party(footprint_bytes=30e6, compute_ns=1e5)
    assert run_together(machine, [large])[0].miss_rate > 0.4  # it doesn't
