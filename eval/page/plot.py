"""Small plots as SVG that a page can carry by the hundred and colour by its own style.

Differs from matplotlib, which draws the project's other figures: a report has some figures a layer,
follows the reader's light or dark theme by the page's style sheet, and needs no extra installed.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Point = tuple[float, float]

COLOURS = 8  # that the style sheet has
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 20, 10, 40
_AROUND = 0.4  # powers of 2 beyond the outermost values, so that no mark lies on an axis
_NICE = (1, 2, 2.5, 5, 10)
_LETTER, _LONGEST = 6.2, 20  # width of a letter of a tick; letters of a row's name
_THICK = 0.32  # of a row, above and below its middle


def colour(index: int) -> str:
    """The style of the thing of that number, of those that a figure tells apart by colour."""
    return f"c{index % COLOURS}"


def _turned(corners: Sequence[Point], degrees: float) -> tuple[Point, ...]:
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return tuple((x * cos - y * sin, x * sin + y * cos) for x, y in corners)


_SQUARE = ((-0.8, -0.8), (0.8, -0.8), (0.8, 0.8), (-0.8, 0.8))
_TRIANGLE = ((0.0, -1.0), (0.95, 0.75), (-0.95, 0.75))
_PLUS = tuple(
    point
    for turn in (0, 90, 180, 270)
    for point in _turned(((-0.35, -1.0), (0.35, -1.0), (0.35, -0.35)), turn)
)
_STAR = tuple(
    point
    for turn in range(0, 360, 72)
    for point in _turned(((0.0, -1.1), _turned(((0.0, -0.45),), 36)[0]), turn)
)
# By name: corners in units of the radius, so that marks differ by more than their colour.
SHAPES: dict[str, tuple[Point, ...]] = {
    "circle": (),
    "square": _SQUARE,
    "triangle": _TRIANGLE,
    "diamond": _turned(_SQUARE, 45),
    "plus": _PLUS,
    "wedge": _turned(_TRIANGLE, 180),
    "cross": _turned(_PLUS, 45),
    "star": _STAR,
}


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
        lines: whether ticks are drawn across the figure.
    """

    label: str
    low: float
    high: float
    ticks: tuple[float, ...]
    text: Callable[[float], str]
    log: bool = False
    lines: bool = True

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
    # Not by a tiny number: where OpenVINO ran before, such count as zeros.
    if most - least <= 1e-12 * abs(most):
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


def rows(names: Sequence[str], *, lines: bool = False) -> Axis:
    """A vertical axis of names, the first at the top at 0, the next at 1; long ones are cut."""
    short = [n if len(n) <= _LONGEST else f"{n[: _LONGEST - 1]}\u2026" for n in names]
    return Axis(
        label="",
        low=len(names) - 0.5,
        high=-0.5,
        ticks=tuple(float(n) for n in range(len(names))),
        text=lambda row: short[int(row)],
        lines=lines,
    )


