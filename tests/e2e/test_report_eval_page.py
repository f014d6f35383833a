"""The page about an evaluation in a real browser: drawn, readable, by keyboard, on every screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CONTRAST, FIGURES, Browser, find_browser
from evaluations import hostile_result, simulated_result, whole_result

from veltair.eval.capacity.report.gantt import describe
from veltair.eval.capacity.report.page import render
from veltair.eval.capacity.result import Result

BROWSER = find_browser()

pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium here: apt install chromium to look at the page in it"
)

# What is wider than the window and not within a frame that scrolls.
OVERFLOWING = """(() => {
  const wide = document.documentElement.clientWidth + 1;
  return Array.from(document.querySelectorAll("main *, header *"))
    .filter((e) => !e.closest(".scroll") && !e.closest("svg") && e.offsetParent !== null)
    .filter((e) => e.getBoundingClientRect().right > wide)
    .map((e) => `${e.tagName} ${e.className}`);
})()"""

# Words of figures that reach out of their figure.
CUT = """Array.from(document.querySelectorAll("figure svg text")).filter((text) => {
  const [box, around] = [text, text.ownerSVGElement].map((e) => e.getBoundingClientRect());
  return box.left < around.left - 1 || box.right > around.right + 1;
}).map((text) => text.textContent)"""

UNNAMED = """Array.from(document.querySelectorAll(
  "button, a, input, summary, [tabindex]")).filter((e) =>
  !(e.textContent.trim() || e.getAttribute("aria-label") || e.labels?.[0]?.textContent.trim())
).length"""

OPEN_ALL = "for (const e of document.querySelectorAll('details')) e.open = true"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert BROWSER is not None
    with Browser(BROWSER) as opened:
        yield opened


def show(
    browser: Browser, folder: Path, result: Result, *, width: int = 1280, dark: bool = False
) -> Path:
    """Opens the result's page, everything in it unfolded."""
    browser.complaints.clear()
    browser.requests.clear()
    path = folder / "report.html"
    path.write_text(render(result), encoding="utf-8")
    browser.show(path, width=width, dark=dark)
    browser.evaluate(OPEN_ALL)
    return path


def press(browser: Browser, key: str) -> None:
    for kind in ("keyDown", "keyUp"):
        browser.send("Input.dispatchKeyEvent", type=kind, key=key, code=key)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 420, 1400])
def test_everything_is_drawn_readable_and_within_the_window(
    tmp_path: Path, browser: Browser, width: int, dark: bool
) -> None:
    path = show(browser, tmp_path, whole_result(), width=width, dark=dark)
    figures, drawn = browser.evaluate(FIGURES)
    assert figures == drawn == 4 * 3
    assert browser.evaluate("document.querySelectorAll('svg.gantt .bar').length") > 100
    assert browser.evaluate(CONTRAST) >= 4.5
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate(OVERFLOWING) == []
    assert browser.evaluate(CUT) == []
    assert browser.evaluate(UNNAMED) == 0
    assert browser.complaints == []
    assert browser.requests == [path.as_uri()]


@pytest.mark.parametrize("width", [360, 1400])
def test_other_results_fit_too(tmp_path: Path, browser: Browser, width: int) -> None:
    for result in (simulated_result(), hostile_result()):
        path = show(browser, tmp_path, result, width=width)
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        assert browser.evaluate(OVERFLOWING) == []
        assert browser.evaluate("document.getElementById('hostile')") is None
        assert browser.complaints == []
        assert browser.requests == [path.as_uri()]
    show(browser, tmp_path, simulated_result(), width=width)
    assert "Made-up 64-core model" in browser.evaluate(
        "document.getElementById('simulated').innerText"
    )


def test_blocks_are_stepped_through_by_keys_and_pointed_at(
    tmp_path: Path, browser: Browser
) -> None:
    result = whole_result()
    show(browser, tmp_path, result)
    told = "document.querySelector('.second .told').textContent"
    browser.evaluate("document.querySelector('.second .scroll').focus()")
    bars = result.gantts[0].bars
    for key, bar in (
        ("ArrowRight", bars[0]),
        ("ArrowRight", bars[1]),
        ("ArrowLeft", bars[0]),
        ("ArrowLeft", bars[0]),
        ("End", bars[-1]),
        ("ArrowRight", bars[-1]),
        ("Home", bars[0]),
    ):
        press(browser, key)
        assert browser.evaluate(told) == describe(bar)
    assert browser.evaluate("document.querySelectorAll('.block.chosen').length") == 1
    browser.evaluate("document.querySelector('.second').scrollIntoView()")
    at = browser.evaluate(
        "(() => { const b = document.querySelectorAll('.gantt .block')[7]"
        ".querySelector('.bar').getBoundingClientRect();"
        " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
    )
    browser.send("Input.dispatchMouseEvent", type="mouseMoved", x=at[0], y=at[1])
    assert browser.evaluate(told) == describe(bars[7])


def test_a_second_is_magnified(tmp_path: Path, browser: Browser) -> None:
    show(browser, tmp_path, whole_result())
    width = "document.querySelector('svg.gantt').getBoundingClientRect().width"
    words = (
        "Array.from(document.querySelector('svg.gantt').querySelectorAll('.block text'))"
        ".filter((text) => text.getBoundingClientRect().width > 0).length"
    )
    before, few = browser.evaluate(width), browser.evaluate(words)
    browser.evaluate("document.querySelector('[data-zoom=\"8\"]').click()")
    assert browser.evaluate(width) == pytest.approx(8 * before, rel=0.01)
    assert browser.evaluate(words) > few
    pressed = "document.querySelector('[data-zoom=\"8\"]').getAttribute('aria-pressed')"
    assert browser.evaluate(pressed) == "true"
    assert browser.evaluate("document.documentElement.scrollWidth") <= 1280


def test_systems_are_hidden_in_their_section(tmp_path: Path, browser: Browser) -> None:
    show(browser, tmp_path, whole_result())
    seen = (
        "Array.from(document.querySelectorAll('#{} [data-of=veltair]'))"
        ".filter((g) => g.getBoundingClientRect().width > 0).length"
    )
    box = "#sweeps [data-shows=veltair]"
    assert browser.evaluate(seen.format("sweeps")) == 3
    browser.evaluate(f"document.querySelector('{box}').focus()")
    browser.send("Input.dispatchKeyEvent", type="keyDown", key=" ", code="Space", text=" ")
    browser.send("Input.dispatchKeyEvent", type="keyUp", key=" ", code="Space")
    assert browser.evaluate(seen.format("sweeps")) == 0
    assert browser.evaluate(seen.format("cores")) == 3
    browser.evaluate(f"document.querySelector('{box}').click()")
    assert browser.evaluate(seen.format("sweeps")) == 3


def test_tables_are_sorted_with_the_unknown_at_the_end(tmp_path: Path, browser: Browser) -> None:
    show(browser, tmp_path, whole_result())
    values = (
        "Array.from(document.querySelectorAll('#table-capacity tbody tr'),"
        " (row) => row.cells[5].dataset.value)"
    )
    click = "document.querySelectorAll('#table-capacity th button')[5].click()"
    for backwards in (True, False):
        browser.evaluate(click)
        found = browser.evaluate(values)
        known = [float(value) for value in found if value]
        assert known == sorted(known, reverse=backwards)
        assert found[len(known) :] == [""] * (len(found) - len(known))
    assert len(known) > 20
