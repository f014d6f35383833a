"""The file that a calibration goes on with."""

from __future__ import annotations

from pathlib import Path

import pytest
from calibrations import header, record, turn
from proxy_models import count, reading

from veltair.proxy.calibration_record import CalibrationRecord, record_path
from veltair.runtime.errors import InputError


def test_what_is_added_is_read(tmp_path: Path) -> None:
    path = tmp_path / "p.record.jsonl"
    turns = [
        turn(0, of=1, reading=lambda level: reading(count("probe_step", 100 * (1 + level)))),
        turn(0, of=0),
    ]
    record(path, turns)
    found = CalibrationRecord.read(path)
    assert found.header == header()
    assert found.turns == turns
    assert found.elapsed_s == 2.0


def test_a_cut_line_is_left_out_and_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "p.record.jsonl"
    record(path, [turn(0, of=0), turn(0, of=1)])
    path.write_bytes(path.read_bytes()[:-20])
    found = CalibrationRecord.read(path)
    assert [each.work for each in found.turns] == [0]
    found.drop_cut_line()
    found.add(turn(0, of=2))
    assert [each.work for each in CalibrationRecord.read(path).turns] == [0, 2]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (b'"veltair_calibration":1', b'"veltair_calibration":9', "schema 9, and this version"),
        (b'"veltair_calibration":1', b'"other":1', "no record of a calibration"),
        (b'"round":0', b'"round":"a"', "line 2: damaged"),
        (b'"work":0,"elapsed', b'"work":7,"elapsed', "line 2: is of a layer or settings"),
        (b'"slots":[{"setting":0', b'"slots":[{"setting":2', "line 2: is of a layer or settings"),
    ],
)
def test_a_damaged_file_is_refused(
    tmp_path: Path, before: bytes, after: bytes, message: str
) -> None:
    path = tmp_path / "p.record.jsonl"
    record(path, [turn(0, of=0)])
    data = path.read_bytes()
    assert before in data
    path.write_bytes(data.replace(before, after, 1))
    with pytest.raises(InputError, match=message):
        CalibrationRecord.read(path)


def test_an_empty_file_and_none_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.record.jsonl"
    path.write_bytes(b"")
    with pytest.raises(InputError, match="no record of a calibration"):
        CalibrationRecord.read(path)
    with pytest.raises(InputError, match="can't be read"):
        CalibrationRecord.read(tmp_path / "none")


def test_another_machine_or_other_artifacts_are_refused(tmp_path: Path) -> None:
    made = record(tmp_path / "p.record.jsonl", [])
    here = dict(made.header.machine)
    made.check_same(here, {"m/1": "abc"})
    with pytest.raises(InputError, match=r"another machine \(cpu differ\); remove it, or give"):
        made.check_same(here | {"cpu": "Another"}, {"m/1": "abc"})
    with pytest.raises(InputError, match=r"other artifacts|another artifacts \(m/2 differ\)"):
        made.check_same(here, {"m/1": "abc", "m/2": "d"})


def test_the_record_lies_beside_the_result() -> None:
    assert record_path(Path("a/proxy.json")) == Path("a/proxy.record.jsonl")
