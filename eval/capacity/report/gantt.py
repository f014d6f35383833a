"""A second under load as a chart: which model's block was on which core, when, by which version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from veltair.eval.page.plot import colour
from veltair.eval.page.text import number_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from veltair.eval.capacity.result import Bar, Gantt

PATTERNS = 8  # that the page has, one for each model beside its colour
SHADES = 5  # that the style sheet has for versions
_SECOND_NS = 1_000_000_000
_TOP, _BOTTOM = 4, 22  # of the chart, around its rows
_TALLEST, _LEAST, _CHART = 30, 6, 420  # height of a row, and of all rows where there are many
_NAME = 14  # height of a core's name
_TICKS = 10
# From how many ms on a bar has room for words, by the magnification that it needs.
_ROOMS = ((24.0, 1), (12.0, 2), (6.0, 4), (3.0, 8))


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A second, drawn.

    Attributes:
        gantt: what is drawn.
        names: of the cores, which stay where the chart scrolls.
        bars: across in percent of the second, so that they stretch when they are magnified.
    """

    gantt: Gantt
    names: Markup
    bars: Markup


def chart(gantt: Gantt, models: Sequence[str], cores: int) -> Chart:
    """Draws a second.

    Args:
        gantt: of which.
        models: in the order of their colours and patterns.
        cores: that there are, if they were idle or not.
    """
    count = max(cores, 1, *(1 + core for bar in gantt.bars for core in bar.cores))
    row = max(min(_TALLEST, _CHART // count), _LEAST)
    body = Markup("").join([*_frame(count, row), *_all_bars(gantt.bars, models, row)])
    height = _TOP + row * count + _BOTTOM
    title = f"A second of {gantt.system}, workload {gantt.workload}, by core"
    bars = Markup('<svg class="gantt" role="img" aria-label="{}" style="height:{}px">{}</svg>')
    names = Markup('<svg class="cores" aria-hidden="true" style="height:{}px">{}</svg>')
    return Chart(
        gantt=gantt,
        names=names.format(height, Markup("").join(_names(count, row))),
        bars=bars.format(title, height, body),
    )


def describe(bar: Bar) -> str:
    """Returns all that is known of a block."""
    first, last = bar.layers
    layers = f"layer {first}" if first == last else f"layers {first} to {last}"
    several = "s" if len(bar.cores) > 1 else ""
    begin_ms, end_ms = bar.begin_ns / 1e6, bar.end_ns / 1e6
    return (
        f"{bar.model}, query {bar.query}: {layers}, version {bar.version}, "
        f"core{several} {_ranges(bar.cores)}, {begin_ms:.3f} to {end_ms:.3f} ms "
        f"({number_text(end_ms - begin_ms)} ms)"
    )


def runs(cores: Sequence[int]) -> list[tuple[int, int]]:
    """Returns neighbouring cores together: the first of each run and the one behind its last."""
    found: list[tuple[int, int]] = []
    for core in sorted(set(cores)):
        if found and found[-1][1] == core:
            found[-1] = (found[-1][0], core + 1)
        else:
            found.append((core, core + 1))
    return found


def _ranges(cores: Sequence[int]) -> str:
    return ", ".join(f"{a}" if b == a + 1 else f"{a} to {b - 1}" for a, b in runs(cores))


def _names(count: int, row: int) -> Iterator[Markup]:
    for core in range(0, count, -(-_NAME // row)):
        yield Markup('<text class="tick" text-anchor="end" x="46" y="{}">core {}</text>').format(
            _TOP + row * core + row // 2 + 4, core
        )


def _frame(count: int, row: int) -> Iterator[Markup]:
    """Lines between cores, and the time."""
    bottom = _TOP + row * count
    for core in range(count + 1):
        y = _TOP + row * core
        yield Markup('<line class="grid" x1="0" x2="100%" y1="{0}" y2="{0}"/>').format(y)
    for tick in range(_TICKS + 1):
        share = 100 * tick / _TICKS
        anchor = "start" if tick == 0 else "end" if tick == _TICKS else "middle"
        yield Markup(
            '<line class="grid" x1="{0}%" x2="{0}%" y1="{1}" y2="{2}"/>'
            '<text class="tick" x="{0}%" y="{3}" text-anchor="{4}">{5} ms</text>'
        ).format(share, _TOP, bottom, bottom + 15, anchor, 1000 * tick // _TICKS)


def _all_bars(bars: Sequence[Bar], models: Sequence[str], row: int) -> Iterator[Markup]:
    """Each block as a group of one box a run of cores; boxes cut off what doesn't fit them."""
    for bar in bars:
        begin = max(bar.begin_ns, 0)
        end = min(bar.end_ns, _SECOND_NS)
        if end <= begin:
            continue
        model = models.index(bar.model) if bar.model in models else len(models)
        boxes = [
            _box(bar, (begin, end), model, (_TOP + row * first, row * (behind - first)))
            for first, behind in runs(bar.cores)
        ]
        yield Markup('<g class="block {} v{}"><title>{}</title>{}</g>').format(
            colour(model), bar.version % SHADES, describe(bar), Markup("").join(boxes)
        )


def _box(bar: Bar, span_ns: tuple[int, int], model: int, across: tuple[int, int]) -> Markup:
    """A rectangle, its pattern, and words from the magnification on at which they have room."""
    begin, end = span_ns
    ms = (end - begin) / 1e6
    room = next((zoom for least, zoom in _ROOMS if ms >= least), None)
    top, height = across
    words = Markup("")
    if room is not None and height >= _NAME:
        words = Markup('<text class="room{}" x="3" y="{}">v{}</text>').format(
            room, height / 2 + 4, bar.version
        )
    return Markup(
        '<svg x="{:.4f}%" y="{}" width="{:.4f}%" height="{}"><rect class="bar" width="100%" '
        'height="100%"/><rect fill="url(#pattern{})" width="100%" height="100%"/>{}</svg>'
    ).format(
        100 * begin / _SECOND_NS,
        top,
        100 * (end - begin) / _SECOND_NS,
        height,
        model % PATTERNS,
        words,
    )
