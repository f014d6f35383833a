"""What policies do at the paper's rates: rate and latency at once, of one run."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from veltair.eval.capacity.simulated_latency import PAPER_LATENCY, alone_ms_of
from veltair.eval.capacity.simulated_machine import Setting
from veltair.eval.capacity.simulated_rates import PAPER_GAIN
from veltair.eval.capacity.simulated_study import BASELINE, BY_TIME_LEFT, FULL
from veltair.eval.page.markdown import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from veltair.eval.capacity.result import WorkloadFacts
    from veltair.eval.capacity.simulated_study import Study


@dataclass(frozen=True, kw_only=True)
class AtAim:
    """What one policy does at a rate, by each seed.

    Attributes:
        workload: its name.
        policy: of scheduling, with its best slack.
        rate_qps: beyond the baseline's, as in the paper, by what the paper's whole system keeps.
        in_time: whether enough of each model's queries are.
        mean_ms: latency by model, from the arrival.
    """

    workload: str
    policy: str
    rate_qps: float
    in_time: tuple[bool, ...]
    mean_ms: dict[str, tuple[float, ...]]


def at_aims(
    study: Study,
    asked: Sequence[WorkloadFacts],
    policies: Sequence[str],
    planned_whole: Mapping[tuple[str, str], float],
) -> list[dict[str, Any]]:
    """Asks the paper's whole system and the best of ours.

    Args:
        study: of the machine.
        asked: workloads; nothing is known to ask of those that the paper doesn't have.
        policies: that are compared.
        planned_whole: rates by workload and policy, that plans on the whole target.
    """
    return [
        asdict(_at_aim(study, facts, policy, base_qps * (1 + PAPER_GAIN[facts.name])))
        for facts in asked
        if facts.name in PAPER_GAIN and (base_qps := planned_whole[facts.name, BASELINE])
        for policy in (FULL, BY_TIME_LEFT)
        if policy in policies
    ]


def _at_aim(study: Study, facts: WorkloadFacts, policy: str, rate_qps: float) -> AtAim:
    trials = study.by_seed(facts, study.at_best(facts, Setting(policy=policy)), rate_qps)
    return AtAim(
        workload=facts.name,
        policy=policy,
        rate_qps=rate_qps,
        in_time=tuple(trial.met for trial in trials),
        mean_ms={
            model.name: tuple(trial.figures[model.name].mean_ms for trial in trials)
            for model in facts.models
        },
    )


def at_aims_text(extra: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Returns the section; nothing where no such rate is known.

    Args:
        extra: what `ablations.json` has: the rows of `at_aims`, latencies alone, and the shortest.
        names: of the workloads.
    """
    found = {(row["workload"], row["policy"]): row for row in extra["at_aims"]}
    shown = [name for name in names if any(workload == name for workload, _ in found)]
    policies = list(dict.fromkeys(policy for _, policy in found))
    if FULL not in policies:
        return []
    rates = [f"{found[name, FULL]['rate_qps']:.0f}" for name in shown]
    rows = [[policy, *(_cell(found[name, policy], extra) for name in shown)] for policy in policies]
    most = PAPER_LATENCY[FULL]
    verdicts = []
    for policy in policies:
        reached = [
            name
            for name in shown
            if all(found[name, policy]["in_time"]) and _alone(found[name, policy], extra) <= most
        ]
        verdicts.append(f"`{policy}` under {', '.join(reached) or 'none'}")
    return [
        "",
        "## At the paper's rates",
        "",
        f"The rates that are as far beyond `{BASELINE}`, planned on the whole target as in the "
        "paper, as the paper's whole system is beyond Planaria. In how many of the seeds enough of "
        "each model's queries are in time; mean latency, waiting included, over that of a query "
        f"by the plan of `{FULL}` with nothing beside it, means over models and seeds; in brackets "
        "over the shortest that any number of cores gives.",
        "",
        *table(["in time, latency", *shown], [["*queries/s*", *rates], *rows]),
        "",
        f"Enough queries in time by every seed and within {most:g} times that latency: "
        f"{', '.join(verdicts)}.",
    ]


def _cell(row: Mapping[str, Any], extra: Mapping[str, Any]) -> str:
    shortest = _over(row, extra["shortest_ms"])
    in_time = f"{sum(row['in_time'])} of {len(row['in_time'])}"
    return f"{in_time}, {_alone(row, extra):.2f} ({shortest:.2f})"


def _alone(row: Mapping[str, Any], extra: Mapping[str, Any]) -> float:
    """Over a query with nothing beside it, by the paper's plan."""
    return _over(row, alone_ms_of(extra, row["workload"], FULL))


def _over(row: Mapping[str, Any], usual_ms: Mapping[str, float]) -> float:
    mean_ms: Mapping[str, Sequence[float]] = row["mean_ms"]
    return statistics.mean(
        statistics.mean(means) / usual_ms[model] for model, means in mean_ms.items()
    )
