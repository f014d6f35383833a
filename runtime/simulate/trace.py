"""A simulation as JSON trace events, which Perfetto and chrome://tracing open."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from veltair.runtime.errors import InputError
from veltair.runtime.files import writing
from veltair.runtime.simulate.run import SERVED, Simulated
from veltair.runtime.simulate.scenario import Scenario

_MACHINE, _QUERIES = 1, 2


def write_trace(path: Path, scenario: Scenario, found: Simulated) -> None:
    """Writes a track a worker with its blocks, the cores in use, and the queries that failed.

    Raises:
        InputError: the file can't be written.
    """
    try:
        with writing(path) as file:
            file.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')
            for number, event in enumerate(_events(scenario, found)):
                file.write((("," if number else "") + json.dumps(event) + "\n").encode())
            file.write(b"]}\n")
    except OSError as error:
        raise InputError(f"--trace {path}: can't be written ({error.strerror})") from error


def _events(scenario: Scenario, found: Simulated) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "pid": _MACHINE, "name": "process_name", "args": {"name": "machine"}}
    yield {"ph": "M", "pid": _QUERIES, "name": "process_name", "args": {"name": "queries"}}
    names = [model.name for model in scenario.model]
    for query, worker, begin, end, wanted, cores, start_ns, end_ns in found.segments.tolist():
        yield {
            "ph": "X",
            "pid": _MACHINE,
            "tid": worker,
            "ts": start_ns / 1000,
            "dur": (end_ns - start_ns) / 1000,
            "name": f"{names[found.arrivals.model[query]]} {begin}..{end - 1}",
            "args": {"query": query, "cores": cores, "cores_wanted": wanted},
        }
    yield from _cores_in_use(found)
    for query in np.flatnonzero(found.outcome != SERVED).tolist():
        yield {
            "ph": "i",
            "pid": _QUERIES,
            "tid": int(found.arrivals.model[query]),
            "ts": int(found.end_ns[query]) / 1000,
            "s": "t",
            "name": "refused",
            "args": {"query": query},
        }


def _cores_in_use(found: Simulated) -> Iterator[dict[str, Any]]:
    cores = found.segments[:, 5]
    times_ns = np.concatenate([found.segments[:, 6], found.segments[:, 7]])
    changes = np.concatenate([cores, -cores])
    unique_ns, place = np.unique(times_ns, return_inverse=True)
    sums = np.zeros(len(unique_ns), dtype=np.int64)
    np.add.at(sums, place, changes)
    for time_ns, used in zip(unique_ns.tolist(), np.cumsum(sums).tolist(), strict=True):
        yield {
            "ph": "C",
            "pid": _MACHINE,
            "ts": time_ns / 1000,
            "name": "cores in use",
            "args": {"cores": used},
        }
