"""Recordings: what is written is read again, and what is damaged is refused."""

from __future__ import annotations

import io
import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from veltair.proxy.sources.own import OwnBlocks
from veltair.proxy.sources.reading import Count, Missing, Reading, Scope
from veltair.proxy.sources.recording import Recorder, Replay
from veltair.runtime.errors import InputError, SourceError

DATA = Path(__file__).parents[3] / "data"
HEAD = {"veltair_counters": 1, "source": "probe", "note": ""}
COUNT = {
    "name": "l3_misses",
    "value": 7,
    "unit": "events",
    "scope": "core complex",
    "where": "cores 0-7",
    "confidence": 0.5,
}
LINE: dict[str, Any] = {"time_ns": 9, "elapsed_ns": 4, "counts": [COUNT], "missing": []}


def recording(path: Path, *lines: object) -> Path:
    text = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(text) + "\n")
    return path


def test_what_is_recorded_is_replayed(tmp_path: Path) -> None:
    source = OwnBlocks()
    file = io.StringIO()
    recorder = Recorder(source, file, note="of a test")
    source.add(300, 200)
    readings = [recorder.read(), recorder.read()]
    path = tmp_path / "trace.jsonl"
    path.write_text(file.getvalue())
    replay = Replay(path)
    assert replay.name == "replay of self"
    assert [replay.read() for _ in range(len(replay))] == readings
    with pytest.raises(SourceError, match="has ended after 2 readings"):
        replay.read()
    recorder.close()
    replay.close()


def test_a_line_is_a_reading(tmp_path: Path) -> None:
    lack = {"name": "flops", "where": "all", "reason": "none"}
    replay = Replay(recording(tmp_path / "t", HEAD, LINE | {"missing": [lack]}))
    assert replay.read() == Reading(
        time_ns=9,
        elapsed_ns=4,
        counts=(
            Count(
                name="l3_misses",
                value=7.0,
                unit="events",
                scope=Scope.COMPLEX,
                where="cores 0-7",
                confidence=0.5,
            ),
        ),
        missing=(Missing(name="flops", where="all", reason="none"),),
    )


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"time_ns": -1}, "whole ns from 0, not -1"),
        ({"time_ns": 1.5}, "whole ns from 0, not 1.5"),
        ({"elapsed_ns": True}, "whole ns from 0, not True"),
        ({"counts": [COUNT | {"value": "7"}]}, "value must be a number, not '7'"),
        ({"counts": [COUNT | {"value": float("nan")}]}, "value must be a number, not nan"),
        ({"counts": [COUNT | {"confidence": 1.5}]}, "confidence must be from 0 to 1, not 1.5"),
        ({"counts": [COUNT | {"scope": "world"}]}, "'world' is not a valid Scope"),
        ({"counts": [{"name": "l3_misses"}]}, "'value' is missing"),
        ({"counts": [7]}, "line 2"),
        ({"counts": None}, "line 2"),
        ({"missing": [{}]}, "'name' is missing"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, change: dict[str, Any], part: str) -> None:
    with pytest.raises(InputError, match=part) as caught:
        Replay(recording(tmp_path / "t", HEAD, LINE | change))
    assert "t, line 2: " in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "part"),
    [
        (["{}"], "no recording of schema 1"),
        ([HEAD | {"veltair_counters": 2}], "no recording of schema 1"),
        ([""], "line 1: no JSON"),
        (["[]"], "line 1: must be an object"),
        ([HEAD, LINE, json.dumps(LINE)[:40]], "line 3: no JSON .* the file was cut"),
        ([HEAD, LINE, LINE | {"time_ns": 8}], "line 3: it is earlier than the line before it"),
    ],
)
def test_a_file_that_is_no_recording(tmp_path: Path, lines: list[object], part: str) -> None:
    with pytest.raises(InputError, match=part):
        Replay(recording(tmp_path / "t", *lines))


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be read"):
        Replay(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="it is no text"):
        Replay(tmp_path / "binary")


def test_the_traces_are_what_their_script_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = runpy.run_path(str(DATA / "make_traces.py"))
    monkeypatch.setitem(script["main"].__globals__, "FOLDER", tmp_path / "traces")
    script["main"]()
    kept = sorted((DATA / "traces").iterdir())
    assert [path.name for path in kept] == ["amd_perf_uncore.jsonl", "intel_perf_task.jsonl"]
    for path in kept:
        assert (tmp_path / "traces" / path.name).read_text() == path.read_text()


@pytest.mark.parametrize(
    ("name", "counts", "missing"),
    [("amd_perf_uncore", {"l3_accesses", "l3_misses"}, 0), ("intel_perf_task", {"flops"}, 2)],
)
def test_traces_of_both_makers_are_replayed(name: str, counts: set[str], missing: int) -> None:
    replay = Replay(DATA / "traces" / f"{name}.jsonl")
    readings = [replay.read() for _ in range(len(replay))]
    assert len(readings) == 40
    assert counts <= {count.name for reading in readings for count in reading.counts}
    assert sum(len(reading.missing) for reading in readings) == missing
