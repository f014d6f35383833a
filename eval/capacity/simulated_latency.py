"""How long queries take on a simulated machine, over what they take alone."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from veltair.eval.capacity.result import Purpose, Result, Trial, WorkloadFacts

PAPER_LATENCY = {"veltair": 1.1, "veltair-as": 1.6, "veltair-ac": 1.17}  # VELTAIR, section 5.3


@dataclass(frozen=True, kw_only=True)
class Latency:
    """Of one policy under one workload; each a mean of the models' ratios.

    Attributes:
        alone: mean latency over that of the same policy with nothing beside it.
        executing: what of it is from the first layer's start on.
        shortest: mean latency over the shortest on any number of cores.
        planned: latency with nothing beside it over that shortest.
    """

    alone: float
    executing: float
    shortest: float
    planned: float


def latency_of(
    result: Result, extra: Mapping[str, Any], facts: WorkloadFacts, policy: str, purpose: Purpose
) -> Latency | None:
    """Returns what a run came to; None where there was none.

    Args:
        result: of the evaluation.
        extra: what `ablations.json` has: latencies alone, and the shortest.
        facts: of the workload.
        policy: of scheduling, with its best slack.
        purpose: which of its runs.
    """
    trial = _trial(result, facts.name, policy, purpose)
    if trial is None:
        return None
    names = [model.name for model in facts.models]
    alone_ms = alone_ms_of(extra, facts.name, policy)
    mean_ms = {name: trial.figures[name].mean_ms for name in names}
    service_ms = {name: trial.figures[name].service_ms for name in names}
    return Latency(
        alone=statistics.mean(mean_ms[name] / alone_ms[name] for name in names),
        executing=statistics.mean(service_ms[name] / alone_ms[name] for name in names),
        shortest=statistics.mean(mean_ms[name] / extra["shortest_ms"][name] for name in names),
        planned=statistics.mean(alone_ms[name] / extra["shortest_ms"][name] for name in names),
    )


def alone_ms_of(extra: Mapping[str, Any], workload: str, policy: str) -> dict[str, float]:
    """Each model's latency with nothing beside it, by the policy with its best slack."""
    return {
        row["model"]: row["p50_ms"]
        for row in extra["alone"]
        if (row["workload"], row["system"]) == (workload, policy)
    }


def _trial(result: Result, workload: str, policy: str, purpose: Purpose) -> Trial | None:
    return next(
        (
            each
            for each in result.trials
            if (each.workload, each.system, each.purpose) == (workload, policy, purpose)
        ),
        None,
    )
