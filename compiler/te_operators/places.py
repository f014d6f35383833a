"""Operators that place elements: `Pad`, `OneHot`, `ConstantOfShape`, `ReverseSequence`, ..."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
from onnx import helper
from tvm import te, tirx

from veltair.compiler.binding import Array
from veltair.compiler.te_operators.call import Call, Expr, Tensor, check_table

_LARGE_BYTES = 1 << 20


def constant_of_shape(call: Call) -> Expr | None:
    """`ConstantOfShape` that is too large to lie among the weights, and so is written by a run."""
    shape = _known(call)
    sizes = [] if shape is None else [int(size) for size in shape]
    fill = call.attrs.get("value")
    value = np.zeros(1, np.float32) if fill is None else onnx.numpy_helper.to_array(fill)
    if math.prod(sizes) * value.itemsize < _LARGE_BYTES:
        return None

    def constant_of_shape() -> Tensor:
        element = tirx.const(value.item(), value.dtype.name)
        return te.compute(sizes, lambda *_: element, name="constant_of_shape")

    return call.emit(constant_of_shape)


def _known(call: Call) -> Array | None:
    try:
        return call.value(0)
    except NotImplementedError:
        return None


def pad(call: Call) -> Expr:
    """`Pad` of any mode; negative pads cut."""
    shape = call.shape()
    pads = call.value(1) if call.has(1) else np.array(call.attrs["pads"])
    axes = call.value(3)
    numbers = range(len(shape)) if axes is None else [int(a) % len(shape) for a in axes]
    assert pads is not None
    low, high = np.zeros(len(shape), int), np.zeros(len(shape), int)
    for i, number in enumerate(numbers):
        low[number], high[number] = int(pads[i]), int(pads[i + len(pads) // 2])
    mode = call.text("mode", "constant")
    sizes = [int(size + a + b) for size, a, b in zip(shape, low, high, strict=True)]
    if mode != "constant":
        check_table(f"padding by {mode}", max(sizes, default=0))
        return _moved(
            call,
            sizes,
            [_sources(mode, s, int(a), n) for s, a, n in zip(shape, low, sizes, strict=True)],
        )

    def pad(data: Tensor, *fill: Tensor) -> Tensor:
        def element(*at: Tensor) -> Tensor:
            places = [i - int(a) for i, a in zip(at, low, strict=True)]
            tests = [p >= 0 for p, a in zip(places, low, strict=True) if a > 0]
            tests += [p < s for p, s, b in zip(places, shape, high, strict=True) if b > 0]
            other = tirx.const(call.attrs.get("value", 0), data.dtype)
            if fill:
                other = fill[0](*([0] * len(fill[0].shape)))
            return (
                tirx.if_then_else(tirx.all(*tests), data(*places), other)
                if tests
                else data(*places)
            )

        return te.compute(sizes, element, name="pad")

    return call.emit(pad, call.inputs[0], *([call.inputs[2]] if call.has(2) else []))


def _sources(mode: str, size: int, low: int, out: int) -> Any:  # noqa: ANN401 (an array)
    """int32[out]: which element of an axis each of the padded one is."""
    places = np.arange(out) - low
    if mode == "reflect":
        period = max(2 * (size - 1), 1)
        places = places % period
        places = np.minimum(places, period - places) if size > 1 else places * 0
    elif mode == "wrap":
        places = places % size
    return np.clip(places, 0, size - 1).astype(np.int32)


def _moved(call: Call, sizes: list[int], sources: list[Any]) -> Expr:
    """The elements at the product of the axes' sources."""

    def pad(data: Tensor, *tables: Tensor) -> Tensor:
        return te.compute(
            sizes,
            lambda *at: data(*(t[i] for t, i in zip(tables, at, strict=True))),
            name="pad",
        )

    return call.emit(pad, call.inputs[0], *sources)


