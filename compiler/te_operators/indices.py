"""Indices that come with the data, held within what they index.

Kernels don't check them: one beyond its axis would read or write whatever lies there, a client's
index as any other. It becomes the nearest that the axis has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import tvm
from tvm import topi

from veltair.compiler.binding import Array
from veltair.compiler.te_operators.call import Call, Expr, Tensor

# Of an operator: which input has indices, the least and the largest that each of a row may be.
_Bounds = tuple[int, Sequence[int], Sequence[int]]


def bounded(kind: str, call: Call) -> Call:
    """The call with its indices in bounds.

    Raises:
        NotImplementedError: what they index has no elements.
    """
    rule = _RULES.get(kind)
    if rule is None:
        return call
    position, least, most = rule(call)
    if math.prod(call.shape(position)) == 0:
        return call
    if any(low > high for low, high in zip(least, most, strict=True)):
        raise NotImplementedError(f"{kind} of a tensor without elements")
    inputs = list(call.inputs)
    inputs[position] = _held(call, position, least, most)
    return replace(call, inputs=tuple(inputs))


def _held(call: Call, position: int, least: Sequence[int], most: Sequence[int]) -> Expr:
    dtype = call.dtype(position)
    low, high = np.array(least, dtype), np.array(most, dtype)
    expr = call.inputs[position]
    if isinstance(expr, tvm.ir.GenericConst):
        known: Array = expr.value.numpy()
        if (known >= low).all() and (known <= high).all():
            return expr

    def hold(indices: Tensor, first: Tensor, last: Tensor) -> Tensor:
        return topi.minimum(topi.maximum(indices, first), last)

    return call.emit(hold, expr, low, high)


def _of_axis(call: Call) -> _Bounds:
    size = call.shape()[call.axis(0)]
    return 1, [-size], [size - 1]


def _of_rows(call: Call) -> _Bounds:
    first = int(call.attrs.get("batch_dims", 0))
    sizes = call.shape()[first:][: call.shape(1)[-1]]
    return 1, [-size for size in sizes], [size - 1 for size in sizes]


def _of_unpooled(call: Call) -> _Bounds:
    """Of the elements of the output; where `output_shape` gives them, the node falls back."""
    shape, kernel = call.shape(), [int(k) for k in call.attrs["kernel_shape"]]
    rank = len(kernel)
    strides = [int(s) for s in call.attrs.get("strides", [1] * rank)]
    pads = [int(p) for p in call.attrs.get("pads", [0] * 2 * rank)]
    axes = zip(shape[2:], strides, kernel, pads[:rank], pads[rank:], strict=True)
    sizes = [(size - 1) * s + k - a - b for size, s, k, a, b in axes]
    return 1, [0], [math.prod(shape[:2]) * math.prod(sizes) - 1]


def _of_samples(call: Call) -> _Bounds:
    return 2, [0], [call.shape()[0] - 1]


_RULES: Mapping[str, Callable[[Call], _Bounds]] = {
    "GatherElements": _of_axis,
    "GatherND": _of_rows,
    "MaxUnpool": _of_unpooled,
    "RoiAlign": _of_samples,
    "Scatter": _of_axis,
    "ScatterElements": _of_axis,
    "ScatterND": _of_rows,
}
