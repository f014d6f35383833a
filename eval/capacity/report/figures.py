"""The figures about an evaluation: VELTAIR's Fig. 12 to 14 and the load sweeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from veltair.eval.capacity.report.findings import UNDER_LOAD, Findings
from veltair.eval.capacity.result import MEASURED
from veltair.eval.page.plot import (
    SHAPES,
    Plot,
    colour,
    doubling,
    drawn_shape,
    linear,
    names_width,
    rows,
)
from veltair.eval.page.text import number_text, share_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from veltair.eval.capacity.result import Trial

_ROW, _TALL_ROW, _AROUND = 26, 40, 50  # height of a row, and of a figure around its rows
_WIDE = 440  # width of a figure
_LABEL = 20  # of the vertical axis, beside the numbers there
_WORDS, _MEAN = 76, 44  # room on the right of rows: for a capacity, for a ratio
_SHAPES = tuple(SHAPES)
_AT_WORDS = {"at_capacity": "at capacity", "at_half": "at half of it"}
_ABOVE, _BELOW = (-0.4, -0.12), (0.12, 0.4)  # in a row: where marks at capacity lie, and at half
_BAR_STYLES = {"peer": "c1 hatched", "null": "c7"}


@dataclass(frozen=True, kw_only=True)
class Series:
    """How one of several things is told from the others: colour, shape and dashes.

    Attributes:
        name: of the thing.
        style: colour and dashes.
        shape: of its marks.
    """

    name: str
    style: str
    shape: str

    def key(self) -> Markup:
        """A piece of its line with a mark, for a legend."""
        mark = drawn_shape(self.shape, (15.0, 7.0), 4.5, self.style)
        line = Markup('<path class="line {}" d="M1 7H29"/>').format(self.style)
        return Markup('<svg class="key" viewBox="0 0 30 14" aria-hidden="true">{}{}</svg>').format(
            line, mark
        )


def plain_key(style: str) -> Markup:
    """A mark of no particular thing, for a legend."""
    mark = drawn_shape("circle", (15.0, 7.0), 4.5, style)
    return Markup('<svg class="key" viewBox="0 0 30 14" aria-hidden="true">{}</svg>').format(mark)


def series(names: Sequence[str]) -> dict[str, Series]:
    """Gives each name a look that no other of the first 32 has."""
    found = {}
    for i, name in enumerate(names):
        turn = i // len(_SHAPES)
        shape = _SHAPES[(i + turn) % len(_SHAPES)]
        found[name] = Series(name=name, style=f"{colour(i)} d{turn % 4}", shape=shape)
    return found


def _bar_style(found: Findings, system: str) -> str:
    """Rivals differ from ours by colour and pattern."""
    kind = "peer" if system in found.rivals else found.systems[system].kind
    return _BAR_STYLES.get(kind, "c0")


def capacities(found: Findings, workload: str) -> Markup:
    """Queries a second by system, bars with spread; a state that has none in words (Fig. 12)."""
    all_qps = [found.qps(workload, system) for system in found.compared]
    most = max((qps.most for qps in all_qps if qps), default=1.0)
    plot = Plot(
        title=f"Capacity by system, workload {workload}",
        x=linear("queries a second", [most], low=0),
        y=rows(found.compared),
        width=_WIDE,
        height=_AROUND + _ROW * len(found.compared),
        left=names_width(found.compared),
        right=_WORDS,
    )
    for row, (system, qps) in enumerate(zip(found.compared, all_qps, strict=True)):
        state = found.state(workload, system)
        if qps is None:
            plot.note(row, 0, "state", state)
            continue
        span = f"{number_text(qps.least)} to {number_text(qps.most)}"
        text = f"{system}: {number_text(qps.median)} queries/s, {span} in {_times(qps.runs)}"
        style = "" if state == "found" else "noisy"
        plot.across(row, qps.median, f"{_bar_style(found, system)} {style}", text)
        plot.whisker(row, qps.least, qps.most)
        said = number_text(qps.median)
        plot.note(row, qps.most, style, f"{said} {state}" if style else said)
    return plot.svg()


def over_solo(found: Findings, workload: str) -> Markup | None:
    """Mean latency over latency alone, by system, model and load (Fig. 13)."""
    models = [
        m.name for each in found.result.workloads if each.name == workload for m in each.models
    ]
    looks = series(found.models)
    values = {
        (system, purpose, model): value
        for system in found.compared
        for purpose in _AT_WORDS
        for model in models
        if (value := found.over_solo(workload, system, purpose, model)) is not None and value > 0
    }
    if not values:
        return None
    plot = Plot(
        title=f"Mean latency over latency alone, workload {workload}",
        x=doubling("times the latency alone", [1.0, *values.values()]),
        y=rows(found.compared, lines=True),
        width=_WIDE,
        height=_AROUND + _TALL_ROW * len(found.compared),
        left=names_width(found.compared),
        right=_MEAN,
    )
    plot.limit(x=1)
    for row, system in enumerate(found.compared):
        of_system = {key: value for key, value in values.items() if key[0] == system}
        for (_, purpose, model), value in of_system.items():
            look = looks[model]
            text = f"{system}, {model} {_AT_WORDS[purpose]}: {value:.2f} times its latency alone"
            hollow = "hollow" if purpose == "at_half" else ""
            first, last = _BELOW if hollow else _ABOVE
            part = (models.index(model) + 0.5) / len(models)
            at = (value, row + first + part * (last - first))
            plot.mark(at, f"{look.style} {hollow}", text, 4.5, look.shape)
        mean = found.mean_over_solo(workload, system, "at_capacity")
        if mean is not None:
            plot.note(row, plot.x.high, "", f"{mean:.2f}")
        if not of_system:
            state = found.state(workload, system)
            words = "no latency alone" if state in MEASURED else state
            plot.note(row, 1, "state", words)
    return plot.svg()


def core_costs(found: Findings, workload: str) -> Markup | None:
    """Core time that a query takes, by load and system (Fig. 14a)."""
    points: dict[str, list[tuple[float, float, Trial]]] = {}
    for system in found.compared:
        for purpose in UNDER_LOAD:
            for trial in found.trials(workload, system, purpose):
                load, cost = found.load(trial), found.core_ms(trial)
                if load is not None and cost is not None:
                    points.setdefault(system, []).append((load, cost, trial))
    if not points:
        return None
    every = [point for line in points.values() for point in line]
    costs = linear("core ms a query", [cost for _, cost, _ in every], low=0)
    plot = Plot(
        title=f"Core time of a query by load, workload {workload}",
        x=linear("offered over the system's own capacity", [load for load, *_ in every], low=0),
        y=costs,
        width=_WIDE,
        height=300,
        left=_LABEL + names_width([costs.text(tick) for tick in costs.ticks]),
    )
    looks = series(found.compared)
    for system, line in points.items():
        texts = [_cost_text(found, cost, trial) for _, cost, trial in line]
        _draw(plot, looks[system], [(load, cost) for load, cost, _ in line], texts)
    return plot.svg()


def sweeps(found: Findings, workload: str) -> Markup | None:
    """Share of queries in time, of the model that has the least, by rate and system."""
    points: dict[str, list[tuple[float, float, Trial]]] = {}
    for system in found.compared:
        for trial in found.trials(workload, system, "sweep"):
            worst = found.worst(trial)
            if worst is not None:
                points.setdefault(system, []).append((trial.rate_qps, 100 * worst[1], trial))
    if not points:
        return None
    rates = [rate for line in points.values() for rate, *_ in line]
    plot = Plot(
        title=f"Queries in time by offered rate, workload {workload}",
        x=linear("offered, queries a second", rates, low=0),
        y=linear("in time, worst model, %", [100], low=0),
        width=_WIDE,
        height=300,
    )
    plot.limit(y=found.result.percentile)
    looks = series(found.compared)
    for system, line in points.items():
        texts = [_sweep_text(found, trial) for *_, trial in line]
        _draw(plot, looks[system], [(rate, share) for rate, share, _ in line], texts)
    return plot.svg()


def _times(runs: int) -> str:
    return f"{runs} repetition{'' if runs == 1 else 's'}"


def _draw(
    plot: Plot, look: Series, points: Sequence[tuple[float, float]], texts: Sequence[str]
) -> None:
    """One system's line with its marks, which the legend can hide."""
    with plot.group(look.name):
        plot.line(sorted(points), look.style)
        for point, text in zip(points, texts, strict=True):
            plot.mark(point, look.style, text, 3.5, look.shape)


def _cost_text(found: Findings, cost: float, trial: Trial) -> str:
    over = found.over_layer_wise(trial)
    return (
        f"{trial.system} at {number_text(trial.rate_qps)} queries/s: {number_text(cost)} core ms "
        f"a query, {share_text(trial.core_usage or 0)} of all cores"
        + ("" if over is None else f", {100 * over:+.1f} % against layer-wise")
    )


def _sweep_text(found: Findings, trial: Trial) -> str:
    worst, load = found.worst(trial), found.load(trial)
    assert worst is not None
    of = "" if load is None else f" ({load:.2f} of its capacity)"
    return (
        f"{trial.system} at {number_text(trial.rate_qps)} queries/s{of}: {share_text(worst[1])} "
        f"of {worst[0]} in time"
    )
