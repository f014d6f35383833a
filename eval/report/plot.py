"""Small plots as SVG that a page can carry by the hundred and colour by its own style.

Differs from matplotlib, which draws the project's other figures: a report has some figures a layer,
follows the reader's light or dark theme by the page's style sheet, and needs no extra installed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Point = tuple[float, float]

_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 20, 10, 40
_AROUND = 0.4  # powers of 2 beyond the outermost values, so that no mark lies on an axis
_NICE = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis: what it says, and where it begins and ends.

    Attributes:
        label: with its unit.
        low: least value; above 0 where the axis is logarithmic.
        high: above `low`.
        ticks: values that get a mark.
        text: of a tick.
        log: whether distances are ratios.
    """

    label: str
    low: float
    high: float
    ticks: tuple[float, ...]
    text: Callable[[float], str]
    log: bool = False

    def part(self, value: float) -> float:
        """Where a value lies: 0 at the low end, 1 at the high one."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def linear(
    label: str,
    values: Sequence[float],
    *,
    low: float | None = None,
    text: Callable[[float], str] = "{:g}".format,
) -> Axis:
    """An axis over all values, and `low`, with about five round ticks."""
    least = min(values) if low is None else low
    most = max(*values, least)
    if most - least < 1e-12 * max(abs(most), 1e-300):
        most = least + (abs(least) or 1.0)
    rough = (most - least) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(nice * power for nice in _NICE if nice * power >= rough * (1 - 1e-9))
    first, last = math.floor(least / step + 1e-9), math.ceil(most / step - 1e-9)
    ticks = tuple(round(step * i, 12) for i in range(first, last + 1))
    return Axis(label=label, low=ticks[0], high=ticks[-1], ticks=ticks, text=text)


def whole(label: str, last: int, *, around: float) -> Axis:
    """An axis of whole numbers from 1 to `last`, and `around`, above 0, on either side."""
    step = max(1, math.ceil(last / 12))
    ticks = tuple(float(n) for n in range(1, last + 1, step))
    return Axis(label=label, low=1 - around, high=last + around, ticks=ticks, text="{:g}".format)


def doubling(
    label: str, values: Sequence[float], *, text: Callable[[float], str] = "{:g}".format
) -> Axis:
    """A logarithmic axis over all values, all above 0, its ticks powers of 2."""
    first = math.floor(math.log2(min(values)))
    last = max(math.ceil(math.log2(max(values))), first + 1)
    step = max(1, math.ceil((last - first) / 5))
    ticks = tuple(2.0**power for power in range(first, last + 1, step))
    low, high = 2.0 ** (first - _AROUND), 2.0 ** (last + _AROUND)
    return Axis(label=label, low=low, high=high, ticks=ticks, text=text, log=True)


@dataclass(kw_only=True)
class Plot:
    """A figure under construction; `svg` finishes it.

    Attributes:
        title: what it shows, for those who can't see it.
        x: the horizontal axis.
        y: the vertical one.
        width: in the units of the style sheet's text, as `height`.
    """

    title: str
    x: Axis
    y: Axis
    width: int = 360
    height: int = 230
    _marks: list[Markup] = field(default_factory=list)

    def place(self, point: Point) -> Point:
        """Where a point of the axes is drawn."""
        wide, high = self.width - _LEFT - _RIGHT, self.height - _TOP - _BOTTOM
        return _LEFT + wide * self.x.part(point[0]), _TOP + high * (1 - self.y.part(point[1]))

    def line(self, points: Sequence[Point], style: str) -> None:
        """Joins points in order."""
        path = "L".join("{:.1f} {:.1f}".format(*self.place(point)) for point in points)
        self._marks.append(Markup('<path class="line {}" d="M{}"/>').format(style, path))

    def dots(self, points: Sequence[Point], style: str) -> None:
        """Many points without words, in one element."""
        path = "".join("M{:.1f} {:.1f}h0".format(*self.place(point)) for point in points)
        if path:
            self._marks.append(Markup('<path class="dots {}" d="{}"/>').format(style, path))

    def mark(self, point: Point, style: str, text: str, radius: float = 4.5) -> None:
        """One point that says something when it is pointed at."""
        x, y = self.place(point)
        self._marks.append(
            Markup(
                '<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="{}"><title>{}</title></circle>'
            ).format(style, x, y, radius, text)
        )

    def bar(self, left: float, right: float, value: float, style: str, text: str) -> None:
        """A bar from the bottom of the figure up to `value`."""
        x, y = self.place((left, value))
        end, bottom = self.place((right, self.y.low))
        self._marks.append(
            Markup(
                '<rect class="bar {}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}">'
                "<title>{}</title></rect>"
            ).format(style, x, y, max(end - x, 1), max(bottom - y, 0), text)
        )

    def svg(self) -> Markup:
        """Returns the finished figure."""
        body = Markup("").join([*self._grid(), *self._marks])
        return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
            self.width, self.height, self.title, body
        )

    def _grid(self) -> list[Markup]:
        right, bottom = self.width - _RIGHT, self.height - _BOTTOM
        parts = []
        for tick in self.y.ticks:
            _, y = self.place((self.x.low, tick))
            parts.append(Markup('<path class="grid" d="M{} {:.1f}H{}"/>').format(_LEFT, y, right))
            parts.append(_text(_LEFT - 6, y + 4, "end", self.y.text(tick)))
        for tick in self.x.ticks:
            x, _ = self.place((tick, self.y.low))
            parts.append(Markup('<path class="grid" d="M{:.1f} {}V{}"/>').format(x, _TOP, bottom))
            parts.append(_text(x, bottom + 15, "middle", self.x.text(tick)))
        parts.append(_text((_LEFT + right) / 2, self.height - 6, "middle", self.x.label, "label"))
        turned = Markup('<text class="label" text-anchor="middle" transform="{}">{}</text>').format(
            f"translate(11 {(_TOP + bottom) / 2}) rotate(-90)", self.y.label
        )
        return [*parts, turned]


def _text(x: float, y: float, anchor: str, text: str, style: str = "tick") -> Markup:
    return Markup('<text class="{}" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(
        style, x, y, anchor, escape(text)
    )
