"""Rates that a simulated evaluation found, by workload and policy."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from veltair.eval.capacity.simulated_study import BASELINE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from veltair.eval.capacity.result import Capacity, Result

# VELTAIR, section 5.2: what its whole system serves beyond Planaria. Its plots are not read off.
PAPER_GAIN = {"light": 0.71, "medium": 0.62, "heavy": 0.45, "mix": 0.68}


def gain(result: Result, workload: str, policy: str) -> float | None:
    """What a policy keeps beyond the baseline, as a share; None where one of them has no rate."""
    ours, base = qps_of(result, workload, policy), qps_of(result, workload, BASELINE)
    return ours / base - 1 if ours and base else None


def in_paper(extra: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """Rates by workload and policy, planned on the whole target: the medians over the seeds."""
    return {
        (row["workload"], row["policy"]): statistics.median(row["qps"])
        for row in extra["as_in_paper"]
    }


def capacity_of(result: Result, workload: str, policy: str) -> Capacity | None:
    """What was found of a policy, with its best slack; None: it was not asked."""
    return next(
        (each for each in result.capacities if (each.workload, each.system) == (workload, policy)),
        None,
    )


def qps_of(result: Result, workload: str, policy: str) -> float:
    """The median over the seeds; 0: none was found."""
    capacity = capacity_of(result, workload, policy)
    return 0.0 if capacity is None else statistics.median(capacity.qps)
