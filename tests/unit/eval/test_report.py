"""The report: losses, figures, what is joined and refused, what the page says."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from factories import disturbed_profile, many_versions, write_tiny_artifact
from typer.testing import CliRunner

from veltair.compiler.search.samples import SEARCH_FILE
from veltair.compiler.spare import note_removed, without_spare
from veltair.compiler.versions import fewest
from veltair.eval.page.plot import Plot, doubling, linear, whole
from veltair.eval.page.text import bytes_text
from veltair.eval.report import figures
from veltair.eval.report.layers import model_report
from veltair.eval.report.page import render
from veltair.runtime.cli import app
from veltair.runtime.errors import ArtifactError
from veltair.runtime.manifest import MANIFEST_FILE, Fallback


def marks(svg: object, tag: str, style: str = "") -> list[ElementTree.Element]:
    """The elements of a figure, which has to be well-formed."""
    found = ElementTree.fromstring(str(svg)).iter(tag)
    return [each for each in found if style in each.get("class", "").split() or not style]


def test_axes_are_round_and_hold_all_values() -> None:
    axis = linear("ms", [0.013, 0.41], low=0)
    assert axis.ticks == (0, 0.2, 0.4, 0.6)
    assert (axis.low, axis.high) == (0, 0.6)
    assert whole("n", 5, around=0.5).ticks == (1, 2, 3, 4, 5)
    assert len(whole("n", 200, around=0.5).ticks) <= 12
    assert linear("x", [3, 3]).part(3) == pytest.approx(0)
    assert linear("x", [0, 0]).ticks[0] == 0
    log = doubling("size", [3000, 70000], text=bytes_text)
    assert (log.ticks[0], log.ticks[-1]) == (2048, 131072)
    assert 0 < log.part(3000) < log.part(70000) < 1
    assert log.part(2048 * 8) == pytest.approx(0.5)
    assert log.text(log.ticks[0]) == "2 KiB"
    assert 0 < doubling("size", [64, 64]).part(64) < 1


def test_a_point_lies_where_its_axes_say() -> None:
    plot = Plot(title="<a> & b", x=linear("x", [0, 10]), y=linear("y", [0, 4]))
    plot.mark((10, 4), "c0", "the <corner> & more")
    plot.mark((0, 0), "c1", "the origin")
    svg = plot.svg()
    corner, origin = marks(svg, "circle")
    assert float(corner.get("cx", "")) > float(origin.get("cx", ""))
    assert float(corner.get("cy", "")) < float(origin.get("cy", ""))
    assert corner[0].text == "the <corner> & more"
    assert ElementTree.fromstring(str(svg)).get("aria-label") == "<a> & b"


def test_a_layers_samples_are_all_in_its_figure() -> None:
    manifest, search = many_versions(layers=3, versions=4)
    for layer in model_report(manifest, search).layers:
        svg = figures.layer_samples(layer)
        samples = layer.samples
        drawn = "".join(path.get("d", "") for path in marks(svg, "path", "dots"))
        plain = [s for s in samples if s.status != "failed" and not s.is_frontier]
        assert drawn.count("M") == len(plain)
        assert len(marks(svg, "circle", "frontier")) == len(layer.frontier) > 0
        chosen = [mark[0].text or "" for mark in marks(svg, "circle", "chosen")]
        assert [s.id for s in samples if s.is_chosen] == [
            re.split("[ :]+", text)[1] for text in chosen
        ]


def test_figures_of_versions(tmp_path: Path) -> None:
    manifest = write_tiny_artifact(tmp_path / "1", profile=disturbed_profile())
    report = model_report(manifest, None)
    assert report.cores == 1  # the most that was measured beside bubbles
    product, scores = report.layers
    assert len(marks(figures.layer_levels(product, report.levels), "path", "line")) == 2
    assert len(marks(figures.layer_levels(product, report.levels), "circle")) == 6
    assert len(marks(figures.layer_loss(product), "circle")) == 4
    assert figures.layer_loss(scores) is None
    assert figures.layer_samples(product) is None
    assert len(marks(figures.time_by_layer(report), "rect")) == 2
    assert product.share == pytest.approx(50 / 59)
    texts = [mark[0].text for mark in marks(figures.versions_per_layer(report), "rect")]
    assert texts == ["1 layer with 1 version", "1 layer with 2 versions"]
    # One version in each layer: the product's first loses 110 to 70 us at the last level.
    losses = [mark[0].text or "" for mark in marks(figures.model_loss(report), "circle")]
    assert len(losses) == 2 * 3
    assert sum("loses 0.00 %" in text for text in losses) >= 3


def test_a_profile_with_one_level_has_no_figure_of_levels(tmp_path: Path) -> None:
    report = model_report(write_tiny_artifact(tmp_path / "1"), None)
    assert report.cores == 2
    assert figures.layer_levels(report.layers[0], report.levels) is None
    assert len(report.missing) == 2
    assert "no search.json" in report.missing[0]
    assert "veltair profile DIR --levels N" in report.missing[1]


def test_a_search_of_another_model_is_refused(tmp_path: Path) -> None:
    manifest, search = many_versions(layers=3)
    with pytest.raises(ArtifactError, match="is of another model"):
        model_report(manifest, msgspec.structs.replace(search, layers=search.layers[:2]))
    with pytest.raises(ArtifactError, match="is of another model"):
        model_report(write_tiny_artifact(tmp_path / "1"), search)


class _Links(HTMLParser):
    """Collects what a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [f"{tag} {n}" for n, _ in attrs if n in ("src", "href", "srcset", "data")]


