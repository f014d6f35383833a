"""`veltair compile`: an ONNX file to an artifact, with a progress bar and a table at the end."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Annotated, get_args

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from veltair.compiler.clean import Shape
from veltair.compiler.kernels.spec import LANES
from veltair.compiler.pipeline import CompileOptions, check_name, compile_model
from veltair.compiler.table import layer_table, table_console
from veltair.runtime.artifact import available_isa
from veltair.runtime.errors import InputError
from veltair.runtime.manifest import Isa

_NS_PER_MS = 1_000_000


def command(
    model: Annotated[Path, typer.Argument(help="The ONNX file.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The repository: gets NAME/VERSION/.")
    ],
    name: Annotated[str, typer.Option(help="The model's name.  [default: the file's]")] = "",
    model_version: Annotated[int, typer.Option(help="The model's version.", min=1)] = 1,
    qos_ms: Annotated[float, typer.Option(help="Latency target; 0 for none.", min=0.0)] = 0.0,
    shape: Annotated[
        list[str] | None,
        typer.Option(help="Shape of an input with symbolic dimensions: INPUT=1,3,224,224."),
    ] = None,
    isa: Annotated[
        str, typer.Option(help="auto, x86-64-v3 (AVX2) or x86-64-v4 (AVX-512).")
    ] = "auto",
    jobs: Annotated[int, typer.Option(help="Kernels built at once.  [default: cores]")] = 0,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace an artifact.")] = False,
) -> None:
    """Compile an ONNX model: kernels, packed weights, and their profile on this machine."""
    options = CompileOptions(
        model=model,
        repository=output,
        name=check_name(name or model.stem),
        version=model_version,
        qos_ns=round(qos_ms * _NS_PER_MS),
        shapes=dict(_parse_shape(text) for text in shape or []),
        isa=_choose_isa(isa),
        jobs=jobs or len(os.sched_getaffinity(0)),
        force=force,
    )
    console = Console(stderr=True)
    with _Bar(console) as bar:
        result = compile_model(options, bar)
    table_console().print(layer_table(result.manifest))
    print(
        f"{options.target}: {len(result.manifest.layers)} layers for {options.isa}; largest "
        f"difference to ONNX Runtime {result.difference:.1e} of the output's range"
    )


def _parse_shape(text: str) -> tuple[str, Shape]:
    name, _, dims = text.rpartition("=")
    try:
        shape = tuple(int(d) for d in dims.split(",")) if dims else ()
    except ValueError:
        shape = (-1,)
    if not name or any(d < 0 for d in shape):
        raise InputError(f"--shape {text}: expected INPUT=D,D,..., e.g. --shape data=1,3,224,224")
    return name, shape


def _choose_isa(wanted: str) -> Isa:
    available = available_isa()
    if available is None:
        raise InputError("this CPU lacks AVX2 and FMA (x86-64-v3), which every kernel needs")
    if wanted == "auto":
        return available
    for isa in get_args(Isa):
        if isa == wanted:
            if LANES[isa] > LANES[available]:
                raise InputError(
                    f"--isa {wanted}: this CPU has {available}, and a compile measures its "
                    f"kernels; use --isa {available} or compile on a machine that has {wanted}"
                )
            chosen: Isa = isa
            return chosen
    raise InputError(f"--isa {wanted}: unknown; choose auto, {' or '.join(LANES)}")


class _Bar:
    """A progress bar over the compile's stages; `Progress` of the pipeline."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[what]}"),
            console=console,
            expand=True,
        )
        self._task = self._progress.add_task("starting", total=1, what="")
        self._total = 1

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def stage(self, name: str, total: int) -> None:
        """Finishes the stage before and begins a line for the new one."""
        self._progress.update(self._task, completed=self._total, what="")
        self._total = total
        self._task = self._progress.add_task(name, total=total, what="")

    def step(self, what: str) -> None:
        """Advances the stage."""
        self._progress.update(self._task, advance=1, what=what)
