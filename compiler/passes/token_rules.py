"""Normal forms of what networks over tokens are made of, and of arithmetic with constants."""

from __future__ import annotations

import math

import numpy as np

from veltair.compiler.graph import Op
from veltair.compiler.passes.rewrite import Rewriter, binary, emit_default, is_float


def layer_norm(rewriter: Rewriter, op: Op) -> None:
    """Layer normalisation by constants, over the last dimensions as if they were one."""
    shape = rewriter.tensors[op.inputs[0]].shape
    axis = int(op.attrs.get("axis", -1)) % max(len(shape), 1)
    columns = math.prod(shape[axis:])
    constants = [rewriter.data(n) for n in op.inputs[1:] if n]
    simple = (
        is_float(rewriter, op.inputs[0])
        and 0 not in shape
        and len([o for o in op.outputs if o]) == 1
        and all(c is not None and c.dtype == np.float32 and c.size == columns for c in constants)
    )
    if not simple:
        return emit_default(rewriter, op)
    attrs = {"columns": columns, "epsilon": float(op.attrs.get("epsilon", 1e-5))}
    inputs = tuple(n for n in op.inputs if n)
    return rewriter.emit(
        op.replaced(kind="LayerNorm", inputs=inputs, outputs=op.outputs[:1], attrs=attrs)
    )


def gather(rewriter: Rewriter, op: Op) -> None:
    """Rows of a float32 table."""
    data, index = (rewriter.tensors[n] for n in op.inputs)
    known = data.dtype == "float32" and index.dtype in ("int32", "int64")
    if not known or 0 in (*data.shape, *index.shape):
        return emit_default(rewriter, op)
    axis = int(op.attrs.get("axis", 0)) % len(data.shape)
    return rewriter.emit(op.replaced(attrs={"axis": axis}))


def divide(rewriter: Rewriter, op: Op) -> None:
    """A division by constants as a multiplication, which the epilogues know."""
    divisor = rewriter.data(op.inputs[1])
    if divisor is None or divisor.dtype != np.float32 or not np.all(divisor):
        return emit_default(rewriter, op)
    inverse = np.float32(1) / divisor
    if not np.all(np.isfinite(inverse)) or not np.all(inverse):
        return emit_default(rewriter, op)
    name = rewriter.constant(f"{op.inputs[1]}.inverse", inverse)
    return rewriter.emit(binary(op, "Mul", (op.inputs[0], name), op.outputs[0]))


def subtract(rewriter: Rewriter, op: Op) -> None:
    """A subtraction of constants as an addition, which the epilogues know."""
    other = rewriter.data(op.inputs[1])
    if other is None or other.dtype != np.float32:
        return emit_default(rewriter, op)
    name = rewriter.constant(f"{op.inputs[1]}.negative", -other)
    return rewriter.emit(binary(op, "Add", (op.inputs[0], name), op.outputs[0]))
