"""`veltair tune`: searches a model's layers and logs what it finds; makes no artifact."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from veltair.compiler.batching import Batcher
from veltair.compiler.front import Source, read_graph
from veltair.compiler.log_warnings import told_warnings
from veltair.compiler.lower import Request, lower
from veltair.compiler.memory import check_memory, explained_shortage
from veltair.compiler.passes.plan import plan_memory
from veltair.compiler.pipeline import check_name
from veltair.compiler.search.log import log_place
from veltair.compiler.search.variants import (
    SearchOptions,
    known_records,
    search_missing,
    tasks_of,
)
from veltair.compiler.target_options import (
    Batches,
    IsaName,
    Jobs,
    Log,
    Shapes,
    ShippedLogs,
    Values,
    choose_isa,
    parse_batches,
    parse_shape,
    parse_value,
)
from veltair.runtime.errors import InputError
from veltair.runtime.machine import usable_cores
from veltair.runtime.manifest import LANES, Isa
from veltair.runtime.progress_bar import Bar
from veltair.runtime.scratch import scratch

_NAMED = 10  # layers that a message lists


def command(
    model: Annotated[Path, typer.Argument(help="The ONNX file.")],
    trials: Annotated[
        int, typer.Option(help="Samples of this machine that each layer shall have.", min=1)
    ] = 32,
    layers: Annotated[
        str, typer.Option(help="Only layers whose node or operator matches: '*conv3x3*'.")
    ] = "*",
    log: Log = None,
    shipped_logs: ShippedLogs = True,
    shape: Shapes = None,
    value: Values = None,
    batch: Batches = "1",
    isa: IsaName = "auto",
    jobs: Jobs = 0,
) -> None:
    """Search the layers of an ONNX model and keep every sample in a tuning log.

    Samples that are in the logs already count, so that an ended search goes on where it was. Those
    of other machines don't, but what was fastest there is tried first.
    """
    chosen = choose_isa(isa)
    options = SearchOptions(
        isa=chosen,
        trials=trials,
        most_variants=1,
        qos_ns=0,
        qos_share="flops",
        logs=log_place(chosen, check_name(model.stem), log, shipped=shipped_logs),
        jobs=jobs or usable_cores(),
        cores=usable_cores(),
    )
    source = Source(
        path=model,
        shapes=dict(parse_shape(text) for text in shape or []),
        values=dict(parse_value(text) for text in value or []),
        lanes=LANES[chosen],
    )
    batches = parse_batches(batch)
    try:
        with told_warnings(), explained_shortage(model), Bar(Console(stderr=True)) as bar:
            bar.stage("reading", 1)
            tasks = tasks_of(_matching(_requests(source, batches, chosen), layers), chosen)
            known = known_records(tasks, options)
            with scratch("objects") as objects:
                found = search_missing(tasks, known, options, objects, bar)
    except KeyboardInterrupt:
        print(f"ended early; {options.logs.own} has every finished sample: run again to go on")
        raise
    measured = sum(len(records) for records in found.values())
    print(
        f"{len(found)} of {len(tasks)} layers searched to {trials} trials: {measured} samples in "
        f"{options.logs.own}"
        if found
        else f"nothing to search: all {len(tasks)} layers have {trials} trials, or their whole "
        "space, in the logs"
    )


def _requests(source: Source, batches: Sequence[int], isa: Isa) -> list[Request]:
    """The layers of one sample, and of each batch."""
    front = read_graph(source)
    batcher = Batcher(source, front)
    several = (batcher.graph(batcher.batched(size)) for size in batches)
    requests = []
    for graph in (front.graph, *several):
        plan = plan_memory(graph, source.lanes)
        check_memory(source.path, graph, plan)
        requests += lower(graph, plan, isa)
    return requests


def _matching(requests: list[Request], pattern: str) -> list[Request]:
    found = [
        request
        for request in requests
        if any(fnmatch.fnmatchcase(name, pattern) for name in (request.op, *request.nodes))
    ]
    if not found:
        named = [request.nodes[-1] for request in requests if request.nodes][:_NAMED]
        raise InputError(
            f"--layers {pattern}: no layer's node or operator matches; there are "
            f"{', '.join(named)}, ..."
        )
    return found
