"""The report in a real browser: figures with content, no complaints, usable on every screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CONTRAST, FIGURES, Browser, find_browser
from factories import many_versions, write_tiny_artifact

from veltair.eval.report.layers import model_report
from veltair.eval.report.page import render

BROWSER = find_browser()
LAYERS = 64

pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium here: apt install chromium to look at the page in it"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert BROWSER is not None
    with Browser(BROWSER) as opened:
        yield opened


@pytest.fixture
def page(tmp_path: Path, browser: Browser) -> Path:
    browser.complaints.clear()
    browser.requests.clear()
    path = tmp_path / "report.html"
    manifest, search = many_versions(layers=LAYERS, versions=5, levels=4)
    path.write_text(render(model_report(manifest, search)), encoding="utf-8")
    return path


def shown(browser: Browser) -> int:
    count = browser.evaluate("layers.filter((layer) => !layer.hidden).length")
    assert isinstance(count, int)
    return count


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1280])
def test_figures_have_content_and_nobody_complains(
    page: Path, browser: Browser, width: int, dark: bool
) -> None:
    browser.show(page, width=width, dark=dark)
    browser.evaluate("document.getElementById('open-all').click()")
    figures, drawn = browser.evaluate(FIGURES)
    assert figures == drawn
    assert figures >= 3 + 2 * LAYERS
    assert browser.evaluate(CONTRAST) >= 4.5
    # What is wider than the screen scrolls in its own frame, the page doesn't.
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.complaints == []
    assert browser.requests == [page.as_uri()]


def test_layers_open_one_by_one(page: Path, browser: Browser) -> None:
    browser.show(page)
    assert browser.evaluate("layers.filter(isOpen).length") == 0
    browser.evaluate("layers[2].querySelector('.toggle').click()")
    assert browser.evaluate("layers.filter(isOpen).map((layer) => layer.id)") == ["layer-3"]
    box = "layers[2].querySelector('figure.samples svg').getBoundingClientRect().height"
    assert browser.evaluate(box) > 100
    browser.evaluate("layers[2].querySelector('.toggle').click()")
    assert browser.evaluate("layers.filter(isOpen).length") == 0
    assert browser.complaints == []


def test_layers_are_found(page: Path, browser: Browser) -> None:
    browser.show(page)
    type_ = "((t) => {{ const f = document.getElementById('find'); f.value = t;"
    type_ += " f.dispatchEvent(new Event('input')); }})({!r})"
    browser.evaluate(type_.format("Stage12. MATMUL"))
    assert shown(browser) == 1
    assert browser.evaluate("document.getElementById('found').textContent") == "1 of 64 layers"
    browser.evaluate(type_.format("there is no such"))
    assert shown(browser) == 0
    browser.evaluate(type_.format(""))
    assert shown(browser) == LAYERS


def test_layers_are_sorted(page: Path, browser: Browser) -> None:
    browser.show(page)
    shares = (
        "Array.from(document.querySelectorAll('.row'), (row) =>"
        " Number(Array.from(row.cells).find((cell) => cell.querySelector('.share')).dataset.value))"
    )
    click = (
        "Array.from(document.querySelectorAll('#layers > thead th'))"
        ".find((th) => th.textContent.trim() === {!r}).querySelector('button').click()"
    )
    as_run = browser.evaluate(shares)
    browser.evaluate(click.format("share"))
    assert browser.evaluate(shares) == sorted(as_run, reverse=True)
    browser.evaluate(click.format("share"))
    assert browser.evaluate(shares) == sorted(as_run)
    browser.evaluate(click.format("#"))
    assert browser.evaluate(shares) == as_run
    # A layer's details move with it.
    order = "Array.from(document.querySelectorAll('.row, .detail'), (row) => row.className)"
    assert browser.evaluate(order) == ["row", "detail"] * LAYERS


def test_an_artifact_without_a_search_says_what_is_missing(
    tmp_path: Path, browser: Browser
) -> None:
    browser.complaints.clear()
    path = tmp_path / "report.html"
    path.write_text(render(model_report(write_tiny_artifact(tmp_path / "1"), None)), "utf-8")
    browser.show(path)
    missing = browser.evaluate("document.querySelector('.missing').innerText")
    assert "no search.json" in missing
    assert "veltair profile DIR --levels N" in missing
    figures, drawn = browser.evaluate(FIGURES)
    assert figures >= 3
    assert browser.evaluate("document.querySelectorAll('#time-by-layer .bar').length") == 2
    assert drawn >= 3
    assert browser.complaints == []
