"""Which source is read: the best that works here, or the one that was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from veltair.proxy.sources.computer import Computer
from veltair.proxy.sources.kinds import KINDS, Kind, Works
from veltair.proxy.sources.reading import Source
from veltair.runtime.errors import InputError, SourceError, unknown_name

# Counters first, then the probe. Not `self`: whoever runs blocks adds it, whatever was chosen.
RANKED = tuple(kind.name for kind in KINDS if kind.name != "self")


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The source that was opened.

    Attributes:
        source: it.
        passed_over: why each better one wasn't taken, by name.
    """

    source: Source
    passed_over: Mapping[str, str]


def open_source(name: str, cores: Sequence[int], pids: Sequence[int], computer: Computer) -> Source:
    """Opens the source of this name, whatever else works.

    Args:
        name: of one of `KINDS`.
        cores: whose caches are watched.
        pids: whose threads are watched.
        computer: where.

    Raises:
        InputError: there is no such source.
        SourceError: it doesn't work here; the message says why and what would enable it.
    """
    kind = _named(name)
    verdict = kind.look(computer, cores)
    if verdict.works is Works.NO:
        raise SourceError(f"{name} doesn't work here: {verdict.reason}; enable: {verdict.remedy}")
    return kind.open(computer, cores, pids)


def open_best(
    cores: Sequence[int],
    pids: Sequence[int],
    computer: Computer,
    names: Sequence[str] = RANKED,
) -> Chosen:
    """Opens the first source that works.

    Args:
        cores: whose caches are watched.
        pids: whose threads are watched.
        computer: where.
        names: of those to try, the best first.

    Raises:
        SourceError: none works.
    """
    passed: dict[str, str] = {}
    for kind in map(_named, names):
        verdict = kind.look(computer, cores)
        if verdict.works is not Works.YES:
            passed[kind.name] = verdict.reason
            continue
        try:
            return Chosen(source=kind.open(computer, cores, pids), passed_over=passed)
        except SourceError as error:
            passed[kind.name] = str(error)
    why = "; ".join(f"{name}: {reason}" for name, reason in passed.items()) or "none was named"
    raise SourceError(f"no source works here ({why}): `veltair counters` says what would help")


def _named(name: str) -> Kind:
    known = {kind.name: kind for kind in KINDS}
    if name not in known:
        raise InputError(unknown_name(f"--source {name}", "source", name, list(known)))
    return known[name]
