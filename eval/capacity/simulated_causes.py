"""What the differences between simulated policies come from, in sentences with their figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from veltair.eval.capacity.simulated_latency import PAPER_LATENCY, latency_of
from veltair.eval.capacity.simulated_rates import gain, qps_of
from veltair.eval.capacity.simulated_study import BASELINE, BY_TIME_LEFT, FULL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from veltair.eval.capacity.result import Result

_ALONE = "interference=constant"
_SLOWER = "computing=0.5"
_ONE_AT_A_TIME = "prema"
_KNOWN = "resnet50"  # whose cores the paper says


def causes(result: Result, extra: Mapping[str, Any]) -> list[str]:
    """Returns what the ablations say of the mechanisms, each over all workloads.

    Args:
        result: of the evaluation.
        extra: what `ablations.json` has, the ablations among it.
    """
    rows = extra["ablations"]
    runs = {(run["workload"], run["policy"]): run for run in extra["runs"]}
    used = [
        f"{runs[facts.name, BASELINE]['average_cores'] / result.cores:.0%}"
        for facts in result.workloads
        if (facts.name, BASELINE) in runs
    ]
    over = {
        name: _span(
            [g for facts in result.workloads if (g := gain(result, facts.name, name))], "+.0%"
        )
        for name in (FULL, BY_TIME_LEFT)
    }
    slower = [
        f"{workload} {ours / base - 1:+.0%} and {best / base - 1:+.0%}"
        for workload in dict.fromkeys(row["workload"] for row in rows)
        if (ours := _asked(rows, workload, FULL, _SLOWER))
        and (best := _asked(rows, workload, BY_TIME_LEFT, _SLOWER))
        and (base := _asked(rows, workload, BASELINE, _SLOWER))
    ]
    reading = [
        f"{qps_of(result, facts.name, BASELINE) / extra['memory_qps'][facts.name]:.0%}"
        for facts in result.workloads
    ]
    return [
        f"- **Interference.** Without any, `{BASELINE}` keeps "
        f"{_change(rows, BASELINE, _ALONE)} of its rate and `{FULL}` "
        f"{_change(rows, FULL, _ALONE)}. In the model a block's tiles stay within its own cores' "
        f"part of the L3, and at the rates of `{BASELINE}` memory is asked for some "
        f"{', '.join(reading)} of what it gives. Other versions win little of that: with one a "
        f"layer `{FULL}` keeps {_change(rows, FULL, 'versions=1')} of the rate with five, never "
        f"told a level {_change(rows, FULL, 'proxy=none')}. The paper measured slow-downs of "
        "1.8 when models share its machine (Fig. 1b), and up to 7 of one version of a layer (Fig. "
        "6a); packed weights and tiles of the second cache leave no such layer here. But the model "
        "is too kind in one point: weights are gone by what the same model touches between its "
        "runs, not by what the others do.",
        f"- **Conflicts.** If they cost nothing, `{BASELINE}` keeps "
        f"{_change(rows, BASELINE, 'conflict_us=0')} of its rate, `{FULL}` "
        f"{_change(rows, FULL, 'conflict_us=0')}; if each decision cost 60 us, "
        f"{_change(rows, BASELINE, 'decision_us=60')} and "
        f"{_change(rows, FULL, 'decision_us=60')}.",
        "- **Kernels.** The paper's reach half of a core's peak on this machine "
        "(`eval/results/machine_model.md`) and need 16 cores for ResNet-50 in 15 ms"
        f"{_needed(extra['needed_cores'])}. The fewer a query needs, the more run side by side, "
        "and the rarer is one that finds too few. "
        f"With kernels of half the speed `{FULL}` and `{BY_TIME_LEFT}` are "
        f"beyond `{BASELINE}` by: "
        f"{', '.join(slower) or 'not asked'}.",
        "- **Slack.** The paper's policies plan a query to end at its target, whatever it has "
        "waited. Even with the slack that is best for each, `"
        f"{BASELINE}` reaches its rate with {', '.join(used)} of the cores in use: what has to "
        f"wait for longer than that is late. `{BY_TIME_LEFT}` has the same blocks and versions "
        f"and plans on the time that is left: {over[BY_TIME_LEFT]} beyond `{BASELINE}`, where "
        f"`{FULL}` is {over[FULL]} beyond.",
        _latency(result, extra),
    ]


def _latency(result: Result, extra: Mapping[str, Any]) -> str:
    found = {
        name: [
            each
            for facts in result.workloads
            if (each := latency_of(result, extra, facts, name, "at_capacity"))
        ]
        for name in (FULL, _ONE_AT_A_TIME)
    }
    ours, whole = found[FULL], found[_ONE_AT_A_TIME]
    kept = [
        qps_of(result, facts.name, _ONE_AT_A_TIME) / base
        for facts in result.workloads
        if (base := qps_of(result, facts.name, BASELINE))
    ]
    return (
        f"- **Latency.** `{FULL}` plans a query on the fewest cores for its part of the target, so "
        "that others run beside it: with nothing beside it one takes "
        f"{_times([each.planned for each in ours])} times the shortest latency that "
        "any number of cores gives, and that is chosen. At its rate one takes "
        f"{_times([each.alone for each in ours])} times as long as that, "
        f"{_times([each.executing for each in ours])} of it executing and the rest waiting for "
        f"cores. Together they are {_times([each.shortest for each in ours])} times the shortest, "
        f"where the paper has {PAPER_LATENCY[FULL]:g}, of an execution latency over the shortest "
        "(section 5.3). By its other figures that can't be the shortest on any number of cores: "
        "with all of them for one task at a time it has some 300 vision queries a second (section "
        "2.1), 3.3 ms each, and a ResNet-50 that is planned by layers takes 18.5 ms with nothing "
        "in its way (section 3.2), five to six times as long. Over a query of the same plan with "
        "nothing beside it executing is "
        f"{_within([each.executing for each in ours], PAPER_LATENCY[FULL])}. The policy that gives "
        f"a query the whole machine, `{_ONE_AT_A_TIME}`, comes to "
        f"{_times([each.shortest for each in whole])} times the shortest, and keeps "
        f"{_times(kept)} of the rate of `{BASELINE}` with it."
    )


def _needed(cores: Mapping[str, int]) -> str:
    return f"; ours need {cores[_KNOWN]}" if _KNOWN in cores else ""


def _span(values: Sequence[float], form: str) -> str:
    return f"{min(values):{form}} to {max(values):{form}}" if values else "(not asked)"


def _times(values: Sequence[float]) -> str:
    return _span(values, ".2f")


def _within(values: Sequence[float], most: float) -> str:
    """Whether all are, the aim with it."""
    return f"{'within' if values and max(values) <= most else '**not within**'} {most:g} times"


def _change(rows: Sequence[Mapping[str, Any]], policy: str, setting: str) -> str:
    """What a setting keeps of the usual rate, from the least to the most over the workloads."""
    kept = [
        row["qps"] / usual
        for row in rows
        if (row["policy"], row["setting"]) == (policy, setting)
        and (usual := _asked(rows, row["workload"], policy, ""))
    ]
    return _span(kept, ".0%")


def _asked(
    rows: Sequence[Mapping[str, Any]], workload: str, policy: str, setting: str
) -> float | None:
    key = (workload, policy, setting)
    return next(
        (row["qps"] for row in rows if (row["workload"], row["policy"], row["setting"]) == key),
        None,
    )
