"""The policies' points as a page: satisfied throughput by load, then every figure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from veltair.eval.latency_figures import Figures, medians

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from veltair.eval.policies import Point

FLAT_TOP = 0.9  # of the peak, kept at the highest load
_HEADING = (
    "| policy | load | model | queries | offered/s | satisfied/s | satisfied % | mean ms | p50 ms "
    "| p95 ms | p99 ms | refused | failed |"
)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One policy at one load, over all rounds.

    Attributes:
        policy: of scheduling.
        load: share of the capacity.
        figures: by model, and of `all`: the medians.
        satisfied_qps: of all, the lowest and the highest.
    """

    policy: str
    load: float
    figures: dict[str, Figures]
    satisfied_qps: tuple[float, float]


def summaries(points: Sequence[Point]) -> list[Summary]:
    """Returns one for each policy and load, in the order of their first points."""
    rounds: dict[tuple[str, float], list[Point]] = {}
    for point in points:
        rounds.setdefault((point.policy, point.load), []).append(point)
    found = []
    for (policy, load), same in rounds.items():
        satisfied = [point.figures["all"].satisfied_qps for point in same]
        figures = {
            name: medians([point.figures[name] for point in same]) for name in same[0].figures
        }
        summary = Summary(
            policy=policy,
            load=load,
            figures=figures,
            satisfied_qps=(min(satisfied), max(satisfied)),
        )
        found.append(summary)
    return found


def markdown(result: dict[str, Any], points: Sequence[Point]) -> str:
    """Returns the page.

    Args:
        result: as its JSON file has it.
        points: of all rounds.
    """
    plan = result["plan"]
    lines = [
        "# Scheduling policies on a real server",
        "",
        f"Made by `{result['command']}` at revision {result['revision']} on "
        f"{result['machine']['cores']} cores ({result['machine']['cpu']}), load average before "
        f"{result['load_average_before']:.2f}. Measured in {plan['rounds']} rounds, one after the "
        f"other, of {plan['queries']} Poisson arrivals a point (seeds from {plan['seed']}), the "
        "pair's models equally often, the same arrivals for every policy of a round; figures are "
        f"medians over the rounds. {plan['workers']} workers, {plan['slots']} slots a model. "
        "Latency counts from the planned arrival; a query is satisfied if it is served within its "
        "model's target; the share is of all that arrived, refused ones too.",
        "",
        "A load of 1 keeps all cores busy at the profiles' least processor time. `+admission`: the "
        "server itself refused what it predicted to be late; policies without it refuse only what "
        "finds no slot, except for those that refuse by themselves.",
    ]
    for pair, facts in result["pairs"].items():
        of_pair = [point for point in points if point.pair == pair]
        measured = summaries(of_pair)
        targets = ", ".join(f"{name} {ns / 1e6:g} ms" for name, ns in facts["qos_ns"].items())
        lines += [
            "",
            f"## {pair}",
            "",
            f"Capacity {facts['capacity_qps']:.1f} queries/s; targets: {targets}; alone, by cores: "
            + "; ".join(_times(name, rows) for name, rows in facts["model_ns"].items())
            + ". Other processes had "
            f"{max(facts['others_while_profiling'].values()):.1%} of the processors meanwhile.",
            "",
            *(f"- `{policy}` is not served: {why}" for policy, why in facts["not_served"].items()),
            *(f"- `{policy}` is incomplete: {why}" for policy, why in facts["failed"].items()),
            *_tops(measured),
            "",
            *_disturbances(of_pair),
            "",
            _HEADING,
            "|---" * (_HEADING.count("|") - 1) + "|",
            *(_row(each, name) for each in measured for name in each.figures),
        ]
    return "\n".join(lines) + "\n"


def flat_top(satisfied_qps: Mapping[float, float]) -> tuple[float, float] | None:
    """Returns the peak of satisfied queries a second by load, and its part at the highest load.

    None where nothing was satisfied.
    """
    peak = max(satisfied_qps.values(), default=0.0)
    return (peak, satisfied_qps[max(satisfied_qps)] / peak) if peak > 0 else None


def _tops(measured: Sequence[Summary]) -> list[str]:
    loads = sorted({each.load for each in measured})
    lines = [
        "Satisfied queries a second by load, with the lowest and the highest of a round; flat: the "
        f"highest load keeps at least {FLAT_TOP:.0%} of the peak, by the medians.",
        "",
        "| policy | " + " | ".join(f"{load:g}" for load in loads) + " | peak kept | flat |",
        "|---" * (len(loads) + 3) + "|",
    ]
    for policy in dict.fromkeys(each.policy for each in measured):
        of_policy = {each.load: each for each in measured if each.policy == policy}
        median = {load: each.figures["all"].satisfied_qps for load, each in of_policy.items()}
        cells = [
            f"{median[load]:.1f} ({of_policy[load].satisfied_qps[0]:.1f} to "
            f"{of_policy[load].satisfied_qps[1]:.1f})"
            if load in of_policy
            else ""
            for load in loads
        ]
        top = flat_top(median) if len(of_policy) > 1 else None
        verdict = ["", ""]
        if top is not None:
            verdict = [f"{top[1]:.0%}", "yes" if top[1] >= FLAT_TOP else "no"]
        lines.append(f"| {policy} | " + " | ".join(cells + verdict) + " |")
    return lines


def _disturbances(points: Sequence[Point]) -> list[str]:
    if not points:
        return []
    others = max(point.disturbance.others for point in points)
    stolen = max(point.disturbance.steal for point in points)
    driver = max(point.disturbance.driver for point in points)
    errors = dict.fromkeys(error for point in points for error in point.errors)
    return [
        f"Beside the server, of all processors and at most in any point: other processes "
        f"{others:.1%}, the host {stolen:.1%}, the driver {driver:.1%}.",
        *(f"- a query failed: {error}" for error in errors),
    ]


def _times(name: str, rows: Sequence[Sequence[int]]) -> str:
    return f"{name} " + ", ".join(f"{row[0] / 1e6:.1f}" for row in rows) + " ms"


def _row(measured: Summary, name: str) -> str:
    found = measured.figures[name]
    latencies = (found.mean_ms, found.p50_ms, found.p95_ms, found.p99_ms)
    cells = (
        measured.policy,
        f"{measured.load:g}",
        name,
        f"{found.queries}",
        f"{found.offered_qps:.1f}",
        f"{found.satisfied_qps:.1f}",
        f"{found.satisfied_share * 100:.1f}",
        *("-" if math.isnan(ms) else f"{ms:.1f}" for ms in latencies),
        f"{found.refused}",
        f"{found.failed}",
    )
    return "| " + " | ".join(cells) + " |"
