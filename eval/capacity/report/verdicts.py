"""Who is ahead: the best of ours against the best of the others, or why nobody is named."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from veltair.eval.capacity.report.findings import Spread, spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from veltair.eval.capacity.report.findings import Findings


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two that are compared in a workload.

    Attributes:
        system: its name.
        setting: its best.
        qps: its capacity.
        noisy: whether its repetitions differ by more than they may.
        disturbed: whether others used the processors while it was measured.
    """

    system: str
    setting: str
    qps: Spread
    noisy: bool
    disturbed: bool


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The best of ours against the best of the others, in a workload.

    Attributes:
        workload: its name.
        ours: None where none of ours has a capacity.
        rival: None where no other has one.
        ratio: of ours to the rival's; None without one of them.
        level: of ours, those that the best is not ahead of by more than the spreads.
        undecided: why no winner is named, in a sentence's end; empty: one is.
    """

    workload: str
    ours: Side | None
    rival: Side | None
    ratio: Spread | None
    level: tuple[str, ...]
    undecided: str


def ratios(values: Sequence[float], by: Sequence[float]) -> Spread | None:
    """Returns how many times as much one is, each of its measurements over each of the other's.

    The least and the most are so the widest that the measurements allow: both are on the same side
    of 1 exactly if the two spreads don't overlap.
    """
    return spread(value / other for value in values for other in by if other > 0)


def verdict(found: Findings, workload: str) -> Verdict:
    """Compares the best of ours with the best rival."""
    ours, rivals = _sides(found, workload, found.ours), _sides(found, workload, found.rivals)
    best, rival = (max(sides, key=_by_median, default=None) for sides in (ours, rivals))
    return Verdict(
        workload=workload,
        ours=best,
        rival=rival,
        ratio=against(found, workload, best.system, rival.system) if best and rival else None,
        level=tuple(s.system for s in ours if best and s != best and _touch(s, best)),
        undecided=_undecided(found.result.simulated, ours, rivals) if ours and rivals else "",
    )


def against(found: Findings, workload: str, system: str, rival: str) -> Spread | None:
    """Returns how many times a rival's capacity a system has; None where one has none."""
    if found.qps(workload, system) is None or found.qps(workload, rival) is None:
        return None
    mine, theirs = found.capacity(workload, system), found.capacity(workload, rival)
    return ratios(mine.qps, theirs.qps) if mine and theirs else None


def best_of_ours(found: Findings) -> tuple[str, tuple[str, ...]] | None:
    """Which of ours has the highest geometric mean of capacities, of those found in each.

    Returns:
        Its name and the names of those that were found in each workload; None: none was.
    """
    means = {}
    for system in found.ours:
        all_qps = [found.qps(workload, system) for workload in found.workloads]
        known = [each.median for each in all_qps if each is not None and each.median > 0]
        if known and len(known) == len(found.workloads):
            means[system] = math.fsum(map(math.log, known))
    return (max(means, key=means.__getitem__), tuple(means)) if means else None


def _sides(found: Findings, workload: str, systems: Sequence[str]) -> list[Side]:
    sides = []
    for system in systems:
        qps, capacity = found.qps(workload, system), found.capacity(workload, system)
        if qps is not None and capacity is not None:
            side = Side(
                system=system,
                setting=capacity.setting,
                qps=qps,
                noisy=capacity.state == "noisy",
                disturbed=capacity.state == "disturbed",
            )
            sides.append(side)
    return sides


def _undecided(simulated: bool, ours: Sequence[Side], rivals: Sequence[Side]) -> str:
    """Why nobody is ahead: any of the leading side has to be beyond all of the other's.

    Where repetitions of one of the two differ by more than they may, the distance between the two
    has to be at least as wide as those differ: where there is no difference, two repetitions of
    each come out so in 9 of 100 cases, three in 1 of 100.
    """
    best, rival = max(ours, key=_by_median), max(rivals, key=_by_median)
    ahead = best.qps.median >= rival.qps.median
    leader, second, others = (best, rival, rivals) if ahead else (rival, best, ours)
    if disturbed := [s.system for s in (best, rival) if s.disturbed]:
        return f"others used the processors during the runs of {' and '.join(disturbed)}"
    touching = [side.system for side in others if _touch(side, leader)]
    if touching:
        return f"the spreads of {leader.system} and {' and '.join(touching)} overlap"
    apart = leader.qps.least - second.qps.most
    if noisy := [s.system for s in (best, rival) if s.noisy and apart < s.qps.most - s.qps.least]:
        return f"the repetitions of {' and '.join(noisy)} differ too much"
    once = [side.system for side in (best, rival) if side.qps.runs < 2]
    if once and not simulated:
        return f"one repetition doesn't say how far {' and '.join(once)} may vary"
    return ""


def _by_median(side: Side) -> float:
    return side.qps.median


def _touch(one: Side, other: Side) -> bool:
    return one.qps.most >= other.qps.least and other.qps.most >= one.qps.least
