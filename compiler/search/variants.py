"""From a model's layers to the variants of each: logs first, a search for what they lack.

Reference: VELTAIR, section 4.1, Algorithm 1.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from veltair.compiler.kernels.choices import Choice
from veltair.compiler.lower import Request
from veltair.compiler.passes.plan import Placement
from veltair.compiler.progress import Progress
from veltair.compiler.search.example import can_check
from veltair.compiler.search.key import Spec, key_of
from veltair.compiler.search.known import Known, by_layer
from veltair.compiler.search.log import (
    DamagedLogWarning,
    LogPlace,
    LogWriter,
    Record,
    read_logs,
    this_machine,
)
from veltair.compiler.search.proposal import draw_order, missing_trials
from veltair.compiler.search.samples import (
    SCHEMA,
    LayerSearch,
    QosShare,
    Sample,
    SearchReport,
)
from veltair.compiler.search.search import Search, Task
from veltair.compiler.search.selection import Measured, Selection, select, shares_ns, time_weights
from veltair.compiler.search.spaces import check, space_of
from veltair.runtime.machine import usable_cores
from veltair.runtime.manifest import ALIGNMENT_BYTES


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How variants are found.

    Attributes:
        isa: instruction set.
        trials: samples of this machine that each layer shall have; what the logs lack is searched.
        most_variants: kept of a layer, at least 1.
        qos_ns: the model's latency target; 0 for none.
        qos_share: how it is divided among the layers.
        logs: where samples are read and written.
        jobs: candidates built at once.
        cores: of the machine that it is for.
    """

    isa: str
    trials: int
    most_variants: int
    qos_ns: int
    qos_share: QosShare
    logs: LogPlace
    jobs: int
    cores: int


@dataclass(frozen=True, kw_only=True)
class LayerChoices:
    """What a search found for the layers of one spec.

    Attributes:
        choices: the variants, the fastest first; empty for the one kernel of the cost models.
        records: every sample.
        selection: how the choices came about; None without samples.
        share_ns: of the QoS.
        dropped: candidates that were not worth building.
    """

    choices: tuple[Choice, ...] = ()
    records: tuple[Record, ...] = ()
    selection: Selection | None = None
    share_ns: int = 0
    dropped: int = 0


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a search found for a model.

    Attributes:
        layers: of each request, in order.
        wall_ns: how long candidates were searched.
        objects: compiled kernels by symbol.
    """

    layers: tuple[LayerChoices, ...]
    wall_ns: int
    objects: Mapping[str, Path] = field(default_factory=dict)


def spec_of(request: Request) -> Spec | None:
    """The layer's spec where it has a space that can be searched; None where it hasn't."""
    spec = request.key
    return spec if isinstance(spec, Spec) and can_check(spec) else None


def tasks_of(requests: Sequence[Request], isa: str) -> dict[str, Task]:
    """One task for each structural key, the costliest layers first."""
    cores = usable_cores()
    flops: dict[str, int] = {}
    tasks: dict[str, Task] = {}
    for request in requests:
        spec = spec_of(request)
        if spec is None:
            continue
        key = key_of(spec, isa)
        flops[key] = flops.get(key, 0) + request.flops
        if key in tasks:
            continue
        space = space_of(spec, isa, cores)
        if space is None:
            continue
        # What a kernel packs is not placed; other constants are, in the artifact's weights.
        places = [a for a in request.arguments if isinstance(a, Placement) or a.packing == "none"]
        offsets = tuple(
            p.offset_bytes % ALIGNMENT_BYTES if isinstance(p, Placement) else 0 for p in places
        )
        tasks[key] = Task(key=key, spec=spec, isa=isa, space=space, offsets=offsets)
    return {key: tasks[key] for key in sorted(tasks, key=lambda key: -flops[key])}


def core_counts() -> tuple[int, ...]:
    """What samples are measured on: one core, and all of this process."""
    cores = usable_cores()
    return (1, cores) if cores > 1 else (1,)


def find_variants(
    requests: Sequence[Request], options: SearchOptions, objects: Path, progress: Progress
) -> Found:
    """Finds the variants of every layer.

    Args:
        requests: the model's layers.
        options: how.
        objects: folder for compiled candidates; the result names those in it.
        progress: hears of each trial.

    Raises:
        VeltairError: a log can't be written, or nothing can be measured here.
    """
    tasks = tasks_of(requests, options.isa)
    known = known_records(tasks, options)
    begun_ns = time.monotonic_ns()
    searched = search_missing(tasks, known, options, objects, progress)
    wall_ns = time.monotonic_ns() - begun_ns if searched else 0
    for key, records in searched.items():
        known[key] = replace(known.get(key, Known()), own=tuple(records))
    counting = {key: of.counting for key, of in known.items()}
    layers = _choose(requests, tasks, counting, options)
    return Found(
        layers=layers,
        wall_ns=wall_ns,
        objects={path.stem: path for path in objects.glob("*.o")},
    )


def known_records(tasks: Mapping[str, Task], options: SearchOptions) -> dict[str, Known]:
    """What the logs have of the layers.

    Warns:
        DamagedLogWarning: a line was skipped, or its choice can't be built for its layer.
    """
    read = (r for r in read_logs(options.logs, options.isa) if r.key in tasks)
    return by_layer((r for r in read if _fits(tasks[r.key], r)), this_machine())


def _fits(task: Task, record: Record) -> bool:
    try:
        check(task.spec, task.isa, record.choice)
    except ValueError as error:
        warnings.warn(
            f"tuning log: {task.key}: trial {record.trial} skipped: {error}",
            DamagedLogWarning,
            stacklevel=2,
        )
        return False
    return True


def search_missing(
    tasks: Mapping[str, Task],
    known: Mapping[str, Known],
    options: SearchOptions,
    objects: Path,
    progress: Progress,
) -> dict[str, list[Record]]:
    """Searches the layers of which this machine has fewer records than there shall be trials.

    What other machines found fastest is tried first.

    Returns:
        This machine's records of the layers that were searched.
    """
    missing = {}
    for key, task in tasks.items():
        of = known.get(key, Known())
        order = draw_order(task.space, key, of.hints)
        missing[key] = missing_trials(order, {r.choice for r in of.own}, options.trials)
    missing = {key: count for key, count in missing.items() if count}
    if not missing:
        return {}
    progress.stage("searching", sum(missing.values()))
    found = {}
    log = LogWriter(options.logs.own)
    with Search(log, core_counts(), options.jobs, objects) as search:
        for key in missing:
            of, heard = known.get(key, Known()), _Trials(progress)
            found[key] = search.run(tasks[key], of.own, options.trials, heard, of.hints)
    return found


class _Trials:
    """Steps of a progress for trials."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def trial(self, record: Record) -> None:
        """A step, named by the candidate and what came of it."""
        self._progress.step(trial_text(record))


