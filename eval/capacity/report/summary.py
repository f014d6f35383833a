"""What an evaluation found, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from veltair.eval.capacity.report.findings import NOT_RUN, median
from veltair.eval.capacity.report.verdicts import against, best_of_ours, verdict
from veltair.eval.page.text import number_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from veltair.eval.capacity.report.findings import Findings, Spread
    from veltair.eval.capacity.report.verdicts import Side, Verdict


def measured_on(found: Findings) -> str:
    """Returns the machine and the revision, as far as they are known; nothing of a simulation."""
    revision = found.result.origin.get("revision")
    parts = [*processors(found), *([f"revision {revision}"] if revision else [])]
    return "" if found.result.simulated else ", ".join(parts)


def processors(found: Findings) -> list[str]:
    """Returns the processor, its L3 cache and how many cores were used, as far as they are known.

    Virtual machines give processors of several generations one name; the cache tells them apart.
    """
    machine = found.result.origin.get("machine")
    table: dict[str, Any] = machine if isinstance(machine, dict) else {"cpu": machine}
    cpu, l3_bytes = table.get("cpu"), table.get("l3_bytes")
    cache = f" with {l3_bytes / 2**20:.0f} MiB of L3" if l3_bytes else ""
    return [
        *([f"{cpu}{cache}"] if cpu else []),
        *([f"{found.cores} cores"] if found.cores else []),
    ]


def by_workload(found: Findings) -> list[tuple[str, str, str]]:
    """Returns each workload's name, who is ahead, and what was found of the best of each."""
    verdicts = [verdict(found, name) for name in found.workloads]
    return [(each.workload, _ahead(each), " ".join(_workload(found, each))) for each in verdicts]


def in_all(found: Findings) -> list[str]:
    """Returns what is to be known beside that, a sentence each."""
    return [*_best(found), *_absent(found), *_driver(found)]


def notes(found: Findings) -> list[str]:
    """Returns what was written down with a capacity; of systems that did not run, they tell."""
    return [
        f"{each.workload}, {each.system}: {each.state}: {each.note}"
        for each in found.result.capacities
        if each.note and each.state not in {"failed", "skipped"}
    ]


def failed_queries(found: Findings) -> list[str]:
    """Returns why queries failed, each system's reasons once."""
    return list(
        dict.fromkeys(f"{t.system}: {error}" for t in found.result.trials for error in t.errors)
    )


def _ahead(each: Verdict) -> str:
    if each.ratio is None:
        return "no comparison"
    if each.undecided:
        return "no winner"
    return "ours ahead" if each.ratio.median > 1 else "ours behind"


def _workload(found: Findings, each: Verdict) -> Iterator[str]:
    if not found.rivals:
        yield "Nothing to compare with was asked for."
    if each.ours is None and found.ours:
        yield f"None of ours has a capacity: {states(found, each.workload, found.ours)}."
    if each.rival is None and found.rivals:
        yield f"{_others(found, 'No')} has one: {states(found, each.workload, found.rivals)}."
    if each.ours is not None and each.rival is None:
        yield f"{_named(each.ours)}, the best of ours, keeps {_qps(each.ours.qps)}."
    elif each.rival is not None and each.ours is None:
        best = _others(found, "The best")
        yield f"{best}, {_named(each.rival)}, keeps {_qps(each.rival.qps)}."
    elif each.ours is not None and each.rival is not None:
        yield from _both(found, each, each.ours, each.rival)
    if each.level:
        yield f"Of ours, {_and(each.level)} {_be(each.level)} within the spread of the best."


def _both(found: Findings, each: Verdict, ours: Side, rival: Side) -> Iterator[str]:
    assert each.ratio is not None
    times = f"{_ratio(each.ratio.median)} times as many"
    if each.ratio.least != each.ratio.most:
        times += f" ({_ratio(each.ratio.least)} to {_ratio(each.ratio.most)})"
    yield (
        f"{_named(ours)}, the best of ours, keeps {_qps(ours.qps)}, {times} as {_named(rival)}, "
        f"{_others(found, 'the best')}, which keeps {_qps(rival.qps)}."
    )
    if rival.qps.least == 0:
        yield f"The ratio leaves out the repetitions in which {rival.system} keeps no rate."
    if each.undecided:
        yield f"No winner is named, since {each.undecided}."
        if not (found.result.simulated or ours.disturbed or rival.disturbed):
            yield (
                "A few queries that come together decide a short run: more queries a run "
                "(--min-queries, --max-seconds) and more --repetitions make spreads narrower."
            )
    for other in found.rivals if found.are_baselines else ():
        ratio = against(found, each.workload, ours.system, other)
        if ratio is not None and other != rival.system:
            yield f"It keeps {_ratio(ratio.median)} times as many as {other}."


def _named(side: Side) -> str:
    return f"{side.system} ({side.setting})" if side.setting else side.system


def _qps(qps: Spread) -> str:
    text = f"{number_text(qps.median)} queries/s"
    if qps.runs == 1:
        return text
    return f"{text} ({number_text(qps.least)} to {number_text(qps.most)} in {qps.runs} repetitions)"


def _others(found: Findings, begin: str) -> str:
    return f"{begin} {'baseline' if found.are_baselines else 'peer'}"


def states(found: Findings, workload: str, systems: Sequence[str]) -> str:
    """Says what the search of each of some systems ended in."""
    return "; ".join(f"{name} {found.state(workload, name)}" for name in systems)


def _best(found: Findings) -> Iterator[str]:
    best = best_of_ours(found)
    if best is not None and len(found.workloads) > 1 and len(best[1]) > 1:
        yield (
            f"The best of ours over all workloads is {best[0]}: the highest geometric mean of "
            f"capacities of {len(best[1])} systems that have one in each."
        )


def _absent(found: Findings) -> Iterator[str]:
    for state in ("failed", "skipped", NOT_RUN):
        names = [name for name in found.compared if found.system_state(name) == state]
        if names:
            verb = {"failed": "failed", "skipped": f"{_be(names, past=True)} skipped"}
            text = verb.get(state, f"{_be(names, past=True)} not run")
            yield f"{_and(names)} {text} and {_be(names)} in no comparison."


def _driver(found: Findings) -> Iterator[str]:
    """What the load generator costs, and what else ran."""
    for system in (name for name in found.systems if found.systems[name].kind == "null"):
        known = [
            f"{number_text(trial.figures['all'].p50_ms)} ms at {number_text(trial.rate_qps)} "
            f"queries/s ({workload})"
            for workload in found.workloads
            for trial in found.trials(workload, system, "at_capacity")
        ]
        if known:
            yield (
                f"The load generator's own cost: {system}, which computes nothing, has a median "
                f"latency of {_and(known)}."
            )
    trials = [trial for trial in found.result.trials if trial.purpose in {"at_capacity", "sweep"}]
    late = median(trial.late_p99_ms for trial in trials)
    if late is not None:
        yield (
            f"99 % of the queries were sent at most {number_text(late)} ms late: the median of the "
            "runs at a capacity and in the load sweeps."
        )
    others = [t.disturbance.others + t.disturbance.steal for t in trials if t.disturbance]
    if others:
        yield (
            f"Other processes and the machine's host took {100 * max(others):.1f} % of the "
            "processors at most, in any of those runs."
        )


def _ratio(value: float) -> str:
    return f"{value:.2f}"


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _be(names: Sequence[str], *, past: bool = False) -> str:
    one, several = ("was", "were") if past else ("is", "are")
    return one if len(names) == 1 else several
