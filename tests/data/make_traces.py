"""Writes the traces of this folder: `python tests/data/make_traces.py`.

They are in the layout that `veltair counters --record` writes, with the names, scopes and places
that the sources give on such machines. The values are computed here, by a level of interference
that rises and falls; no hardware was recorded, and nothing can be learnt from them about any.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "traces"
STEP_NS = 50_000_000
READINGS = 40
NOTE = "computed by tests/data/make_traces.py; no hardware was recorded"


def level(index: int) -> float:
    """From 0 up to 1 and back, twice."""
    return (1 - math.cos(4 * math.pi * index / READINGS)) / 2


def count(
    name: str, value: float, unit: str, scope: str, where: str, share: float
) -> dict[str, Any]:
    return {
        "name": name,
        "value": round(value, 3),
        "unit": unit,
        "scope": scope,
        "where": where,
        "confidence": share,
    }


def intel_task(index: int) -> dict[str, Any]:
    """Two worker processes on an Intel server; the counters are shared out at the peak."""
    now = level(index)
    counts, missing = [], []
    for number, where in enumerate(("process 4001", "process 4002")):
        cycles = 1.4e8 * (1 + 0.05 * number)
        references = 6e5 * (1 + 0.3 * now)
        share = 0.8 if now > 0.9 else 1.0
        for name, value, unit in (
            ("instructions", cycles * 2.4 / (1 + 0.6 * now), "events"),
            ("cycles", cycles, "events"),
            ("llc_references", references, "events"),
            ("llc_misses", references * (0.05 + 0.7 * now), "events"),
        ):
            counts.append(count(name, value, unit, "task", where, share))
        if index == READINGS // 2:
            reason = "2 of its groups had no time on the hardware's counters"
            missing.append({"name": "flops", "where": where, "reason": reason})
        else:
            flops = 2.9e9 / (1 + 0.6 * now)
            counts.append(count("flops", flops, "floating-point operations", "task", where, share))
    return {"counts": counts, "missing": missing}


def amd_uncore(index: int) -> dict[str, Any]:
    """Two core complexes of an AMD server, the second one quiet."""
    counts = []
    for where, now in (("cores 0-7", level(index)), ("cores 8-15", 0.02)):
        accesses = 4e6 * (0.2 + now)
        counts.append(count("l3_accesses", accesses, "events", "core complex", where, 1.0))
        misses = accesses * (0.1 + 0.5 * now)
        counts.append(count("l3_misses", misses, "events", "core complex", where, 1.0))
    return {"counts": counts, "missing": []}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    traces = {
        "intel_perf_task": ("perf-task", intel_task),
        "amd_perf_uncore": ("perf-uncore", amd_uncore),
    }
    for name, (source, reading) in traces.items():
        lines = [{"veltair_counters": 1, "source": source, "note": NOTE}]
        for index in range(READINGS):
            times = {"time_ns": (index + 1) * STEP_NS, "elapsed_ns": STEP_NS}
            lines.append(times | reading(index))
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (FOLDER / f"{name}.jsonl").write_text(text)


if __name__ == "__main__":
    main()