@dataclass(kw_only=True)
class Plot:
    """A figure under construction; `svg` finishes it.

    Attributes:
        title: what it shows, for those who can't see it.
        x: the horizontal axis.
        y: the vertical one.
        width: in the units of the style sheet's text, as those below.
        height: with the axes' words.
        left: room on the left of the vertical axis, for the text of its ticks.
        right: room behind the horizontal axis.
    """

    title: str
    x: Axis
    y: Axis
    width: int = 360
    height: int = 230
    left: float = _LEFT
    right: float = _RIGHT
    _marks: list[Markup] = field(default_factory=list)

    def place(self, point: Point) -> Point:
        """Where a point of the axes is drawn."""
        wide, high = self.width - self.left - self.right, self.height - _TOP - _BOTTOM
        return self.left + wide * self.x.part(point[0]), _TOP + high * (1 - self.y.part(point[1]))

    def line(self, points: Sequence[Point], style: str) -> None:
        """Joins points in order."""
        path = "L".join("{:.1f} {:.1f}".format(*self.place(point)) for point in points)
        self._marks.append(Markup('<path class="line {}" d="M{}"/>').format(style, path))

    def dots(self, points: Sequence[Point], style: str) -> None:
        """Many points without words, in one element."""
        path = "".join("M{:.1f} {:.1f}h0".format(*self.place(point)) for point in points)
        if path:
            self._marks.append(Markup('<path class="dots {}" d="{}"/>').format(style, path))

    def mark(
        self, point: Point, style: str, text: str, radius: float = 4.5, shape: str = "circle"
    ) -> None:
        """One point that says something when it is pointed at."""
        x, y = self.place(point)
        self._marks.append(drawn_shape(shape, (x, y), radius, style, text))

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

    def across(self, row: float, value: float, style: str, text: str) -> None:
        """A bar of a row, from the left of the figure to `value`."""
        x, y = self.place((self.x.low, row - _THICK))
        end, bottom = self.place((value, row + _THICK))
        self._marks.append(
            Markup(
                '<rect class="bar {}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}">'
                "<title>{}</title></rect>"
            ).format(style, x, y, max(end - x, 1), bottom - y, text)
        )

    def whisker(self, row: float, low: float, high: float) -> None:
        """From where to where a row's value lies."""
        (x, y), (end, _) = self.place((low, row)), self.place((high, row))
        path = f"M{x:.1f} {y:.1f}H{end:.1f}M{x:.1f} {y - 4:.1f}v8M{end:.1f} {y - 4:.1f}v8"
        self._marks.append(Markup('<path class="whisker" d="{}"/>').format(path))

    def note(self, row: float, value: float, style: str, text: str) -> None:
        """Words in a row, on the right of `value`."""
        x, y = self.place((value, row))
        self._marks.append(_text(x + 6, y + 4, "start", text, f"note {style}"))

    def limit(self, *, x: float | None = None, y: float | None = None) -> None:
        """A line through the whole figure at a value that matters, of one axis."""
        begin = self.place((self.x.low if x is None else x, self.y.low if y is None else y))
        end = self.place((self.x.high if x is None else x, self.y.high if y is None else y))
        path = "M{:.1f} {:.1f}L{:.1f} {:.1f}".format(*begin, *end)
        self._marks.append(Markup('<path class="limit" d="{}"/>').format(path))

    @contextlib.contextmanager
    def group(self, name: str) -> Iterator[None]:
        """What is drawn within the block belongs to `name`, for the page's script."""
        before, self._marks = self._marks, []
        yield
        body = Markup("").join(self._marks)
        self._marks = [*before, Markup('<g data-of="{}">{}</g>').format(name, body)]

    def svg(self) -> Markup:
        """Returns the finished figure."""
        body = Markup("").join([*self._grid(), *self._marks])
        return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
            self.width, self.height, self.title, body
        )

    def _grid(self) -> list[Markup]:
        left, right, bottom = self.left, self.width - self.right, self.height - _BOTTOM
        parts = []
        for tick in self.y.ticks:
            _, y = self.place((self.x.low, tick))
            if self.y.lines:
                parts.append(
                    Markup('<path class="grid" d="M{:.1f} {:.1f}H{}"/>').format(left, y, right)
                )
            parts.append(_text(left - 6, y + 4, "end", self.y.text(tick)))
        for tick in self.x.ticks:
            x, _ = self.place((tick, self.y.low))
            parts.append(Markup('<path class="grid" d="M{:.1f} {}V{}"/>').format(x, _TOP, bottom))
            parts.append(_text(x, bottom + 15, "middle", self.x.text(tick)))
        parts.append(_text((left + right) / 2, self.height - 6, "middle", self.x.label, "label"))
        turned = Markup('<text class="label" text-anchor="middle" transform="{}">{}</text>').format(
            f"translate(11 {(_TOP + bottom) / 2}) rotate(-90)", self.y.label
        )
        return [*parts, turned]


def drawn_shape(shape: str, at: Point, radius: float, style: str, text: str = "") -> Markup:
    """A mark of one of `SHAPES` around a place of a drawing, which says `text`."""
    says = Markup("<title>{}</title>").format(text) if text else ""
    if shape == "circle":
        return Markup('<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="{}">{}</circle>').format(
            style, *at, radius, says
        )
    # Corners reach a little further than a circle of the same area would.
    corners = ((at[0] + 1.15 * radius * x, at[1] + 1.15 * radius * y) for x, y in SHAPES[shape])
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in corners)
    return Markup('<path class="shape {}" d="M{}Z">{}</path>').format(style, path, says)


def names_width(names: Sequence[str]) -> float:
    """Room for the names of `rows` on the left of a figure."""
    return 12 + _LETTER * max((min(len(name), _LONGEST) for name in names), default=0)


def _text(x: float, y: float, anchor: str, text: str, style: str = "tick") -> Markup:
    return Markup('<text class="{}" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(
        style, x, y, anchor, escape(text)
    )
