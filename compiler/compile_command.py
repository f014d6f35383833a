"""`veltair compile`: an ONNX file to an artifact, with a progress bar and a table at the end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.console import Console

from veltair.compiler.fallback_summary import fallback_summary
from veltair.compiler.log_warnings import told_warnings
from veltair.compiler.pipeline import CompileOptions, check_name, compile_model
from veltair.compiler.profile import MOST_LEVELS, fewer_levels
from veltair.compiler.search.samples import QosShare
from veltair.compiler.search.summary import search_summary
from veltair.compiler.table import batches_text, layer_table, table_console
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
    parse_most_bytes,
    parse_shape,
    parse_value,
)
from veltair.proxy.co_runners import BUBBLES, CoRunnerOption, choose_co_runner
from veltair.runtime.errors import InputError
from veltair.runtime.machine import usable_cores
from veltair.runtime.progress_bar import Bar

_NS_PER_MS = 1_000_000


def command(
    model: Annotated[Path, typer.Argument(help="The ONNX file.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The repository: gets NAME/VERSION/.")
    ],
    name: Annotated[str, typer.Option(help="The model's name.  [default: the file's]")] = "",
    model_version: Annotated[int, typer.Option(help="The model's version.", min=1)] = 1,
    qos_ms: Annotated[
        float, typer.Option(help="Latency target; 0 for none.", min=0.0, max=1e9)
    ] = 0.0,
    shape: Shapes = None,
    value: Values = None,
    batch: Batches = "1",
    isa: IsaName = "auto",
    jobs: Jobs = 0,
    trials: Annotated[
        int,
        typer.Option(
            help="Samples of each layer on this machine; searches what the logs lack.", min=0
        ),
    ] = 0,
    variants: Annotated[
        int, typer.Option(help="Most versions of a layer that are kept.", min=1)
    ] = 5,
    cores: Annotated[
        int | None,
        typer.Option(
            help="Of the machine that it is for: with more than there are here, versions are "
            "chosen by what their tasks would take there.  [default: this machine's]",
            min=1,
            max=4096,
        ),
    ] = None,
    qos_share: Annotated[
        str, typer.Option(help="A layer's part of the target: by flops or by measured time.")
    ] = "flops",
    log: Log = None,
    shipped_logs: ShippedLogs = True,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace an artifact.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse a model of which parts can't be compiled.")
    ] = False,
    most_bytes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=BYTES",
            help="Room for an input or output whose size only a value tells.  [default: 1048576]",
        ),
    ] = None,
    levels: Annotated[
        int,
        typer.Option(
            min=1, max=MOST_LEVELS, help="Interference levels to profile, the one alone included."
        ),
    ] = 1,
    co_runner: CoRunnerOption = BUBBLES,
) -> None:
    """Compile an ONNX model: kernels, packed weights, and their profile on this machine."""
    options = CompileOptions(
        model=model,
        repository=output,
        name=check_name(name or model.stem),
        version=model_version,
        qos_ns=round(qos_ms * _NS_PER_MS),
        shapes=dict(parse_shape(text) for text in shape or []),
        values=dict(parse_value(text) for text in value or []),
        batches=parse_batches(batch),
        isa=choose_isa(isa),
        jobs=jobs or usable_cores(),
        force=force,
        levels=levels,
        co_runner=choose_co_runner(co_runner),
        trials=trials,
        variants=variants,
        cores=cores,
        qos_share=_choose_share(qos_share),
        log=log,
        shipped_logs=shipped_logs,
        strict=strict,
        most_bytes=dict(parse_most_bytes(text) for text in most_bytes or []),
    )
    with told_warnings(), Bar(Console(stderr=True)) as bar:
        result = compile_model(options, bar)
    table_console().print(layer_table(result.manifest))
    compared = (
        "not compared with ONNX Runtime, which refuses the inputs that were drawn"
        if result.difference is None
        else f"largest difference to ONNX Runtime {result.difference:.1e} of the output's range"
    )
    print(f"{options.target}: {len(result.manifest.layers)} layers for {options.isa}; {compared}")
    told = result.manifest
    summary = (*batches_text(told), *fallback_summary(told), *search_summary(result.search))
    for line in (*result.deviating, *summary):
        print(line)
    for warning in (result.doubt, fewer_levels(result.manifest.profile, levels)):
        if warning:
            print(f"veltair: warning: {warning}", file=sys.stderr)


def _choose_share(wanted: str) -> QosShare:
    for share in get_args(QosShare):
        if share == wanted:
            chosen: QosShare = share
            return chosen
    raise InputError(f"--qos-share {wanted}: unknown; choose {' or '.join(get_args(QosShare))}")
