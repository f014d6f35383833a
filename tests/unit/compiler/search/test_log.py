from __future__ import annotations

import multiprocessing
import warnings
from pathlib import Path
from typing import Any

import msgspec
import pytest

from veltair.compiler.kernels.choices import DepthwiseChoice
from veltair.compiler.search.key import SPACE
from veltair.compiler.search.log import (
    VERSION,
    DamagedLogWarning,
    LogPlace,
    LogWriter,
    Record,
    log_place,
    read_log,
    read_logs,
)
from veltair.runtime.errors import InputError, VeltairError

ISA = "x86-64-v4"


def record(trial: int = 0, **changes: Any) -> Record:  # noqa: ANN401 # any field
    fields: dict[str, Any] = {
        "v": VERSION,
        "space": SPACE,
        "isa": ISA,
        "key": "layer",
        "machine": "a machine",
        "trial": trial,
        "choice": DepthwiseChoice(pixels=trial + 1, rows=1),
        "status": "ok",
        "id": f"dw{trial}",
        "ns": {1: 100, 2: 60},
        **changes,
    }
    return Record(**fields)


def quietly(path: Path) -> list[Record]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", DamagedLogWarning)
        return read_log(path, ISA)


def test_what_is_appended_is_read(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "new" / "net.jsonl")
    for trial in range(3):
        log.append(record(trial))
    assert quietly(tmp_path / "new" / "net.jsonl") == [record(i) for i in range(3)]


@pytest.mark.parametrize(
    ("id_", "ns", "task_ns"),
    [
        ("conv3x3_direct_oc2x16_px14_r7_p8_bias_relu", {1: 800, 2: 500}, 100),
        ("maxpool3x3_c16_px10_p4", {2: 500}, 250),
        ("relayout", {1: 800}, 0),
    ],
)
def test_a_variants_id_says_how_short_its_tasks_are(
    id_: str, ns: dict[int, int], task_ns: float
) -> None:
    assert record(id=id_, ns=ns).task_ns == task_ns


@pytest.mark.parametrize(
    ("id_", "ns", "cores", "expected"),
    [
        ("conv_p8", {1: 800, 2: 500}, 2, (800, 500)),
        ("conv_p8", {1: 800, 2: 500}, 1, (800,)),
        ("conv_p8", {2: 500, 4: 300}, 1, (1000,)),  # by the least that there is: twice the rounds
        ("conv_p8", {1: 800, 2: 500}, 8, (800, 500, 250, 125)),  # four rounds, two, one
        ("conv_p8", {1: 800, 2: 500}, 32, (800, 500, 250, 125, 125, 125)),  # and no less than one
        ("conv_p8", {1: 800, 2: 500}, 7, (800, 500, 250, 250)),  # one of seven has two
        ("conv_p8", {1: 800, 6: 200}, 8, (800, 400, 200, 100)),  # six take two rounds
        ("conv_p2_bias", {1: 800, 2: 500}, 4, (800, 500, 500)),
        ("relayout", {1: 800, 2: 500}, 8, (800, 500, 250, 125)),
        ("conv_p8", {1: 1}, 8, (1, 1, 1, 1)),
        ("", {}, 8, ()),
    ],
)
def test_times_on_another_number_of_cores(
    id_: str, ns: dict[int, int], cores: int, expected: tuple[int, ...]
) -> None:
    assert record(id=id_, ns=ns).for_cores(cores) == expected


