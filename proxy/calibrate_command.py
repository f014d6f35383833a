"""`veltair calibrate`: learns the interference level from what sources tell on this machine."""

from __future__ import annotations

import hashlib
import os
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console

from veltair.proxy.calibration import (
    Bench,
    StoppedError,
    measure,
    most_works,
    planned_rounds,
)
from veltair.proxy.calibration_record import SCHEMA, CalibrationRecord, Header, record_path
from veltair.proxy.co_runners import BUBBLES, CoRunnerOption, choose_co_runner
from veltair.proxy.disturber import Disturber
from veltair.proxy.ending import ended_by_signals
from veltair.proxy.grid import evicting_settings, footprints, settings
from veltair.proxy.levels import l3_bytes_of, reference_beside
from veltair.proxy.observations import OWN, observations_of, table_of
from veltair.proxy.sources.computer import Computer
from veltair.proxy.sources.kinds import KINDS, Works
from veltair.proxy.topology import divided, usable
from veltair.proxy.windows import windows_of
from veltair.proxy.works import Runner, sampled
from veltair.runtime.artifact import open_artifact, resolve_folder
from veltair.runtime.errors import InputError, SourceError
from veltair.runtime.machine import machine_facts
from veltair.runtime.progress_bar import Bar
from veltair.runtime.scratch import scratch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from veltair.proxy.co_runners import CoRunner
    from veltair.proxy.proxy_file import ProxyFile
    from veltair.proxy.sources.reading import Source
    from veltair.proxy.steadiness import Steadiness
    from veltair.proxy.topology import Sides


def command(
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write: proxy.json.")],
    artifacts: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="An artifact whose layers are measured, once for each. Without any, twelve "
            "layers of usual shapes are compiled on the spot.",
        ),
    ] = None,
    minutes: Annotated[
        float, typer.Option(min=0.1, max=1440.0, help="How long to measure, about.")
    ] = 10.0,
    co_runner: CoRunnerOption = BUBBLES,
) -> None:
    """Learn the level of interference from what can be read on this machine.

    Layers run alone, beside bubbles (see veltair bubble) of a grid of footprints and rates or
    evictors of a grid of shares, and beside each other; every source that works here is read, and
    linear models from what it says to the level are trained and tested on layers that they haven't
    seen. All measurements are in a record beside the output, PROXY.record.jsonl: stopped, the same
    command goes on; given more minutes, it adds to it.
    """
    if not output.parent.is_dir():
        raise InputError(f"-o {output}: there is no folder {output.parent}; create it first")
    kind = choose_co_runner(co_runner)
    from veltair.proxy.calibration_report import lines_of  # noqa: PLC0415 # loads scikit-learn
    from veltair.proxy.training import train  # noqa: PLC0415

    with ended_by_signals() as ended, ExitStack() as held:
        bar = held.enter_context(Bar(Console(stderr=True)))
        folders = [resolve_folder(each) for each in artifacts or ()]
        folders = folders or [held.enter_context(_own_layers(bar))]
        artifacts_are = identities(folders)
        record = _record(record_path(output), artifacts_are, kind)
        sides = divided(usable())
        sources = _open_sources(held)
        bar.stage("loading", 1)
        runner = Runner(folders, sides.quiet)
        facts, cpu = machine_facts(), sides.quiet[0]
        reference = held.enter_context(reference_beside(kind, facts, cpu))
        sizes = footprints(l3_bytes_of(facts), sides.per_cache) if kind == BUBBLES else ()
        disturber = held.enter_context(Disturber(sides.bubbles, sizes, folders, reference.victims))
        if record is None:
            header = _header(runner, disturber, sizes, artifacts_are, tuple(sources), minutes)
            record = CalibrationRecord.begin(record_path(output), header)
        bench = Bench(
            runner=runner,
            disturber=disturber,
            reference=reference.kernel,
            sources=sources,
        )
        try:
            with _pinned(sides):
                steady = measure(record, bench, minutes, bar, ended)
        except StoppedError:
            bar.stage("stopped", 0)
            print(f"ended early; {_progress(record, minutes)}: run the same command to go on")
            raise KeyboardInterrupt from None
        bar.stage("training", 1)
        table = table_of(windows_of(observations_of(record, steady.kept)))
        trained = train(table, record.header.machine)
        trained.write(output)
    for line in lines_of(trained, table, record, steady.kept):
        print(line)
    _warn(trained, steady)
    print(f"{output}: {len(trained.models)} models; {record.path} has what they were trained on")


