"""What a model of interference sees: named values made of the counts of one or several sources.

A count alone says as much of the work that is done as of what disturbs it. A feature is a count
over another one of the same place, or over the time; or a state that is taken as it is. Training
and the server make them here, so that a coefficient means the same in both.

| feature | of |
|---|---|
| `llc_miss_rate` | `llc_misses` / `llc_references`: the paper's L3 miss rate |
| `llc_references_per_cycle`, `llc_misses_per_cycle` | the paper's L3 accesses |
| `instructions_per_cycle`, `flops_per_cycle` | |
| `l3_miss_rate` | `l3_misses` / `l3_accesses`, of a core complex |
| `l3_access_rate`, `l3_miss_traffic` | a second |
| `memory_read_rate`, `memory_written_rate`, `memory_moved_rate` | bytes a second |
| `l3_occupancy` | bytes |
| `probe_step`, `probe_step_high`, `probe_again` | ns, see `sources/probe.py` |
| `block_level`, `block_slowdown` | see `sources/own.py` |

Reference: VELTAIR, section 4.3, whose model has the L3 miss rate and the L3 accesses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from veltair.proxy.sources.reading import Count, Missing, Reading, Scope

_NS_PER_S = 1e9


@dataclass(frozen=True, kw_only=True)
class Feature:
    """One value, and how far it can be trusted.

    Attributes:
        value: finite.
        confidence: from 0 to 1: of the count that has the least, and less where some places lacked
            one.
    """

    value: float
    confidence: float


Features = Mapping[str, Feature]  # by name; what can't be told isn't there


@dataclass(frozen=True, kw_only=True)
class _Ratio:
    """One count over another, summed over the places that have both."""

    over: str
    under: str


@dataclass(frozen=True, kw_only=True)
class _Rate:
    """A count a second, mean over places."""

    of: str


@dataclass(frozen=True, kw_only=True)
class _State:
    """A count as it is, mean over places weighed by confidence."""

    of: str


_MADE_OF: dict[str, _Ratio | _Rate | _State] = {
    "llc_miss_rate": _Ratio(over="llc_misses", under="llc_references"),
    "llc_references_per_cycle": _Ratio(over="llc_references", under="cycles"),
    "llc_misses_per_cycle": _Ratio(over="llc_misses", under="cycles"),
    "instructions_per_cycle": _Ratio(over="instructions", under="cycles"),
    "flops_per_cycle": _Ratio(over="flops", under="cycles"),
    "l3_miss_rate": _Ratio(over="l3_misses", under="l3_accesses"),
    "l3_access_rate": _Rate(of="l3_accesses"),
    "l3_miss_traffic": _Rate(of="l3_misses"),
    "memory_read_rate": _Rate(of="memory_read"),
    "memory_written_rate": _Rate(of="memory_written"),
    "memory_moved_rate": _Rate(of="memory_moved"),
    "l3_occupancy": _State(of="l3_occupancy"),
    "probe_step": _State(of="probe_step"),
    "probe_step_high": _State(of="probe_step_high"),
    "probe_again": _State(of="probe_again"),
    "block_level": _State(of="block_level"),
    "block_slowdown": _State(of="block_slowdown"),
}
FEATURES = tuple(_MADE_OF)
_STATES = frozenset(made.of for made in _MADE_OF.values() if isinstance(made, _State))
_SUMMED = frozenset(
    name
    for made in _MADE_OF.values()
    if not isinstance(made, _State)
    for name in ((made.over, made.under) if isinstance(made, _Ratio) else (made.of,))
)


def features(readings: Sequence[Reading], where: str | None = None) -> Features:
    """Makes all features that some readings of the same time allow.

    Args:
        readings: one of each source.
        where: leave out the counts of other cores and core complexes (`Count.where`); those of
            tasks and of the machine stay. None takes all.

    Returns:
        By name. A feature isn't there if a count of it is missing in all places, if nothing of it
        was counted, or if no time has passed.
    """
    found: dict[str, Feature] = {}
    for reading in readings:
        counts = [each for each in reading.counts if where is None or _is_of(each, where)]
        lacking = {each.name: 0 for each in reading.missing}
        for each in reading.missing:
            lacking[each.name] += 1
        by_name: dict[str, list[Count]] = {}
        for count in counts:
            by_name.setdefault(count.name, []).append(count)
        for name, made_of in _MADE_OF.items():
            feature = _made(made_of, by_name, lacking, reading.elapsed_ns)
            if feature is not None:
                found[name] = feature
    return found


def together(readings: Sequence[Reading]) -> Reading:
    """Returns what a source would have said of the time of several of its readings.

    Counts add up, and one that a reading lacks is missing; states are averaged by confidence. What
    no feature is made of isn't there.
    """
    counts: dict[tuple[str, str], list[Count]] = {}
    for reading in readings:
        for count in reading.counts:
            counts.setdefault((count.name, count.where), []).append(count)
    found, missing = [], []
    for (name, where), parts in counts.items():
        confidence = sum(each.confidence for each in parts)
        if name in _STATES and confidence > 0:
            value = sum(each.value * each.confidence for each in parts) / confidence
            found.append(replace(parts[0], value=value, confidence=min(1.0, confidence)))
        elif name in _SUMMED and len(parts) == len(readings):
            least = min(each.confidence for each in parts)
            value = sum(each.value for each in parts)
            found.append(replace(parts[0], value=value, confidence=least))
        elif name in _SUMMED:
            missing.append(Missing(name=name, where=where, reason="a part of the time lacks it"))
    return Reading(
        time_ns=max(each.time_ns for each in readings),
        elapsed_ns=sum(each.elapsed_ns for each in readings),
        counts=tuple(found),
        missing=tuple(missing),
    )


def _is_of(count: Count, where: str) -> bool:
    return count.scope in (Scope.TASK, Scope.MACHINE) or count.where == where


def _made(
    made_of: _Ratio | _Rate | _State,
    counts: Mapping[str, Sequence[Count]],
    lacking: Mapping[str, int],
    elapsed_ns: int,
) -> Feature | None:
    if isinstance(made_of, _Ratio):
        return _ratio(counts.get(made_of.over, ()), counts.get(made_of.under, ()))
    used = counts.get(made_of.of, ())
    if not used:
        return None
    # What some places lack is not guessed from the others without saying so.
    known = len(used) / (len(used) + lacking.get(made_of.of, 0))
    if isinstance(made_of, _State):
        return _weighed(used, known)
    if elapsed_ns <= 0:
        return None
    total = sum(each.value for each in used) / len(used)
    confidence = min(each.confidence for each in used) * known
    return Feature(value=total * _NS_PER_S / elapsed_ns, confidence=confidence)


def _ratio(over: Sequence[Count], under: Sequence[Count]) -> Feature | None:
    below = {each.where: each for each in under}
    above = {each.where: each for each in over}
    both = [(above[where], below[where]) for where in above if where in below]
    total = sum(each.value for _, each in both)
    if not both or total <= 0:
        return None
    known = len(both) / len(above.keys() | below.keys())
    confidence = min(min(pair[0].confidence, pair[1].confidence) for pair in both) * known
    return Feature(value=sum(each.value for each, _ in both) / total, confidence=confidence)


def _weighed(used: Sequence[Count], known: float) -> Feature | None:
    weight = sum(each.confidence for each in used)
    if weight <= 0:
        return None
    value = sum(each.value * each.confidence for each in used) / weight
    return Feature(value=value, confidence=weight / len(used) * known)
