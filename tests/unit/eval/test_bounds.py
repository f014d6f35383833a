"""The table of bounds: each figure comes from its file, and a broken bound is said."""

from __future__ import annotations

import re

from veltair.eval.bounds import report

ENGINES = {
    "cases": [
        {
            "model": "resnet50",
            "cores": 2,
            "engines": [
                {"engine": "veltair"},
                {"engine": "openvino", "ratio": {"p50": 9.0}, "difference": 1.0},
                {"engine": "onnxruntime", "ratio": {"p50": 1.31}, "difference": 2e-5},
            ],
        }
    ]
}
SERVER = {
    "start_ns": {"p50": 1_500_000_000},
    "idle_share": 0.025,
    "workers_private_bytes": {"1": 60 << 20, "2": 80 << 20},
    "arena_bytes": 20 << 20,
    "queue_ns": {"p50": 45_000},
}
LAUNCH = {
    "results": {
        "empty_launch": {"p50_ns": 130, "bound_ns": 1_000},
        "all_cores_asleep": {"p50_ns": 60_000, "bound_ns": 50_000},
    }
}
HTTP = {
    "kernels_ns": 100_000,
    "bound_ns": 500_000,
    "ways": [
        {"way": "local client", "round_trip_ns": {"p50": 0}},
        {"way": "HTTP, bare socket", "round_trip_ns": {"p50": 450_000}},
    ],
}


def rows(**files: dict[str, object]) -> list[list[str]]:
    text = report({f"{name}.json": content for name, content in files.items()})
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_engines_are_compared_with_onnx_runtime() -> None:
    time, difference = rows(engines=ENGINES)
    assert time[1:4] == ["1.3", "1.31", "**no**"]
    assert difference[1:4] == ["0.001", "2e-05", "yes"]
    assert "resnet50, 2 cores" in time[0]


def test_server_counts_the_worker_with_most_memory_beyond_the_arena() -> None:
    queue, start, idle, memory = rows(server=SERVER)
    assert queue[1:4] == ["60 us", "45 us", "yes"]
    assert start[1:4] == ["3 s", "1.5 s", "yes"]
    assert idle[1:4] == ["2 %", "2.5 %", "**no**"]
    assert memory[1:4] == ["50 MiB", "60 MiB", "**no**"]


def test_launches() -> None:
    awake, asleep = rows(launch=LAUNCH)
    assert awake[1:4] == ["1 us", "0.13 us", "yes"]
    assert asleep[1:4] == ["50 us", "60 us", "**no**"]


def test_decisions_count_their_slowest_event() -> None:
    events = {"worker_idle": {"p50": 100.0}, "block_end": {"p50": 2_100.0}}
    result = {"policies": {"model": events}, "layers": 200, "bound_ns": 2_000}
    ((_, bound, measured, kept, _),) = rows(decision=result)
    assert (bound, measured, kept) == ("2 us", "2.1 us", "**no**")


def test_http_counts_what_is_not_the_kernels() -> None:
    ((_, bound, measured, kept, _),) = rows(http=HTTP)
    assert (bound, measured, kept) == ("0.5 ms", "0.35 ms", "yes")


def test_each_row_names_its_file_and_missing_files_have_no_row() -> None:
    found = rows(compile={"resnet50_ns": 45_000_000_000}, http=HTTP)
    sources = {re.fullmatch(r"\[(.*)\]\(\1\)", row[4]).group(1) for row in found}  # type: ignore[union-attr]
    assert sources == {"compile.json", "http.json"}
    assert found[0][1:4] == ["90 s", "45 s", "yes"]