@contextmanager
def _own_layers(bar: Bar) -> Iterator[Path]:
    from veltair.proxy.own_layers import compile_own_layers  # noqa: PLC0415 # loads the compiler

    with scratch("calibrate") as folder:
        yield compile_own_layers(folder, bar)


def identities(folders: Sequence[Path]) -> dict[str, str]:
    """What the layers and versions of each artifact are: the same where it was compiled again."""
    found: dict[str, str] = {}
    for folder in folders:
        manifest = open_artifact(folder, verify=False).manifest
        name = f"{manifest.name}/{manifest.version}"
        if name in found:
            raise InputError(f"--artifacts {folder}: {name} is given twice; give each once")
        layers = [(each.name, each.op, [v.id for v in each.variants]) for each in manifest.layers]
        found[name] = hashlib.sha256(msgspec.json.encode(layers)).hexdigest()[:16]
    return found


def _open_sources(held: ExitStack) -> dict[str, Source]:
    """Every source that works here, but for those that only show that they could."""
    computer, cores = Computer(), usable()
    found: dict[str, Source] = {}
    for kind in KINDS:
        if kind.name == OWN or kind.look(computer, cores).works is not Works.YES:
            continue
        try:
            source = kind.open(computer, cores, [os.getpid()])
        except SourceError as error:
            print(f"veltair: warning: {kind.name} is left out: {error}", file=sys.stderr)
            continue
        found[kind.name] = source

    def close() -> None:  # those that are left
        for source in found.values():
            source.close()

    held.callback(close)
    return found


@contextmanager
def _pinned(sides: Sides) -> Iterator[None]:
    """Keeps this thread off the disturbers' processors: a run that began there would wait."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sides.quiet)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _record(path: Path, artifacts_are: dict[str, str], kind: CoRunner) -> CalibrationRecord | None:
    """The record to go on with, if there is one."""
    if not path.exists():
        return None
    record = CalibrationRecord.read(path)
    record.check_same(machine_facts(), artifacts_are)
    if record.co_runner != kind:
        raise InputError(
            f"{path}: is the record of a calibration with {record.co_runner}; go on with "
            f"--co-runner {record.co_runner}, or give another -o"
        )
    record.drop_cut_line()
    return record


def _header(
    runner: Runner,
    disturber: Disturber,
    sizes: Sequence[int],
    artifacts_are: dict[str, str],
    sources: tuple[str, ...],
    minutes: float,
) -> Header:
    from veltair.proxy.training import check_layers  # noqa: PLC0415 # loads scikit-learn

    works = runner.works()
    check_layers(len({work.key for work in works}))
    grid = settings(disturber, sizes, works) if sizes else evicting_settings(works)
    return Header(
        veltair_calibration=SCHEMA,
        machine=machine_facts(),
        artifacts=artifacts_are,
        settings=grid,
        works=tuple(sampled(works, most_works(len(grid), minutes))),
        sources=(*sources, OWN),
    )


def _progress(record: CalibrationRecord, minutes: float) -> str:
    turns = planned_rounds(record.header, minutes) * len(record.header.works)
    return f"{record.path} has {len(record.turns)} of {turns} turns"


def _warn(trained: ProxyFile, steady: Steadiness) -> None:
    dropped = steady.rounds - len(steady.kept)
    if dropped:
        print(
            f"veltair: warning: {dropped} of {steady.rounds} rounds were left out: alone, the "
            f"reference kernel took up to {steady.drift:.0%} more or less in them",
            file=sys.stderr,
        )
    best = trained.models[0].accuracy.r2
    if best < _GOOD_R2:
        print(
            f"veltair: warning: the best model explains {best:.0%} of the level, so estimates "
            "will have little confidence; calibrate on a quieter machine or longer (--minutes)",
            file=sys.stderr,
        )


_GOOD_R2 = 0.5
