"""The options that every command on an ONNX model reads: shapes of inputs, instruction set."""

from __future__ import annotations

from typing import get_args

from veltair.compiler.clean import Shape
from veltair.compiler.kernels.spec import LANES
from veltair.runtime.artifact import available_isa
from veltair.runtime.errors import InputError
from veltair.runtime.manifest import Isa


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
    if not name or any(d < 0 for d in shape):
        raise InputError(f"--shape {text}: expected INPUT=D,D,..., e.g. --shape data=1,3,224,224")
    return name, shape


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