def test_no_file_is_an_empty_log(tmp_path: Path) -> None:
    assert quietly(tmp_path / "none.jsonl") == []


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "not a tuning record"),
        (b"\xff\xfe\x00", "not a tuning record"),
        (b'{"name": "of another program"}', "not a tuning record"),
        (msgspec.json.encode(record(v=9)), "version 9, this Veltair reads version 1"),
        (b'{"v": 9, "new": 1}', "version 9"),
        (msgspec.json.encode(record(ns={})), "not a tuning record (status 'ok' with times {})"),
        (msgspec.json.encode(record(ns={1: -5})), "not a tuning record (status 'ok' with times"),
        (msgspec.json.encode(record(1)).replace(b'"rows"', b'"lines"'), "not a tuning record"),
    ],
)
def test_a_damaged_line_is_skipped_and_named(tmp_path: Path, line: bytes, why: str) -> None:
    path = tmp_path / "net.jsonl"
    good = [msgspec.json.encode(record(i)) for i in range(2)]
    path.write_bytes(b"\n".join([good[0], line, good[1], b""]))
    with pytest.warns(DamagedLogWarning) as caught:
        assert read_log(path, ISA) == [record(0), record(1)]
    assert len(caught) == 1
    assert f"{path}:2: skipped: {why}" in str(caught[0].message)
    assert path.read_bytes().splitlines()[1] == line, "the log must be left as it is"


def test_what_is_no_log_at_all_warns_a_few_times(tmp_path: Path) -> None:
    path = tmp_path / "net.jsonl"
    path.write_text("no log\n" * 1000)
    with pytest.warns(DamagedLogWarning) as caught:
        assert read_log(path, ISA) == []
    assert len(caught) == 6
    assert "995 more lines skipped; is it a tuning log?" in str(caught[-1].message)


def test_a_line_that_a_killed_search_left_unended_is_the_only_one_lost(tmp_path: Path) -> None:
    path = tmp_path / "net.jsonl"
    LogWriter(path).append(record(0))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    LogWriter(path).append(record(1))
    with pytest.warns(DamagedLogWarning, match=f"{path}:2: "):
        assert read_log(path, ISA) == [record(0), record(1)]


def test_records_of_another_isa_or_space_count_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "net.jsonl"
    for each in (record(0, isa="x86-64-v3"), record(1, space=SPACE + 1), record(2)):
        LogWriter(path).append(each)
    assert quietly(path) == [record(2)]


def _append_many(path: Path, first: int, count: int) -> None:
    for trial in range(first, first + count):
        LogWriter(path).append(record(trial, reason="", id="x" * (trial % 700 + 1)))


def test_two_searches_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "net.jsonl"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_append_many, args=(path, i * 1000, 300)) for i in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    trials = sorted(r.trial for r in quietly(path))
    assert trials == [i * 1000 + j for i in range(3) for j in range(300)]


def test_a_log_that_cannot_be_used_says_so(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=r"can't be read .*--log"):
        read_log(tmp_path / "folder", ISA)
    with pytest.raises(VeltairError, match=r"can't be written .*--log"):
        LogWriter(tmp_path / "folder").append(record())


def test_logs_of_all_places_are_read_and_the_own_one_last(tmp_path: Path) -> None:
    shipped, users = tmp_path / "shipped", tmp_path / "users"
    own = users / "net.jsonl"
    for folder, name, trial in ((users, "net", 2), (shipped, "z", 0), (users, "other", 1)):
        LogWriter(folder / f"{name}.jsonl").append(record(trial))
    found = read_logs(LogPlace(folders=(shipped, users), own=own), ISA)
    assert sorted(r.trial for r in found) == [0, 1, 2]
    assert found[-1].trial == 2


def test_the_users_log_is_where_the_standard_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    place = log_place(ISA, "net")
    assert place.own == tmp_path / "veltair" / "tuning_logs" / ISA / "net.jsonl"
    assert log_place(ISA, "net", tmp_path / "mine").own == tmp_path / "mine"


def test_the_shipped_logs_can_be_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    users = tmp_path / "veltair" / "tuning_logs" / ISA
    with_them, without = log_place(ISA, "net"), log_place(ISA, "net", shipped=False)
    assert len(with_them.folders) == 2
    assert with_them.folders[0].parent.name == "tuning_logs"
    assert without.folders == (users,)
    assert without.own == with_them.own
