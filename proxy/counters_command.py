"""`veltair counters`: which sources of interference work here, why not, and what they read."""

from __future__ import annotations

import json
import os
import textwrap
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veltair.proxy.ending import ended_by_signals
from veltair.proxy.sources.choice import open_best, open_source
from veltair.proxy.sources.computer import Computer
from veltair.proxy.sources.kinds import KINDS, Works
from veltair.proxy.sources.recording import Recorder, Replay, plain
from veltair.proxy.topology import usable
from veltair.runtime.errors import InputError
from veltair.runtime.files import write_whole
from veltair.runtime.machine import machine_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from veltair.proxy.ending import Ended
    from veltair.proxy.sources.reading import Reading, Source

_EVERY_S = 1.0
_LONGEST_S = 86_400.0
_INDENT = " " * 15


def command(
    read: Annotated[
        float | None, typer.Option(help="Read the source for so many seconds and print it.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="The source to read; the best that works if not given.")
    ] = None,
    pid: Annotated[
        list[int] | None,
        typer.Option(help="A process to watch, once for each; this one if not given."),
    ] = None,
    every: Annotated[float, typer.Option(help="Seconds between readings.")] = _EVERY_S,
    record: Annotated[
        Path | None, typer.Option(help="A file to write the readings to, one JSON object a line.")
    ] = None,
    replay: Annotated[
        Path | None, typer.Option(help="Print the readings of such a file instead.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="A file to write what was found to.")
    ] = None,
) -> None:
    """List the sources that tell how much work on this machine disturbs each other.

    For each: whether it works here, and if not, why and what would enable it. The first that works
    is the one that is read, `self` beside it.
    """
    _check(read, source, every, record, replay)
    for option, path in (("--json", json_file), ("--record", record)):
        if path is not None and not path.parent.is_dir():
            raise InputError(f"{option} {path}: there is no folder {path.parent}; create it first")
    report: dict[str, Any] = {"machine": machine_facts(), "readings": []}
    if replay is not None:
        report |= _replayed(Replay(replay))
    elif read is None:
        report |= _listed(Computer(), usable())
    else:
        # From before the source is opened: what it holds of the system is given back at an end.
        with ended_by_signals() as ended, ExitStack() as held:
            opened, passed = _opened(source, pid or [os.getpid()], held, record)
            report |= {"source": opened.name, "passed_over": passed}
            print(f"reading {opened.name}", flush=True)
            report["readings"] = _read(opened, read, every, ended)
    if json_file is not None:
        _write(json_file, report)


def _check(
    read: float | None,
    source: str | None,
    every: float,
    record: Path | None,
    replay: Path | None,
) -> None:
    if read is not None and not 0 < read <= _LONGEST_S:
        raise InputError(f"--read {read:g}: give seconds above 0, up to {_LONGEST_S:g}")
    if not 0.001 <= every <= _LONGEST_S:
        raise InputError(f"--every {every:g}: give seconds from 0.001 to {_LONGEST_S:g}")
    if read is None and (source is not None or record is not None):
        option = "--source" if source is not None else "--record"
        raise InputError(f"{option} is of use with --read SECONDS alone: give it too")
    if replay is not None and read is not None:
        raise InputError("--replay and --read exclude each other: leave one out")


def _listed(computer: Computer, cores: Sequence[int]) -> dict[str, Any]:
    """Prints the table, and returns it."""
    rows = []
    chosen = None
    print(f"{'source':<15}{'works':<8}counts")
    for kind in KINDS:
        verdict = kind.look(computer, cores)
        if verdict.works is Works.YES and chosen is None:
            chosen = kind.name
        print(f"{kind.name:<15}{verdict.works.value:<8}{kind.counts}")
        for word, text in (("why: ", verdict.reason), ("enable: ", verdict.remedy)):
            if text:
                print(
                    textwrap.fill(
                        word + text, 100, initial_indent=_INDENT, subsequent_indent=_INDENT
                    )
                )
        rows.append(
            {
                "source": kind.name,
                "works": verdict.works.value,
                "counts": kind.counts,
                "reason": verdict.reason,
                "remedy": verdict.remedy,
            }
        )
    print(f"chosen: {chosen}, and self")
    return {"sources": rows, "chosen": chosen}


def _opened(
    name: str | None, pids: Sequence[int], held: ExitStack, record: Path | None
) -> tuple[Source, dict[str, str]]:
    """Opens the source, its recorder around it; `held` closes them."""
    computer, cores = Computer(), usable()
    passed: dict[str, str] = {}
    if name is not None:
        source = open_source(name, cores, pids, computer)
    else:
        chosen = open_best(cores, pids, computer)
        source, passed = chosen.source, dict(chosen.passed_over)
    held.callback(source.close)
    if record is None:
        return source, passed
    try:
        file = held.enter_context(record.open("w"))
        return Recorder(source, file), passed
    except OSError as error:
        raise InputError(f"--record {record}: can't be written ({error.strerror})") from error


def _read(source: Source, seconds: float, every_s: float, ended: Ended) -> list[dict[str, Any]]:
    """Reads until the time is over or a signal ends it; prints and returns the readings."""
    readings = []
    end_s = time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0:
        if ended.wait(min(every_s, left_s)):
            break
        reading = source.read()
        _print(reading)
        readings.append(plain(reading))
    return readings


def _replayed(source: Replay) -> dict[str, Any]:
    print(source.name)
    readings = []
    for _ in range(len(source)):
        reading = source.read()
        _print(reading)
        readings.append(plain(reading))
    return {"source": source.name, "readings": readings}


def _print(reading: Reading) -> None:
    print(f"{reading.elapsed_ns / 1e9:.3f} s")
    for each in reading.counts:
        print(
            f"  {each.name:<20}{each.value:>16.6g} {each.unit} of the {each.scope.value} "
            f"({each.where}), confidence {each.confidence:.2f}"
        )
    for lack in reading.missing:
        print(f"  {lack.name:<20}{'-':>16} ({lack.where}): {lack.reason}", flush=True)


def _write(path: Path, report: dict[str, Any]) -> None:
    try:
        write_whole(path, (json.dumps(report, indent=1) + "\n").encode())
    except OSError as error:
        raise InputError(f"--json {path}: can't be written ({error.strerror})") from error
