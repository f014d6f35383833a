"""The page about an evaluation says what its result says, and so do its tables."""

from __future__ import annotations

import csv
import re
from dataclasses import fields, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from evaluations import (
    HOSTILE,
    OURS,
    PEERS,
    SOLO_MS,
    WORKLOADS,
    hostile_result,
    simulated_result,
    whole_result,
)
from typer.testing import CliRunner

from veltair.eval.capacity.report import figures
from veltair.eval.capacity.report.findings import Findings
from veltair.eval.capacity.report.gantt import chart, describe, runs
from veltair.eval.capacity.report.page import render
from veltair.eval.capacity.report.tables import all_tables
from veltair.eval.capacity.result import MEASURED, RESULT_FILE, read, write
from veltair.eval.latency_figures import Figures
from veltair.eval.page.plot import SHAPES, Plot, linear, rows
from veltair.eval.page.text import number_text
from veltair.runtime.cli import app
from veltair.runtime.errors import InputError

VOID = {"meta", "input", "br"}


class Page(HTMLParser):
    """A page's tables by their ids, its words, and what it would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[tuple[str, str | None]]]] = {}
        self.fetched: list[str] = []
        self.ids: list[str] = []
        self.open: list[str] = []
        self._rows: list[list[tuple[str, str | None]]] = []
        self._cell: list[str] | None = None
        self._value: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.fetched += [f"{tag} {n}" for n in given if n in ("src", "srcset", "data", "srcdoc")]
        self.fetched += [h for n, h in attrs if n == "href" and h and not h.startswith("#")]
        self.ids += [given["id"] or ""] if "id" in given else []
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self._rows = self.tables.setdefault(given.get("id") or "", [])
        elif tag == "tr":
            self._rows.append([])
        elif tag == "td":
            self._cell, self._value = [], given.get("data-value")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes another element"
        if tag == "td" and self._cell is not None:
            self._rows[-1].append(("".join(self._cell), self._value))
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)


def marks(svg: object, tag: str, style: str = "") -> list[ElementTree.Element]:
    """The elements of a figure, which has to be well-formed."""
    found = ElementTree.fromstring(str(svg)).iter(tag)
    return [each for each in found if style in each.get("class", "").split() or not style]


def test_every_capacity_is_in_its_figure_and_other_states_are_words() -> None:
    found = Findings(whole_result())
    for workload in WORKLOADS:
        svg = figures.capacities(found, workload)
        bars = {(m[0].text or "").split(":")[0]: m[0].text for m in marks(svg, "rect", "bar")}
        states = [m.text for m in marks(svg, "text", "state")]
        for each in found.result.capacities:
            if each.workload == workload and each.qps:
                median = sorted(each.qps)[1]
                assert number_text(median) in (bars.pop(each.system) or "")
        assert bars == {}, "nothing without a capacity has a bar, nor has the null server"
        assert states == [
            found.state(workload, name)
            for name in (*OURS, *PEERS)
            if found.state(workload, name) not in MEASURED
        ]
    heavy = [m.text for m in marks(figures.capacities(found, "heavy"), "text", "state")]
    assert heavy == ["unmeetable", "unmeetable", "failed", "skipped"]
    assert len(marks(figures.capacities(found, "medium"), "rect", "noisy")) == 1
    assert len(marks(figures.capacities(found, "light"), "rect", "hatched")) == 3


def test_a_rate_that_no_search_ended_in_is_not_drawn() -> None:
    """An unmeetable workload may come with what its repetitions gave: 0."""
    result = whole_result()
    changed = [replace(e, qps=(0.0, 0.0)) if not e.qps else e for e in result.capacities]
    found = Findings(replace(result, capacities=tuple(changed)))
    svg = figures.capacities(found, "heavy")
    assert [m.text for m in marks(svg, "text", "state")] == [
        "unmeetable",
        "unmeetable",
        "failed",
        "skipped",
    ]
    assert "prema" not in {row[1] for row in all_tables(found)["ratios"].rows if row[0] == "heavy"}


def test_rows_are_apart_alike_and_beside_their_names() -> None:
    names = ["a", "a name that is longer than there is room for", "c"]
    plot = Plot(title="rows", x=linear("x", [0, 10]), y=rows(names), right=40)
    for row in range(3):
        plot.mark((10, row), "c0", names[row])
    svg = plot.svg()
    heights = [float(mark.get("cy", "")) for mark in marks(svg, "circle")]
    words = {t.text: float(t.get("y", "")) for t in marks(svg, "text", "tick") if t.text}
    assert heights == sorted(heights)
    assert heights[1] - heights[0] == pytest.approx(heights[2] - heights[1], abs=0.2)
    # As far from the upper end of the figure as from the lower one: 10 and 40 are its margins.
    assert heights[0] - 10 == pytest.approx(230 - 40 - heights[2], abs=0.2)
    assert words["a"] - heights[0] == pytest.approx(words["c"] - heights[2], abs=0.2)
    assert any(word.startswith("a name that") and word.endswith("\u2026") for word in words)
    assert float(marks(svg, "circle")[0].get("cx", "")) == pytest.approx(360 - 40)


def test_bars_are_as_long_as_their_capacities() -> None:
    svg = figures.capacities(Findings(whole_result()), "light")
    width = {(m[0].text or "").split(":")[0]: float(m.get("width", "")) for m in marks(svg, "rect")}
    assert width["veltair"] / width["onnxruntime"] == pytest.approx(240.8 / 80, rel=0.01)


def test_latency_over_solo_is_of_the_system_itself_at_both_rates() -> None:
    result = whole_result()
    found = Findings(result)
    trial = next(
        t
        for t in result.trials
        if (t.workload, t.system, t.purpose) == ("medium", "veltair", "at_half")
    )
    ratio = trial.figures["resnet50"].mean_ms / SOLO_MS["resnet50"]
    assert found.over_solo("medium", "veltair", "at_half", "resnet50") == pytest.approx(ratio)
    assert found.over_solo("medium", "mlserver", "at_half", "resnet50") is None
    svg = figures.over_solo(found, "medium")
    drawn = [m[0].text for shape in ("circle", "path") for m in marks(svg, shape) if len(m)]
    assert f"veltair, resnet50 at half of it: {ratio:.2f} times its latency alone" in drawn
    with_solo = (*OURS, *PEERS[:3])
    assert len(drawn) == 2 * len(WORKLOADS["medium"]) * len(with_solo)
    assert len(marks(svg, "path", "hollow")) + len(marks(svg, "circle", "hollow")) == len(drawn) / 2
    assert figures.over_solo(Findings(replace(result, solos=())), "medium") is None


def test_core_usage_is_by_query_and_against_layers() -> None:
    result = whole_result()
    found = Findings(result)
    at = {
        t.system: t for t in result.trials if t.workload == "light" and t.purpose == "at_capacity"
    }
    served_qps = at["model"].rate_qps * 990 / 1000
    assert found.core_ms(at["model"]) == pytest.approx(1e3 * 1.0 * 4 / served_qps)
    per_query = [found.core_ms(at[name]) or 0 for name in ("veltair", "layer")]
    assert found.over_layer_wise(at["veltair"]) == pytest.approx(per_query[0] / per_query[1] - 1)
    assert found.over_layer_wise(at["layer"]) == pytest.approx(0)
    far = replace(at["veltair"], rate_qps=9 * at["veltair"].rate_qps)
    assert found.over_layer_wise(far) is None, "layers were not run at that load"
    machine = {"machine": {"cpu": "unknown"}}
    assert figures.core_costs(Findings(replace(result, origin=machine)), "light") is None
    assert Findings(replace(result, origin=machine, cores=8)).core_ms(at["model"]) is not None


def test_sweeps_show_the_worst_model_and_each_system_alike_nowhere() -> None:
    result = whole_result()
    found = Findings(result)
    svg = figures.sweeps(found, "light")
    groups = [g.get("data-of") for g in ElementTree.fromstring(str(svg)).iter("g")]
    assert groups == [*OURS, *PEERS[:3]]
    run = next(t for t in result.trials if t.system == "veltair" and t.purpose == "sweep")
    worse = replace(run.figures["tiny_yolov2"], satisfied_share=0.123)
    assert found.worst(replace(run, figures=run.figures | {"tiny_yolov2": worse})) == (
        "tiny_yolov2",
        0.123,
    )
    looks = {(s.style, s.shape) for s in figures.series([f"s{i}" for i in range(32)]).values()}
    assert len(looks) == 32
    assert {shape for _, shape in looks} == set(SHAPES)


def test_the_tables_of_the_page_are_the_results_figures() -> None:
    result = whole_result()
    page = Page(render(result))
    rows = page.tables["table-capacity"][1:]
    assert len(rows) == len(result.capacities)
    for row, each in zip(rows, result.capacities, strict=True):
        texts = [text for text, _ in row]
        assert texts[:2] == [each.workload, each.system]
        assert texts[4] == each.state
        values = [float(value) if value else None for _, value in row[5:9]]
        if each.qps:
            assert values == [sorted(each.qps)[1], min(each.qps), max(each.qps), len(each.qps)]
            assert row[5][0] == number_text(sorted(each.qps)[1])
        else:
            assert values == [None] * 4
            assert row[5][0] == "\u2013"
    medium = page.tables["table-latency-medium"][1:]
    run = next(
        t
        for t in result.trials
        if (t.workload, t.system, t.purpose) == ("medium", "veltair", "at_capacity")
    )
    row = next(r for r in medium if [t for t, _ in r[:3]] == ["veltair", "capacity", "googlenet"])
    values = [float(value or "nan") for _, value in row[3:]]
    told = [getattr(run.figures["googlenet"], each.name) for each in fields(Figures)]
    for known in (run.rate_qps, 27.0, 9.0, *told[:4], *told[6:]):
        assert known in values


def test_the_grid_shows_what_each_peer_was_tried_at() -> None:
    rows = all_tables(Findings(whole_result()))["grid"].rows
    light = {row[2]: row[3:] for row in rows if row[:2] == ("light", "openvino")}
    qps = 101.0
    assert light["2 sessions x 2 threads"] == (
        3,
        pytest.approx(0.8 * qps),
        pytest.approx(1.2 * qps),
        True,
    )
    assert light["THROUGHPUT"] == (3, pytest.approx(0.6 * qps), pytest.approx(0.8 * qps), False)
    assert {row[1] for row in rows} == set(PEERS[:3])


def test_a_block_is_drawn_on_its_cores_at_its_time() -> None:
    result = whole_result()
    second = result.gantts[0]
    drawn = chart(second, list(SOLO_MS), 4)
    blocks = marks(drawn.bars, "g", "block")
    assert len(blocks) == len(second.bars)
    for block, bar in zip(blocks, second.bars, strict=True):
        assert block[0].text == describe(bar)
        boxes = block[1:]
        assert len(boxes) == len(runs(bar.cores))
        assert float(boxes[0].get("x", "").rstrip("%")) == pytest.approx(
            bar.begin_ns / 1e7, abs=1e-3
        )
        tall = sum(float(box.get("height", "")) for box in boxes)
        assert tall == pytest.approx(30 * len(bar.cores))
    assert runs((5, 1, 2, 7, 6)) == [(1, 3), (5, 8)]
    first = second.bars[0]
    assert "cores 0, 3" in describe(first)
    assert f"version {first.version}" in describe(first)
    many = chart(replace(second, bars=()), list(SOLO_MS), 64)
    assert len(marks(many.names, "text")) < 64, "names need room"


def test_the_page_stands_alone_and_is_well_formed() -> None:
    for result in (whole_result(), simulated_result(), hostile_result()):
        text = render(result)
        page = Page(text)
        assert page.fetched == []
        assert page.open == [], "every element is closed"
        assert len(page.ids) == len(set(page.ids))
        assert set(re.findall(r"url\((.)", text)) == {"#"}
        assert "@import" not in text
        assert "default-src 'none'" in text


def test_hostile_names_are_words_on_the_page_and_whole_in_the_tables(tmp_path: Path) -> None:
    write(tmp_path, hostile_result())
    assert report(tmp_path).exit_code == 0
    text = (tmp_path / "report.html").read_text()
    assert text.count("</script>") == 1
    assert 'id="hostile"' not in text
    assert "&lt;/script&gt;&lt;b id=" in text
    for name in ("latency", "gantt", "workloads", "solo", "trials"):
        with (tmp_path / "tables" / f"{name}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert HOSTILE in {row["model"] for row in rows}


def report(*words: object) -> Any:  # noqa: ANN401 # typer has its own result class
    return CliRunner().invoke(app, ["report-eval", *map(str, words)])


def test_the_command_writes_the_page_and_every_table(tmp_path: Path) -> None:
    result = whole_result()
    write(tmp_path, result)
    found = report(tmp_path)
    assert found.exit_code == 0, found.output
    assert (tmp_path / "report.html").read_text() == render(result)
    tables = all_tables(Findings(result))
    assert {p.stem for p in (tmp_path / "tables").iterdir()} == set(tables)
    for name, table in tables.items():
        with (tmp_path / "tables" / f"{name}.csv").open(newline="") as file:
            heading, *rows = csv.reader(file)
        assert heading == [column.key for column in table.columns]
        assert len(rows) == len(table.rows) > 0
    with (tmp_path / "tables" / "capacity.csv").open(newline="") as file:
        rows = {(row["workload"], row["system"]): row for row in csv.DictReader(file)}
    assert float(rows["light", "veltair"]["capacity_median_qps"]) == 240.8
    assert rows["heavy", "prema"]["state"] == "unmeetable"
    assert rows["heavy", "prema"]["capacity_median_qps"] == ""
    elsewhere = tmp_path / "elsewhere"
    assert report(tmp_path, "-o", elsewhere).exit_code == 2
    elsewhere.mkdir()
    assert report(tmp_path, "-o", elsewhere).exit_code == 0
    assert (elsewhere / "report.html").read_text() == (tmp_path / "report.html").read_text()


def test_columns_carry_their_units() -> None:
    for table in all_tables(Findings(whole_result())).values():
        for column in table.columns:
            bare = {"queries", "served", "refused", "failed", "runs", "run", "repetitions"}
            bare |= {"repetition", "query", "first_layer", "last_layer", "version", "load"}
            ratio = column.key.startswith(("ratio_", "over_solo", "mean_over_solo"))
            if column.text is not None and column.key not in bare and not ratio:
                assert re.search("(_ms|_qps|_s|share|core_ms_per_query)$", column.key), column.key


def test_a_result_without_any_run_is_a_page_that_says_so(tmp_path: Path) -> None:
    empty = replace(whole_result(), trials=(), capacities=(), solos=(), gantts=())
    page = render(empty)
    assert "No system was swept over loads." in page
    assert "No second was recorded." in page
    assert "not run" in page
    bare = replace(empty, workloads=(), systems=(), plan={}, origin={})
    assert Page(render(bare)).open == []


def test_figures_of_no_query_are_unknown_not_zero(tmp_path: Path) -> None:
    result = whole_result()
    nothing = {e.name: float("nan") for e in fields(Figures) if e.type == "float"}
    run = result.trials[1]
    none = replace(run.figures["mobilenet_v2"], queries=0, served=0, **nothing)  # type: ignore[arg-type]
    changed = replace(run, figures=run.figures | {"mobilenet_v2": none})
    write(tmp_path, replace(result, trials=(changed, *result.trials[2:])))
    again = read(tmp_path)
    assert again.trials[0].figures["mobilenet_v2"].queries == 0
    assert Page(render(again)).open == []
    csv_text = all_tables(Findings(again))["trials"].csv()
    row = next(
        csv.DictReader(r for r in csv_text.splitlines() if "queries" in r or "mobilenet" in r)
    )
    assert row["mean_ms"] == ""


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "there is no such file; veltair eval writes it"),
        ('{"schema": 1, "origin": {', "not an evaluation's result"),
        ('{"schema": 99}', "schema 99, and this version reads 1; run veltair eval again"),
        ("[1, 2]", "schema None"),
        ('{"schema": 1}', "missing required field"),
        ('{"schema": 1, "trials": 5, "solos": [1], "origin": {}}', "not an evaluation's result"),
        ('{"schema": 1, "trials": [{"figures": [1]}]}', "not an evaluation's result"),
        (b"\xff\xfe", "not an evaluation's result"),
    ],
)
def test_bad_results_are_refused_in_a_line(
    tmp_path: Path, content: str | bytes | None, said: str
) -> None:
    if content is not None:
        data = content if isinstance(content, bytes) else content.encode()
        (tmp_path / RESULT_FILE).write_bytes(data)
    found = report(tmp_path)
    assert found.exit_code == 2, found.output
    assert said in found.stderr
    assert RESULT_FILE in found.stderr
    assert len(found.stderr.splitlines()) == 1
    assert not (tmp_path / "report.html").exists()


def test_a_cut_result_and_bad_places_are_refused(tmp_path: Path) -> None:
    write(tmp_path, whole_result())
    data = (tmp_path / RESULT_FILE).read_bytes()
    (tmp_path / RESULT_FILE).write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match="not an evaluation's result"):
        read(tmp_path)
    assert "there is no such folder" in report(tmp_path / "none").stderr
    (tmp_path / RESULT_FILE).unlink()
    (tmp_path / RESULT_FILE).mkdir()
    assert "can't be read" in report(tmp_path).stderr
    (tmp_path / RESULT_FILE).rmdir()
    write(tmp_path, whole_result())
    (tmp_path / "tables").write_text("in the way")
    assert "can't be made" in report(tmp_path).stderr
    (tmp_path / "report.html").unlink()
    (tmp_path / "report.html").mkdir()
    assert "can't be written" in report(tmp_path).stderr


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    for result in (whole_result(), simulated_result(), hostile_result()):
        write(tmp_path, result)
        assert read(tmp_path) == result