def test_the_page_stands_alone_and_escapes_what_it_is_given() -> None:
    manifest, search = many_versions(layers=2)
    manifest = msgspec.structs.replace(manifest, name="<script>alert(1)</script>")
    page = render(model_report(manifest, search))
    links = _Links()
    links.feed(page)
    assert links.fetched == []
    assert "url(" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "a wrong result: &lt;NaN&gt; &amp; more" in page


def test_what_was_removed_again_is_in_the_figures_and_said() -> None:
    manifest, search = many_versions(layers=6, versions=5, levels=2)
    trimmed, removed = without_spare(manifest)
    whole = model_report(manifest, search)
    rest = model_report(trimmed, note_removed(search, removed))
    single = 0
    for before, after, lost in zip(whole.layers, rest.layers, removed, strict=True):
        assert len(after.kept) == len(before.kept), "Fig. 7 is of all that were measured"
        assert len(after.versions) == len(fewest(before.kept).versions)
        assert [k.worst for k in after.kept] == [k.worst for k in before.kept]
        single += bool(lost) and len(after.versions) == 1
    page = render(rest)
    assert page.count("removed again, without which") == sum(map(bool, removed)) > 0
    assert page.count("One stays: nothing measured on this machine") == single > 0
    # Of another profile: the report is of what is left.
    stale = note_removed(note_removed(search, removed), [() for _ in removed])
    again = model_report(trimmed, stale)
    assert [len(layer.kept) for layer in again.layers] == [len(v.variants) for v in trimmed.layers]


def report(*words: object) -> Any:  # noqa: ANN401 # typer has its own result class
    return CliRunner().invoke(app, ["report", *map(str, words)])


def test_the_command_writes_beside_the_artifact_or_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / "net" / "1"
    folder.mkdir(parents=True)
    manifest, search = many_versions(layers=2)
    (folder / MANIFEST_FILE).write_bytes(manifest.to_json())
    (folder / SEARCH_FILE).write_bytes(search.to_json())
    result = report(tmp_path / "net")
    assert result.exit_code == 0, result.output
    assert f"{folder / 'report.html'}: 2 layers" in result.stdout
    assert "not in it" not in result.stdout
    assert report(folder, "-o", tmp_path / "page.html").exit_code == 0
    page = (tmp_path / "page.html").read_text()
    assert page == (folder / "report.html").read_text()
    assert page.startswith("<!doctype html>")


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    write_tiny_artifact(tmp_path / "1")
    result = report(tmp_path / "1")
    assert result.exit_code == 0, result.output
    assert "not in it: The samples of the search" in result.stdout
    assert "not in it: Times under interference" in result.stdout


def test_bad_input(tmp_path: Path) -> None:
    result = report(tmp_path)
    assert result.exit_code == 4
    assert "not an artifact" in result.stderr
    write_tiny_artifact(tmp_path / "1")
    result = report(tmp_path / "1", "-o", tmp_path / "none" / "page.html")
    assert result.exit_code == 2
    assert "there is no folder" in result.stderr
    result = report(tmp_path / "1", "-o", tmp_path)
    assert result.exit_code == 2
    (tmp_path / "1" / SEARCH_FILE).write_text("{")
    result = report(tmp_path / "1")
    assert result.exit_code == 4
    assert "search.json" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_the_page_says_what_falls_back_and_why(tmp_path: Path) -> None:
    manifest = write_tiny_artifact(tmp_path / "1")
    assert "What falls back" not in render(model_report(manifest, None))
    why = "TopK 'best': TVM can't lower it (no <kernel>)"
    fallback = Fallback(file="fallback0.onnx", inputs=("a",), outputs=("b",), reasons=(why,))
    fallen = msgspec.structs.replace(manifest.layers[1], fallback=fallback)
    changed = msgspec.structs.replace(manifest, layers=(manifest.layers[0], fallen))
    page = " ".join(render(model_report(changed, None)).split())
    assert "1 layer of 2 runs on ONNX Runtime, 15.3 % of the time on one core" in page
    assert "scores, 2 nodes, since" in page
    assert "(no &lt;kernel&gt;)" in page