def one_hot(call: Call) -> Expr:
    """`OneHot`: indices out of range are all off."""
    depth_value = call.value(1)
    assert depth_value is not None
    depth = int(depth_value.reshape(()))
    rank = len(call.shape()) + 1
    axis = int(call.attrs.get("axis", -1)) % rank
    shape = [*call.shape()]
    shape.insert(axis, depth)

    def one_hot(indices: Tensor, values: Tensor) -> Tensor:
        def element(*at: Tensor) -> Tensor:
            index = indices(*at[:axis], *at[axis + 1 :])
            place = at[axis].astype(index.ty)
            below = place - tirx.const(depth, index.ty)
            return tirx.if_then_else(tirx.any(index == place, index == below), values[1], values[0])

        return te.compute(shape, element, name="one_hot")

    return call.emit(one_hot, call.inputs[0], call.inputs[2])


def eye_like(call: Call) -> Expr:
    """`EyeLike`: a constant, its input has a shape only."""
    elem = int(call.attrs.get("dtype", 0))
    dtype = helper.tensor_dtype_to_np_dtype(elem) if elem else np.dtype(call.dtype())
    assert elem != onnx.TensorProto.BFLOAT16
    shape = call.shape()
    data = np.eye(shape[0], shape[1], k=int(call.attrs.get("k", 0)), dtype=dtype)
    return _constant(call, data)


def _constant(call: Call, data: Any) -> Expr:  # noqa: ANN401 (an array)
    def constant(values: Tensor, _: Tensor) -> Tensor:
        return te.compute(values.shape, values, name="constant")

    return call.emit(constant, data, call.inputs[0])


def reverse_sequence(call: Call) -> Expr:
    """`ReverseSequence`: of each sequence of a batch its first elements, as many as it is told."""
    time, batch = int(call.attrs.get("time_axis", 0)), int(call.attrs.get("batch_axis", 1))

    def reverse(data: Tensor, lengths: Tensor) -> Tensor:
        def element(*at: Tensor) -> Tensor:
            # No longer than the axis: whatever comes with the data, a kernel reads inside of it.
            longest = tirx.const(call.shape()[time], lengths.dtype)
            length = tirx.min(lengths[at[batch]], longest).astype("int32")
            step = at[time].astype("int32")
            source = tirx.if_then_else(step < length, length - 1 - step, step)
            return data(*at[:time], source, *at[time + 1 :])

        return te.compute(data.shape, element, name="reverse")

    return call.emit(reverse, call.inputs[0], call.inputs[1])


def bool_reduction(call: Call, *, largest: bool) -> Expr | None:
    """`ReduceMax` and `ReduceMin` of truth values; None of others, which TVM lowers itself."""
    if call.dtype() != "bool":
        return None
    shape = call.shape()
    given = call.value(1) if call.has(1) else call.attrs.get("axes")
    if given is None or not len(given):
        if call.attrs.get("noop_with_empty_axes", 0):
            return call.inputs[0]
        given = range(len(shape))
    axes = {int(a) % len(shape) for a in given}
    keep = bool(call.attrs.get("keepdims", 1))
    sizes = [1 if i in axes else s for i, s in enumerate(shape) if keep or i not in axes]
    combine = tirx.max if largest else tirx.min

    def reduce_bool(data: Tensor) -> Tensor:
        ranges = {a: te.reduce_axis((0, shape[a]), name=f"r{a}") for a in sorted(axes)}

        def element(*at: Tensor) -> Tensor:
            kept = iter(at) if not keep else iter(i for n, i in enumerate(at) if n not in axes)
            places = [ranges[n] if n in axes else next(kept) for n in range(len(shape))]
            return combine(data(*places).astype("int8"), axis=list(ranges.values()))

        found = te.compute(sizes, element, name="reduce_bool")
        return te.compute(sizes, lambda *at: found(*at) > 0, name="truth")

    return call.emit(reduce_bool, call.inputs[0])
