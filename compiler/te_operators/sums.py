"""Sums along an axis, running and whole: `CumSum`, `CumProd`, norms, `LayerNormalization`."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from tvm import te, tirx, topi

from veltair.compiler.te_operators.call import Call, Expr, Tensor


def _running(kind: Any, call: Call) -> Expr:  # noqa: ANN401 (a function of topi)
    """A scan along an axis; backwards it is one of the reversed tensor."""
    given = call.value(1)
    assert given is not None
    axis = int(given.reshape(())) % len(call.shape())
    exclusive = bool(call.attrs.get("exclusive", 0))

    def flip(data: Tensor) -> Tensor:
        return topi.flip(data, axis=axis)

    def scan(data: Tensor) -> Tensor:
        return kind(data, axis=axis, exclusive=exclusive)

    if not call.attrs.get("reverse", 0):
        return call.emit(scan, call.inputs[0])
    return call.emit(flip, call.emit(scan, call.emit(flip, call.inputs[0])))


cum_sum = partial(_running, topi.cumsum)
cum_prod = partial(_running, topi.cumprod)


def lp_normalization(call: Call) -> Expr:
    """`LpNormalization`: a vector of zeros stays one."""
    axis, order = call.axis(-1), int(call.attrs.get("p", 2))

    def lp_norm(data: Tensor) -> Tensor:
        powers = topi.abs(data) if order == 1 else topi.multiply(data, data)
        total = topi.sum(powers, axis=axis, keepdims=True)
        norm = total if order == 1 else topi.sqrt(total)

        def element(*at: Tensor) -> Tensor:
            size = norm[(*at[:axis], 0, *at[axis + 1 :])]
            zero = tirx.const(0, data.dtype)
            return tirx.if_then_else(size == zero, zero, data(*at) / size)

        return te.compute(data.shape, element, name="lp_norm")

    return call.emit(lp_norm, call.inputs[0])


def layer_normalization(call: Call) -> Expr:
    """`LayerNormalization` from any axis on, with its mean and inverse deviation as outputs."""
    shape, first = call.shape(), call.axis(-1)
    axes = list(range(first, len(shape)))
    count, epsilon = math.prod(shape[first:]), float(call.attrs.get("epsilon", 1e-5))
    dtype = call.dtype()

    def layer_norm(data: Tensor, scale: Tensor, *bias: Tensor) -> list[Tensor]:
        wide = topi.cast(data, "float32")  # what ONNX computes in by default
        mean = topi.sum(wide, axis=axes, keepdims=True) * tirx.const(1 / count, "float32")
        centred = topi.subtract(wide, mean)
        squares = topi.sum(topi.multiply(centred, centred), axis=axes, keepdims=True)
        spread = topi.rsqrt(squares * tirx.const(1 / count, "float32") + epsilon)
        result = topi.cast(topi.multiply(centred, spread), dtype)
        result = topi.multiply(result, scale)
        for each in bias:
            result = topi.add(result, each)
        return [result, mean, spread][: call.outputs]

    return call.emit(layer_norm, *(each for each in call.inputs if each is not None))