def trial_text(record: Record) -> str:
    """A trial in a few words."""
    name = record.id or "not built"
    if record.status == "failed":
        return f"{name}: {record.reason}"
    times = ", ".join(f"{ns / 1e6:.3f} ms on {count}" for count, ns in sorted(record.ns.items()))
    return f"{name}: {times}"


def _choose(
    requests: Sequence[Request],
    tasks: Mapping[str, Task],
    records: Mapping[str, Sequence[Record]],
    options: SearchOptions,
) -> tuple[LayerChoices, ...]:
    keys = []
    for request in requests:
        spec = spec_of(request)
        key = "" if spec is None else key_of(spec, options.isa)
        keys.append(key if key in tasks else "")
    of_layer = [_unique_ids(records.get(key, ())) for key in keys]
    measured = [[_measured(r, options.cores) for r in of if r.status == "ok"] for of in of_layer]
    weights = [float(request.flops) for request in requests]
    if options.qos_share == "measured":
        best_ns = [min((m.solo_ns for m in of), default=0) for of in measured]
        weights = time_weights([request.flops for request in requests], best_ns)
    layers = []
    for i, share_ns in enumerate(shares_ns(options.qos_ns, weights)):
        task = tasks.get(keys[i])
        selection = None
        if measured[i]:
            elsewhere = bool(_elsewhere(of_layer[i]))
            selection = select(measured[i], share_ns, options.most_variants, elsewhere=elsewhere)
        layers.append(
            LayerChoices(
                choices=tuple(m.choice for m in selection.chosen) if selection else (),
                records=tuple(of_layer[i]),
                selection=selection,
                share_ns=share_ns,
                dropped=task.space.dropped if task else 0,
            )
        )
    return tuple(layers)


def _unique_ids(records: Sequence[Record]) -> list[Record]:
    """In the order of the trials; of two that make the same kernel, the later measurement."""
    by_id = {record.id or str(record.choice): record for record in records}
    return sorted(by_id.values(), key=lambda record: record.trial)


def _measured(record: Record, cores: int) -> Measured:
    return Measured(
        choice=record.choice,
        parallelism=record.parallelism,
        block_bytes=record.block_bytes,
        ns=record.for_cores(cores),
        task_ns=record.task_ns,
    )


def report(
    names: Sequence[str], requests: Sequence[Request], found: Found, options: SearchOptions
) -> SearchReport:
    """What `search.json` says.

    Args:
        names: of the manifest's layers.
        requests: the same layers.
        found: of the same layers.
        options: of the search.
    """
    return SearchReport(
        schema=SCHEMA,
        isa=options.isa,
        qos_ns=options.qos_ns,
        qos_share=options.qos_share,
        most_variants=options.most_variants,
        wall_ns=found.wall_ns,
        layers=tuple(
            LayerSearch(
                name=name,
                op=request.op,
                flops=request.flops,
                qos_share_ns=layer.share_ns,
                dropped=layer.dropped,
                missed_ns=layer.selection.missed_ns if layer.selection else 0,
                machine=_elsewhere(layer.records),
                samples=tuple(_sample(record, layer.selection) for record in layer.records),
            )
            for name, request, layer in zip(names, requests, found.layers, strict=True)
        ),
    )


def _elsewhere(records: Sequence[Record]) -> str:
    machine = records[0].machine if records else ""
    return "" if machine == this_machine() else machine


def _sample(record: Record, selection: Selection | None) -> Sample:
    frontier = {m.choice for m in selection.frontier} if selection else set()
    chosen = {m.choice for m in selection.chosen} if selection else set()
    within = {m.choice for m in selection.within} if selection else set()
    limit_ns = selection.limit_ns if selection else 0
    late = record.status == "ok" and record.choice not in within
    return Sample(
        id=record.id,
        algorithm=str(record.choice.__struct_config__.tag),
        parallelism=record.parallelism,
        block_bytes=record.block_bytes,
        solo_ns=record.solo_ns,
        status="filtered" if late else record.status,
        reason=f"slower than {limit_ns / 1e6:.3f} ms" if late else record.reason,
        is_frontier=record.choice in frontier,
        is_chosen=record.choice in chosen,
    )
