"""The simulated evaluation as a page: what the paper's text says, and ours beside it."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from veltair.eval.capacity.simulated_at_aim import at_aims_text
from veltair.eval.capacity.simulated_causes import causes
from veltair.eval.capacity.simulated_latency import PAPER_LATENCY, latency_of
from veltair.eval.capacity.simulated_rates import PAPER_GAIN, capacity_of, gain, in_paper, qps_of
from veltair.eval.capacity.simulated_speeds import speeds
from veltair.eval.capacity.simulated_study import BASELINE, FULL, PLANNING_ANEW, USAGE_LOAD
from veltair.eval.page.markdown import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from veltair.eval.capacity.result import Purpose, Result

PAPER_USAGE = {"veltair": 0.10, "model": 0.47}  # section 5.4


def report(result: Result, extra: Mapping[str, Any]) -> str:
    """Returns the page.

    Args:
        result: of the evaluation.
        extra: what `ablations.json` has.
    """
    lines = [
        "# The paper's 64 cores, simulated",
        "",
        f"`{result.origin['command']}`",
        "",
        f"{result.origin['machine']} as `proxy/machines` describes it: times from the machine "
        "model and our own versions of the layers, targets from the paper's table 2. Rates are the "
        f"highest at which {result.percentile:g} % of each model's queries are in time, medians "
        f"over {result.plan['seeds']} seeds. The artifacts are for "
        f"{' and '.join(result.plan['isa'])}, with profiles measured on "
        f"{' and '.join(result.plan['measured_on'])}. Nothing here was measured on such a machine.",
        "",
        "## Rates",
        "",
        *_rates(result, extra),
        "",
        "## Slack",
        "",
        "The part of its target that a policy plans a query to take, of those that were tried the "
        "one with which it keeps the most, and in brackets what it keeps with it over what it "
        "keeps by planning on the whole, by one seed. All figures of this page are with it. "
        f"{' and '.join(f'`{name}`' for name in PLANNING_ANEW)} plan on the time that is left.",
        "",
        *_slack(result, extra["slack"]),
        "",
        "## Against the paper",
        "",
        *_gains(result, extra),
        *_speeds(extra["speeds"]),
        "",
        "## Latency at that rate and at half of it",
        "",
        "Mean latency over that of the same policy with nothing beside it, and what of it is from "
        "the first layer's start on, means over the models; in brackets over the shortest that "
        "any number of cores gives the model alone. The paper's are at the rate, of what it calls "
        "execution latency, over the shortest.",
        "",
        *_latencies(result, extra, "at_capacity"),
        "",
        *_latencies(result, extra, "at_half"),
        *at_aims_text(extra, [facts.name for facts in result.workloads]),
        "",
        f"## Cores in use at {USAGE_LOAD:.0%} of the rate of `{BASELINE}`",
        "",
        *_usage(result, extra["usage"]),
        "",
        "## Conflicts and blocks at each one's own rate",
        "",
        *_runs(result, extra["runs"]),
        "",
        "## Satisfied share beyond and below it",
        "",
        *_sweep(result),
    ]
    if extra["ablations"]:
        lines += ["", "## What the differences come from", "", *causes(result, extra)]
    for question in dict.fromkeys(each["question"] for each in extra["ablations"]):
        rows = [each for each in extra["ablations"] if each["question"] == question]
        lines += ["", f"## Ablation: {question}", "", *_ablation(rows)]
    return "\n".join(lines) + "\n"


def _speeds(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return (
        ["", "## Kernels somewhat slower and faster", "", *speeds(rows, PAPER_GAIN)] if rows else []
    )


def _rates(result: Result, extra: Mapping[str, Any]) -> list[str]:
    names = [facts.name for facts in result.workloads]
    rows = [
        [system.name, *(_rate(result, name, system.name) for name in names)]
        for system in result.systems
    ]
    most = [f"{extra['target_qps'][name]:.0f}" for name in names]
    rows.append(["*all cores, each query in the least processor time within its target*", *most])
    return table(["queries/s", *names], rows)


def _rate(result: Result, workload: str, policy: str) -> str:
    capacity = capacity_of(result, workload, policy)
    if capacity is None:
        return "-"
    if capacity.state == "unmeetable":
        return "unmeetable"
    noisy = ", noisy" if capacity.state == "noisy" else ""
    return (
        f"{statistics.median(capacity.qps):.0f} "
        f"({min(capacity.qps):.0f} to {max(capacity.qps):.0f}{noisy})"
    )


def _slack(result: Result, slack: Sequence[Mapping[str, Any]]) -> list[str]:
    names = [facts.name for facts in result.workloads]
    rows = []
    for system in result.systems:
        cells = []
        for name in names:
            found = {
                row["planned"]: row["qps"]
                for row in slack
                if (row["workload"], row["policy"]) == (name, system.name)
            }
            best = max(found, key=lambda part: found[part])
            over = f"{found[best] / found[1.0]:.2f}" if found[1.0] else "from none"
            cells.append("-" if len(found) == 1 else f"{best:.0%} ({over})")
        rows.append([system.name, *cells])
    return table(["planned", *names], rows)


def _gains(result: Result, extra: Mapping[str, Any]) -> list[str]:
    names = [facts.name for facts in result.workloads]
    paper = [f"{PAPER_GAIN[n]:+.0%}" if n in PAPER_GAIN else "-" for n in names]
    rows = [["*the paper's whole system*", *paper]]
    for system in result.systems:
        if system.name == BASELINE:
            continue
        gains = [gain(result, name, system.name) for name in names]
        cells = ["-" if each is None else f"{each:+.0%}" for each in gains]
        rows.append([system.name, *cells])
    most = {
        name: extra["target_qps"][name] / base - 1
        for name in names
        if (base := qps_of(result, name, BASELINE))
    }
    ceiling = [f"{most[name]:+.0%}" if name in most else "-" for name in names]
    rows.append(["*no policy can keep more*", *ceiling])
    planned_whole = in_paper(extra)
    return [
        *table([f"beyond `{BASELINE}`", *names], rows),
        "",
        *(_verdict(result, name, most, planned_whole) for name in names),
    ]


def _verdict(
    result: Result,
    workload: str,
    most: Mapping[str, float],
    planned_whole: Mapping[tuple[str, str], float],
) -> str:
    found = {system.name: gain(result, workload, system.name) for system in result.systems}
    known = {name: each for name, each in found.items() if each is not None and name != BASELINE}
    if workload not in PAPER_GAIN or not known:
        return f"- {workload}: no rate to compare."
    best = max(known, key=lambda name: known[name])
    aim = PAPER_GAIN[workload]
    whole = known.get(FULL)
    said = "not known" if whole is None else f"{whole:+.0%}"
    reached = "reached" if known[best] >= aim else "**not reached**"
    if most[workload] < aim:
        reached += f", and beyond what any policy could ({most[workload]:+.0%})"
    return (
        f"- {workload}: aim {aim:+.0%}; `{FULL}` {said}, the best of ours, `{best}`, "
        f"{known[best]:+.0%}: {reached}.{_as_in_paper(result, workload, best, planned_whole)}"
    )


def _as_in_paper(
    result: Result, workload: str, best: str, planned_whole: Mapping[tuple[str, str], float]
) -> str:
    """The same beyond a baseline that plans on the whole target."""
    base = planned_whole[workload, BASELINE]
    if not base:
        return ""
    beyond = qps_of(result, workload, best) / base - 1
    return (
        f" Beyond `{BASELINE}` planned on the whole target, as in the paper, which keeps "
        f"{base:.4g}: `{FULL}`, planned likewise, {planned_whole[workload, FULL] / base - 1:+.0%}, "
        f"`{best}` {beyond:+.1%}: "
        f"{'reached' if beyond >= PAPER_GAIN[workload] else '**not reached**'}."
    )


def _latencies(result: Result, extra: Mapping[str, Any], purpose: Purpose) -> list[str]:
    names = [facts.name for facts in result.workloads]
    at_rate = purpose == "at_capacity"
    first = f"latency over alone, executing, {'at the rate' if at_rate else 'at half of it'}"
    heads = [first, *names, "the paper"] if at_rate else [first, *names]
    rows = []
    for system in result.systems:
        cells = []
        for facts in result.workloads:
            found = latency_of(result, extra, facts, system.name, purpose)
            cells.append(
                "-"
                if found is None
                else f"{found.alone:.2f}, {found.executing:.2f} ({found.shortest:.2f})"
            )
        if at_rate:
            paper = PAPER_LATENCY.get(system.name)
            cells.append("-" if paper is None else f"{paper:g}")
        rows.append([system.name, *cells])
    return table(heads, rows)


def _usage(result: Result, usage: Sequence[Mapping[str, Any]]) -> list[str]:
    names = [facts.name for facts in result.workloads]
    rows = []
    cores = {(each["workload"], each["policy"]): each["cores"] for each in usage}
    for system in result.systems:
        cells = []
        for name in names:
            ours, base = cores.get((name, system.name)), cores.get((name, BASELINE))
            cells.append("-" if not ours or not base else f"{ours:.1f} ({ours / base - 1:+.0%})")
        paper = PAPER_USAGE.get(system.name)
        cells.append("-" if paper is None else f"{paper:+.0%}")
        rows.append([system.name, *cells])
    return table([f"cores, and over `{BASELINE}`", *names, "the paper"], rows)


def _runs(result: Result, runs: Sequence[Mapping[str, Any]]) -> list[str]:
    names = [facts.name for facts in result.workloads]
    rows = []
    found = {(each["workload"], each["policy"]): each for each in runs}
    for system in result.systems:
        cells = []
        for name in names:
            run = found.get((name, system.name))
            cells.append(
                "-" if run is None else f"{run['conflict_rate']:.1%}, {run['cores_per_block']:.1f}"
            )
        rows.append([system.name, *cells])
    return table(["conflicts, cores of a block", *names], rows)


def _sweep(result: Result) -> list[str]:
    names = [facts.name for facts in result.workloads]
    loads = sorted(
        {
            round(trial.rate_qps / qps, 2)
            for trial in result.trials
            if (qps := qps_of(result, trial.workload, trial.system))
        }
    )
    rows = []
    for system in result.systems:
        cells = []
        for name in names:
            qps = qps_of(result, name, system.name)
            shares = {
                round(trial.rate_qps / qps, 2): trial.figures["all"].satisfied_share
                for trial in result.trials
                if qps and (trial.workload, trial.system) == (name, system.name)
            }
            cells.append(", ".join(f"{shares[load]:.0%}" for load in loads if load in shares))
        rows.append([system.name, *cells])
    first = "of its own rate " + ", ".join(f"{load:g}" for load in loads)
    return table([first, *names], rows)


def _ablation(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    names = list(dict.fromkeys(row["workload"] for row in rows))
    cases = list(dict.fromkeys((row["policy"], row["setting"]) for row in rows))
    qps = {(row["workload"], row["policy"], row["setting"]): row["qps"] for row in rows}
    shown = []
    for policy, setting in cases:
        cells = []
        for name in names:
            usual = qps.get((name, policy, ""))
            ours = qps[name, policy, setting]
            over = f" ({ours / usual - 1:+.0%})" if usual and setting else ""
            cells.append(f"{ours:.0f}{over}")
        shown.append([f"{policy} {setting or 'as usual'}", *cells])
    return table(["queries/s, and over the usual", *names], shown)
