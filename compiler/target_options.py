"""The options that every command on an ONNX model has, and what two of them mean."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import numpy as np
import typer

from veltair.compiler.binding import Array, Shape
from veltair.runtime.artifact import available_isa
from veltair.runtime.errors import InputError
from veltair.runtime.manifest import LANES, MOST_SAMPLES, Isa

Shapes = Annotated[
    list[str] | None,
    typer.Option(help="Shape of an input with symbolic dimensions: INPUT=1,3,224,224."),
]
Values = Annotated[
    list[str] | None,
    typer.Option(help="Value of an input that becomes a constant: INPUT=2,3 or INPUT=0.5."),
]
Batches = Annotated[
    str, typer.Option("--batch", help="Samples that a run can have: 1,2,4,8; 1 is always there.")
]
IsaName = Annotated[str, typer.Option(help="auto, x86-64-v3 (AVX2) or x86-64-v4 (AVX-512).")]
Jobs = Annotated[int, typer.Option(help="Kernels built at once.  [default: cores]")]
Log = Annotated[
    Path | None, typer.Option(help="Tuning log to read and extend.  [default: the user's]")
]
ShippedLogs = Annotated[
    bool,
    typer.Option("--shipped-logs/--no-shipped-logs", help="Read the logs that come with this."),
]

_LARGEST_SIZE = (1 << 63) - 1  # that ONNX holds
_MOST_ROOM = 1 << 30  # bytes of a tensor whose size only a value tells


def parse_shape(text: str) -> tuple[str, Shape]:
    """An input's name and shape.

    Raises:
        InputError: the text is no such thing.
    """
    name, _, dims = text.rpartition("=")
    try:
        shape = tuple(int(d) for d in dims.split(",")) if dims else ()
    except ValueError:
        shape = (-1,)
    if not name or any(not 0 <= d <= _LARGEST_SIZE for d in shape):
        raise InputError(
            f"--shape {text}: expected INPUT=D,D,..., each of 0 to {_LARGEST_SIZE}, e.g. "
            "--shape data=1,3,224,224"
        )
    return name, shape


def parse_value(text: str) -> tuple[str, Array]:
    """An input's name and numbers; a single one is a scalar.

    Raises:
        InputError: the text is no such thing.
    """
    name, _, listed = text.rpartition("=")
    try:
        numbers = [_number(each) for each in listed.split(",")] if listed else []
    except ValueError:
        name = ""
    if not name:
        raise InputError(f"--value {text}: expected INPUT=NUMBER,NUMBER,..., e.g. --value axes=2,3")
    return name, np.array(numbers[0] if len(numbers) == 1 else numbers)


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def parse_most_bytes(text: str) -> tuple[str, int]:
    """A name and the bytes that there is room for.

    Raises:
        InputError: the text is no such thing.
    """
    name, _, size = text.rpartition("=")
    if not name or not (size.isascii() and size.isdigit()) or not 0 < int(size) <= _MOST_ROOM:
        raise InputError(
            f"--most-bytes {text}: expected NAME=BYTES, from 1 to {_MOST_ROOM}, e.g. "
            "--most-bytes boxes=65536"
        )
    return name, int(size)


def parse_batches(text: str) -> tuple[int, ...]:
    """The sizes of a list but 1, ascending.

    Raises:
        InputError: the text is no such list.
    """
    sizes = [int(s) if s.strip().isascii() and s.strip().isdigit() else 0 for s in text.split(",")]
    if not all(1 <= size <= MOST_SAMPLES for size in sizes):
        raise InputError(
            f"--batch {text}: expected numbers of samples from 1 to {MOST_SAMPLES}, e.g. "
            "--batch 1,2,4,8"
        )
    return tuple(sorted({*sizes} - {1}))


def choose_isa(wanted: str) -> Isa:
    """The instruction set of a name, or this CPU's best for `auto`.

    Raises:
        InputError: it is unknown, or this CPU lacks it.
    """
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
