"""The Gantt chart of the page on scheduling: the same queries under several policies, simulated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from veltair.eval.capacity.report.gantt import runs
from veltair.runtime.simulate.run import REFUSED, Simulated, simulate
from veltair.runtime.simulate.scenario import NS_PER_MS, Scenario, parse_scenario

CORES = 64
QUERIES = 8
POLICIES = {
    "model": "whole models, first come, first served",
    "layer": "a decision at each layer",
    "veltair-as": "blocks by the dynamic threshold",
    "veltair-deadline": "the same, earliest deadline first",
}
# One network with two targets: what is drawn is what the policies make of that.
MODELS = (("strict", 15.0), ("relaxed", 40.0))
_WIDTH, _LEFT, _RIGHT, _TOP, _HEIGHT, _GAP = 760, 34, 8, 22, 120, 16
_TICK_MS = 5


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A part of a block on some neighbouring cores.

    Attributes:
        query: number of the query.
        layers: first and last.
        first_core: the lowest of its cores.
        cores: how many.
        begin_ns: from the simulation's begin.
        end_ns: the same.
    """

    query: int
    layers: tuple[int, int]
    first_core: int
    cores: int
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, kw_only=True)
class Times:
    """What the figure spans: the first arrival to the last end."""

    first_ns: int
    last_ns: int

    def x(self, time_ns: int) -> float:
        """Where a time is."""
        part = (time_ns - self.first_ns) / (self.last_ns - self.first_ns)
        return _LEFT + part * (_WIDTH - _LEFT - _RIGHT)


def scenario(policy: str) -> Scenario:
    """Returns what is drawn: a burst of queries at a machine that can just serve them."""
    models = [
        {
            "name": name,
            "profile": "veltair_3990x_resnet50.csv",
            "qos_ms": qos_ms,
            "core_step": 2,
        }
        for name, qos_ms in MODELS
    ]
    arrivals = {"process": "poisson", "rate_qps": 500.0, "queries": QUERIES, "seed": 1}
    table: dict[str, Any] = {
        "machine": {"cores": CORES},
        "policy": {"scheduling": policy},
        "model": models,
        "arrivals": arrivals,
    }
    return parse_scenario(table, source="gantt")


def bars(found: Simulated, cores: int = CORES) -> list[Bar]:
    """Lays the parts of blocks on cores, as low as they fit, each query where it was before.

    The simulator counts cores and doesn't name them, since nothing in it depends on which they are.
    """
    free = set(range(cores))
    held: dict[int, tuple[int, list[int]]] = {}  # query to the end of its part, and its cores
    laid = []
    order = sorted(found.segments.tolist(), key=lambda segment: (segment[6], segment[7]))
    for query, _, begin, end, _, count, begin_ns, end_ns in order:
        ended = [each for each, (until_ns, _) in held.items() if until_ns <= begin_ns]
        for other in ended:
            if other != query:
                free.update(held.pop(other)[1])
        _, mine = held.pop(query, (0, []))
        free.update(mine)
        taken = (mine + sorted(free.difference(mine)))[:count]
        free.difference_update(taken)
        held[query] = end_ns, taken
        for first, behind in runs(taken):
            laid.append(
                Bar(
                    query=query,
                    layers=(begin, end - 1),
                    first_core=first,
                    cores=behind - first,
                    begin_ns=begin_ns,
                    end_ns=end_ns,
                )
            )
    return laid


def gantt_figure() -> str:
    """Simulates and draws: a panel a policy, cores upwards, time to the right."""
    simulated = {policy: simulate(scenario(policy), trace=True) for policy in POLICIES}
    first_ns = min(int(found.arrivals.time_ns[0]) for found in simulated.values())
    last_ns = max(int(found.end_ns.max()) for found in simulated.values())
    times = Times(first_ns=first_ns, last_ns=last_ns)
    panels = [
        _panel(index, policy, found, times)
        for index, (policy, found) in enumerate(simulated.items())
    ]
    height = len(panels) * (_TOP + _HEIGHT + _GAP) + 20
    axis = _axis(times, height)
    drawing = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}</svg>').format(
        _WIDTH, height, "Cores by query over time, a panel a policy", Markup().join(panels), axis
    )
    return f'<div class="gantt">{drawing}</div>'


def _panel(index: int, policy: str, found: Simulated, times: Times) -> Markup:
    top = index * (_TOP + _HEIGHT + _GAP) + _TOP
    late = sum(_is_late(found, query) for query in range(QUERIES))
    parts = [
        _text(_LEFT, top - 7, f"{policy}: {POLICIES[policy]}; {_outcome(late)}", "title"),
        Markup('<rect class="ground" x="{}" y="{}" width="{}" height="{}"/>').format(
            _LEFT, top, _WIDTH - _LEFT - _RIGHT, _HEIGHT
        ),
        _text(_LEFT - 4, top + 10, str(CORES), "tick end"),
        _text(_LEFT - 4, top + _HEIGHT, "0", "tick end"),
    ]
    parts += [_bar(bar, top, found, times) for bar in bars(found)]
    return Markup().join(parts)


def _outcome(late: int) -> str:
    return f"{late} of {QUERIES} late" if late else f"all {QUERIES} in time"


def _is_late(found: Simulated, query: int) -> bool:
    latency_ns = int(found.end_ns[query] - found.arrivals.time_ns[query])
    target_ns = int(found.qos_ns[found.arrivals.model[query]])
    return int(found.outcome[query]) == REFUSED or latency_ns > target_ns


def _bar(bar: Bar, top: int, found: Simulated, times: Times) -> Markup:
    left, right = times.x(bar.begin_ns), times.x(bar.end_ns)
    scale = _HEIGHT / CORES
    model, qos_ms = MODELS[found.arrivals.model[bar.query]]
    says = (
        f"query {bar.query + 1}, {model} ({qos_ms:g} ms): layers {bar.layers[0]} to "
        f"{bar.layers[1]} on {bar.cores} cores, "
        f"{(bar.end_ns - bar.begin_ns) / NS_PER_MS:.2f} ms"
    )
    late = " late" if _is_late(found, bar.query) else ""
    return Markup(
        '<rect class="q{}{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}">'
        "<title>{}</title></rect>"
    ).format(
        bar.query,
        late,
        left,
        top + _HEIGHT - (bar.first_core + bar.cores) * scale,
        max(right - left, 0.3),
        bar.cores * scale,
        says,
    )


def _axis(times: Times, height: int) -> Markup:
    spanned_ns = times.last_ns - times.first_ns
    marks = [
        _text(times.x(times.first_ns + ms * NS_PER_MS), height - 18, str(ms), "tick")
        for ms in range(0, spanned_ns // NS_PER_MS + 1, _TICK_MS)
    ]
    return Markup().join((*marks, _text(_WIDTH - _RIGHT, height - 4, "ms", "tick end")))


def _text(x: float, y: float, text: str, style: str) -> Markup:
    return Markup('<text class="{}" x="{:.1f}" y="{:.1f}">{}</text>').format(
        style, x, y, escape(text)
    )
