"""What kernels that are somewhat slower or faster change, as tables and in sentences."""

from __future__ import annotations

import statistics
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from veltair.eval.capacity.simulated_study import BASELINE, BY_TIME_LEFT, FULL
from veltair.eval.page.markdown import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Row = Mapping[str, Any]

_WHOLE, _BEST = "whole_qps", "best_qps"
# Policy, and how it and the baseline plan.
_COMPARED = (
    (FULL, _WHOLE, "both planned on the whole target, as in the paper"),
    (FULL, _BEST, "both with their best slack"),
    (BY_TIME_LEFT, _WHOLE, f"`{BASELINE}` planned on the whole target"),
    (BY_TIME_LEFT, _BEST, f"`{BASELINE}` with its best slack"),
)


def speeds(rows: Sequence[Row], aims: Mapping[str, float]) -> list[str]:
    """Returns the gains over the speeds, whether they reach the aims, and the rates.

    Args:
        rows: each what one policy keeps of one workload at one speed, as `AtSpeed` has it.
        aims: gain over the baseline, by workload.
    """
    names = list(dict.fromkeys(row["workload"] for row in rows))
    computing = sorted({row["computing"] for row in rows})
    qps = {(row["workload"], row["policy"], row["computing"]): row for row in rows}
    return [
        "All that was measured of these artifacts is how long each version of a layer takes alone "
        "on one core, and a host gives its guests now more, now less. The same versions with each "
        f"core computing from {computing[0]:g} to {computing[-1]:g} times as much, by one seed: "
        "the median, and in brackets the least and the most.",
        "",
        *table(["beyond `layer`", *names], _gain_rows(qps, names, computing, aims)),
        "",
        *(_verdict(qps, name, computing, aims[name]) for name in names if name in aims),
        "",
        _steps(qps, names, computing),
        "",
        f"Queries/s of `{BASELINE}` planned on the whole target and with its best slack, and of "
        f"`{BY_TIME_LEFT}`:",
        "",
        *table(["computing", *names], _rate_rows(qps, names, computing)),
    ]


def _gains(
    qps: Mapping[tuple[str, str, float], Row],
    workload: str,
    policy: str,
    planned: str,
    computing: Sequence[float],
) -> list[float]:
    """What a policy keeps beyond the baseline, by speed; without those where one keeps none."""
    found = []
    for speed in computing:
        ours, base = (qps.get((workload, name, speed)) for name in (policy, BASELINE))
        if ours and base and base[planned] > 0:
            found.append(ours[planned] / base[planned] - 1)
    return found


def _gain_rows(
    qps: Mapping[tuple[str, str, float], Row],
    names: Sequence[str],
    computing: Sequence[float],
    aims: Mapping[str, float],
) -> list[list[str]]:
    paper = [f"{aims[name]:+.0%}" if name in aims else "-" for name in names]
    found = [["*the paper's whole system*", *paper]]
    for policy, planned, how in _COMPARED:
        cells = [_spread(_gains(qps, name, policy, planned, computing)) for name in names]
        if any(cell != "-" for cell in cells):
            found.append([f"`{policy}`, {how}", *cells])
    return found


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    return f"{statistics.median(values):+.0%} ({min(values):+.0%} to {max(values):+.0%})"


def _verdict(
    qps: Mapping[tuple[str, str, float], Row], name: str, computing: Sequence[float], aim: float
) -> str:
    said = []
    for planned, how in ((_WHOLE, "planned on the whole target"), (_BEST, "with its best slack")):
        found = _gains(qps, name, BY_TIME_LEFT, planned, computing)
        if found:
            reached = sum(gain >= aim for gain in found)
            median = statistics.median(found)
            state = "reached" if median >= aim else "**not reached**"
            said.append(
                f"beyond `{BASELINE}` {how} by the median {median:+.0%}, {state}, "
                f"at {reached} of {len(found)} speeds"
            )
    return f"- {name}: aim {aim:+.0%}; `{BY_TIME_LEFT}` {'; '.join(said) or 'not asked'}."


def _steps(
    qps: Mapping[tuple[str, str, float], Row], names: Sequence[str], computing: Sequence[float]
) -> str:
    """How often faster kernels keep fewer queries."""
    said = []
    for policy, planned, how in (
        (BASELINE, _WHOLE, " on the whole target"),
        (BASELINE, _BEST, " with its best slack"),
        (BY_TIME_LEFT, _BEST, ""),
    ):
        rates = [
            [row[planned] for speed in computing if (row := qps.get((name, policy, speed)))]
            for name in names
        ]
        steps = [later < before for each in rates for before, later in pairwise(each)]
        if steps:
            said.append(f"`{policy}`{how} keeps less in {sum(steps)} of {len(steps)}")
    return (
        f"From one speed to the next faster one {', '.join(said)}. The paper's policies give a "
        "layer or a block the fewest whole cores on which it keeps its part of what is planned: "
        "where kernels get faster a core less will do, and what was left of that part is gone, so "
        "a query ends later than with slower ones."
    )


def _rate_rows(
    qps: Mapping[tuple[str, str, float], Row], names: Sequence[str], computing: Sequence[float]
) -> list[list[str]]:
    found = []
    for speed in computing:
        cells = []
        for name in names:
            base, ours = (qps.get((name, policy, speed)) for policy in (BASELINE, BY_TIME_LEFT))
            rates = [base[_WHOLE], base[_BEST]] if base else []
            rates += [ours[_BEST]] if ours else []
            cells.append(", ".join(f"{rate:.0f}" for rate in rates))
        found.append([f"{speed:g}", *cells])
    return found
