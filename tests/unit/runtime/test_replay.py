"""`veltair replay` and `simulate --record`, from their arguments to what they print."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from veltair.runtime.cli import app
from veltair.runtime.errors import InputError
from veltair.runtime.record import begin_record, make_header, write_lines
from veltair.runtime.replay import replay

SCENARIO = """
[machine]
cores = 4
[policy]
scheduling = "deadline"
max_block_us = 1500
[[model]]
name = "small"
profile = "small.csv"
qos_ms = 8.0
[[model]]
name = "large"
profile = "large.csv"
qos_ms = 60.0
[arrivals]
rate_qps = 400.0
queries = 100
"""
DEVICES = """
[machine]
devices = 2
[policy]
batching = "deferred"
[[model]]
name = "r"
alpha_ms = 1.0
beta_ms = 5.0
qos_ms = 25.0
[arrivals]
rate_qps = 900.0
queries = 200
"""

Edit = Callable[[list[str]], list[str]]


def call(*arguments: object) -> Any:  # noqa: ANN401 # typer's result
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    (tmp_path / "small.csv").write_text("layer,us_1c,us_4c\na,1000,400\nb,2000,700\n")
    (tmp_path / "large.csv").write_text("layer,us_1c,us_4c\na,10000,3000\nb,9000,2500\n")
    path = tmp_path / "scenario.toml"
    path.write_text(SCENARIO)
    return path


@pytest.fixture
def record(scenario: Path) -> Path:
    path = scenario.with_name("record")
    result = call("simulate", scenario, "--record", path)
    assert result.exit_code == 0, result.output
    return path


def edit(path: Path, change: Edit) -> None:
    path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")


def changed(number: int, **fields: Any) -> Edit:  # noqa: ANN401 # any of the line's fields
    """Sets fields of line `number` (from 1), or of its decision where they are of that."""

    def change(lines: list[str]) -> list[str]:
        line = json.loads(lines[number - 1])
        for name, value in fields.items():
            (line if name in line else line["decision"])[name] = value
        lines[number - 1] = json.dumps(line, separators=(",", ":"))
        return lines

    return change


def without(number: int) -> Edit:
    return lambda lines: lines[: number - 1] + lines[number:]


def test_a_record_agrees(record: Path, tmp_path: Path) -> None:
    decisions = len(record.read_text().splitlines()) - 2
    out = tmp_path / "out.json"
    result = call("replay", record, "--json", out)
    assert result.exit_code == 0, result.output
    assert f"{decisions} of {decisions} decisions agree" in result.output
    assert "deadline (max_block_ns=1500000, margin_percent=75" in result.output
    found = json.loads(out.read_text())
    assert found["agreed"] == found["decisions"] == decisions > 100
    assert found["runs"][0]["models"] == ["small", "large"]
    assert found["differing"] == found["missing"] == found["torn_lines"] == 0


def test_the_record_has_the_waiting_queue(record: Path) -> None:
    longest = max(
        len(json.loads(line)["queue"])
        for line in record.read_text().splitlines()
        if line.startswith('{"kind":"decision"')
    )
    assert longest >= 3


def test_a_changed_decision_is_shown(record: Path, tmp_path: Path) -> None:
    edit(record, changed(7, cores=77))
    result = call("replay", record, "--json", tmp_path / "out.json")
    assert result.exit_code == 1
    assert "line 7, decision 4, " in result.output
    recorded, replayed = (
        json.loads(line.partition(": ")[2])
        for line in result.output.splitlines()
        if line.startswith("  ")
    )
    assert recorded["cores"] == 77 != replayed["cores"]
    assert recorded["reason"] == replayed["reason"] != ""
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["differing"] == 1
    assert found["differences"][0]["recorded"] == recorded


def test_a_changed_parameter_changes_decisions(record: Path) -> None:
    edit(record, changed(2, options={"max_block_ns": 100_000}))
    assert replay(record).differing > 0
    edit(record, changed(2, name="layer"))
    report = replay(record)
    assert report.differing > len(report.differences) > 0
    result = call("replay", record)
    assert result.exit_code == 1
    assert f"and {report.differing - len(report.differences)} differences more" in result.output


def test_another_policy(record: Path) -> None:
    result = call("replay", record, "--policy", "layer")
    assert result.exit_code == 0
    assert result.output.startswith("layer (")
    assert "recorded: " in result.output
    unknown = call("replay", record, "--policy", "nonesuch")
    assert unknown.exit_code == 2
    assert "--policy nonesuch: no scheduling policy `nonesuch`" in unknown.output


def test_another_policy_that_reads_more(scenario: Path, record: Path) -> None:
    call("simulate", scenario, "--set", "policy.scheduling=model", "--record", record)
    result = call("replay", record, "--policy", "deadline")
    assert result.exit_code == 0
    assert "more can't be asked: less was recorded than the policy reads" in result.output


def test_a_policy_that_is_changed_amid_the_record(scenario: Path, record: Path) -> None:
    """Decisions name the epoch of their policy, whatever the order of the lines."""
    other = scenario.with_name("other")
    call("simulate", scenario, "--set", "policy.scheduling=layer", "--record", other)
    first, second = record.read_text().splitlines(), other.read_text().splitlines()
    policy = second[1].replace('"epoch":0', '"epoch":1')
    count = len(first) - 2
    later = []
    for line in second[2:]:
        fields = json.loads(line)
        fields["epoch"] = 1
        fields["sequence"] += count
        later.append(json.dumps(fields, separators=(",", ":")))
    half = len(first) // 2
    lines = [*first[:half], policy, later[0], *first[half:], *later[1:]]
    record.write_text("\n".join(lines) + "\n")
    report = replay(record)
    assert [tally.asked for tally in report.tallies] == [count, len(later)]
    assert (report.differing, report.missing) == (0, 0)
    edit(record, without(half + 1))
    with pytest.raises(InputError, match=rf"line {half + 1}: no policy of epoch 1 was told"):
        replay(record)


def test_a_policy_that_several_processes_tell(record: Path) -> None:
    edit(record, lambda lines: [*lines[:9], lines[1], *lines[9:]])
    assert len(replay(record).tallies) == 1
    edit(record, changed(10, name="layer"))
    with pytest.raises(InputError, match="line 10: epoch 0 was of another policy before"):
        replay(record)


def test_a_run_that_is_appended(record: Path) -> None:
    record.write_bytes(record.read_bytes() * 2)
    report = replay(record)
    assert len(report.headers) == len(report.tallies) == 2
    assert report.tallies[0].asked == report.tallies[1].asked
    assert (report.differing, report.missing) == (0, 0)


@pytest.mark.parametrize("left", [1, 5, 9, 40, 200])
def test_a_torn_last_line(record: Path, left: int) -> None:
    lines = record.read_bytes().splitlines(keepends=True)
    record.write_bytes(b"".join(lines[:-1]) + lines[-1][:left])
    result = call("replay", record)
    assert result.exit_code == 0, result.output
    assert "1 torn line left out" in result.output
    assert f"{len(lines) - 3} of {len(lines) - 3} decisions agree" in result.output


def test_a_line_behind_a_torn_one(record: Path) -> None:
    """Another process goes on behind what a killed one left."""
    lines = record.read_bytes().splitlines(keepends=True)
    record.write_bytes(b"".join(lines[:9]) + lines[9][:30] + b"".join(lines[10:]))
    report = replay(record)
    assert (report.torn, report.missing, report.differing) == (1, 1, 0)
    assert report.asked == len(lines) - 3


def test_missing_and_skipped_decisions_are_told(record: Path) -> None:
    edit(record, without(12))
    skipped = '{"kind":"skipped","sequence":3,"epoch":0,"now_ns":5,"queue_length":9000}'
    edit(record, lambda lines: [*lines[:5], skipped, *lines[6:]])
    result = call("replay", record)
    assert result.exit_code == 0
    assert "1 more had too long a queue" in result.output
    assert "1 more are missing" in result.output


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"garbage", "the first line is no header"),
        (b"\x00" * 1000, "the first line is no header"),
        (b'{"kind":"header"', "the first line is no header"),
        (b'{"kind":"policy","schema":2}\n', "the first line is `policy`, no header"),
        (b'{"kind":"header","schema":99,"more":[]}\n', "schema 99: this version reads schema 2"),
        (b'{"kind":"header","schema":2}\n', "line 1: no line of a record"),
    ],
)
def test_no_record(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "record"
    path.write_bytes(content)
    result = call("replay", path)
    assert result.exit_code == 2
    assert message in result.output


def test_files_that_are_none(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        result = call("replay", path)
        assert result.exit_code == 2
        assert "can't be read" in result.output


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed(2, name="nonesuch"), "line 2: can't be: no scheduling policy"),
        (changed(2, options={"depth": 3}), "line 2: can't be"),
        (changed(1, cores=0), "line 2: can't be: a policy needs at least one core"),
        (changed(1, workers=0), "line 1: can't be: a machine has at least one worker"),
        (changed(9, free_cores=99), "line 9: can't be: free cores beyond the machine's"),
        (changed(9, worker=2**40), "line 9: can't be"),
        (changed(9, event="tea"), "line 9: no line of a record"),
        (changed(9, queue=[[1, 2]]), "line 9: no line of a record"),
        (changed(9, queue_length=9, queue=[]), "line 9: 0 of the 9 tasks that wait"),
        (lambda lines: [*lines[:8], "garbage", *lines[8:]], "line 9: no line of a record"),
        (lambda lines: [*lines[:1], *lines[2:]], "line 2: no policy of epoch 0"),
    ],
)
def test_a_damaged_line(record: Path, change: Edit, message: str) -> None:
    edit(record, change)
    result = call("replay", record)
    assert result.exit_code == 2
    assert message in result.output


def test_batches_replay(tmp_path: Path) -> None:
    scenario, record = tmp_path / "devices.toml", tmp_path / "record"
    scenario.write_text(DEVICES)
    assert call("simulate", scenario, "--record", record).exit_code == 0
    result = call("replay", record)
    assert result.exit_code == 0
    events = len(record.read_text().splitlines()) - 2
    assert f"deferred and first-fit: {events} of {events} decisions agree" in result.output
    text = record.read_text()
    record.write_text(text.replace('"executor":0', '"executor":1', 1))
    changed_executor = call("replay", record)
    assert changed_executor.exit_code == 1
    assert '"executor":1' in changed_executor.output
    record.write_text(text)
    edit(record, without(20))
    report = replay(record)
    assert (report.asked, report.unasked, report.missing) == (17, events - 18, 1)


def test_a_record_that_cannot_be_written(scenario: Path, tmp_path: Path) -> None:
    for place, why in (
        ("/dev/full", "can't be written (No space left"),
        (tmp_path / "no" / "file", f"there is no folder {tmp_path / 'no'}"),
        (tmp_path, "a folder"),
    ):
        result = call("simulate", scenario, "--record", place)
        assert result.exit_code == 2
        assert f"--record {place}: {why}" in result.output


def test_a_record_is_appended_to_a_record_alone(tmp_path: Path) -> None:
    path = tmp_path / "record"
    header = make_header("monotonic", cores=2, workers=1)
    for _ in range(2):
        os.close(begin_record(path, [header], field="server.record", append=True))
    assert len(replay(path).headers) == 2
    path.write_text("something else")
    with pytest.raises(InputError, match="is no record of decisions"):
        begin_record(path, [header], field="server.record", append=True)
    assert path.read_text() == "something else"


def test_a_short_write_is_an_error() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    lines = [make_header("monotonic")] * 10_000  # more than a pipe holds
    try:
        with pytest.raises(OSError, match="No space left"):
            write_lines(writer, lines)
    finally:
        os.close(reader)
        os.close(writer)
