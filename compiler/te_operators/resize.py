"""`Resize` and `Upsample`: each axis apart, a sum of weighted elements whose places are known.

Sizes, scales and regions are constants, so that of every output element the elements that it is
made of and their weights are tables: one for each axis whatever the mode.

Reference: onnx.reference.ops.op_resize, whose coordinates these are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from tvm import te, tirx

from veltair.compiler.binding import Array
from veltair.compiler.te_operators.call import Call, Expr, Tensor, check_table

_FLOATS = ("float16", "float32", "float64")


@dataclass(frozen=True, kw_only=True)
class Axis:
    """How one axis is resized.

    Attributes:
        size: of the input.
        out: of the output.
        scale: output by input, as the coordinates take it.
        region: the part of the input that is read, as shares of it.
    """

    size: int
    out: int
    scale: float
    region: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Mode:
    """How elements are chosen; the attributes of ONNX's operator."""

    kind: str
    coordinates: str
    rounding: str
    cubic_a: float
    exclude_outside: bool
    antialias: bool


def resize(call: Call) -> Expr:
    """`Resize` of any mode, since opset 10."""
    mode = Mode(
        kind=call.text("mode", "nearest"),
        coordinates=call.text("coordinate_transformation_mode", "half_pixel"),
        rounding=call.text("nearest_mode", "round_prefer_floor"),
        cubic_a=float(call.attrs.get("cubic_coeff_a", -0.75)),
        exclude_outside=bool(call.attrs.get("exclude_outside", 0)),
        antialias=bool(call.attrs.get("antialias", 0)),
    )
    if len(call.inputs) == 2:  # opset 10 has scales only, and its own coordinates
        mode = Mode(**{**vars(mode), "coordinates": "asymmetric", "rounding": "floor"})
        return _resized(call, mode, _axes(call, None, call.value(1), None))
    return _resized(call, mode, _axes(call, call.value(1), call.value(2), call.value(3)))


def upsample(call: Call) -> Expr:
    """`Upsample`, the older name."""
    mode = Mode(
        kind=call.text("mode", "nearest"),
        coordinates="asymmetric",
        rounding="floor",
        cubic_a=-0.75,
        exclude_outside=False,
        antialias=False,
    )
    scales = call.value(1) if call.has(1) else np.array(call.attrs["scales"], np.float32)
    return _resized(call, mode, _axes(call, None, scales, None))


def _axes(
    call: Call, region: Array | None, scales: Array | None, sizes: Array | None
) -> dict[int, Axis]:
    """The axes that change, or may, by number."""
    shape = call.shape()
    numbers = [int(a) % len(shape) for a in call.attrs.get("axes", range(len(shape)))]
    count = len(numbers)
    regions = [(0.0, 1.0)] * count
    if region is not None and region.size == 2 * count:
        regions = [(float(region[i]), float(region[i + count])) for i in range(count)]
    cropped = call.text("coordinate_transformation_mode", "") == "tf_crop_and_resize"
    axes = {}
    for i, number in enumerate(numbers):
        size = shape[number]
        part = regions[i][1] - regions[i][0] if cropped else 1.0
        if sizes is not None and sizes.size:
            scale = _scale(call, [shape[n] for n in numbers], sizes, i)
            stretched = call.text("keep_aspect_ratio_policy", "stretch") == "stretch"
            out = int(sizes[i]) if stretched else math.floor(scale * size + 0.5)
        else:
            assert scales is not None
            scale = float(scales[i])
            out = math.floor(size * part * scale)
        axes[number] = Axis(size=size, out=out, scale=scale, region=regions[i])
    return axes


def _scale(call: Call, shape: list[int], sizes: Array, index: int) -> float:
    """The scale of an axis of which sizes are given."""
    scales = [int(s) / d for s, d in zip(sizes, shape, strict=True)]
    policy = call.text("keep_aspect_ratio_policy", "stretch")
    if policy == "not_larger":
        return min(scales)
    return max(scales) if policy == "not_smaller" else scales[index]


def _resized(call: Call, mode: Mode, axes: dict[int, Axis]) -> Expr:
    dtype = call.dtype()
    if mode.kind != "nearest" and dtype not in _FLOATS:
        raise NotImplementedError(f"{mode.kind} interpolation of {dtype}")
    inside: dict[int, Array] = {}
    data = call.inputs[0]
    for number, axis in axes.items():
        check_table(f"{mode.kind} interpolation", axis.out)
        index, weights = taps(axis, mode)
        if mode.coordinates == "tf_crop_and_resize":
            x = _coordinates(axis, mode)
            inside[number] = (x >= 0) & (x <= axis.size - 1)
        elif index.shape[1] == 1 and np.array_equal(index[:, 0], np.arange(axis.size)):
            continue  # as it is: one element of its own weight each
        data = _along(call, data, number, index, weights.astype("float32"), dtype)
    if all(known.all() for known in inside.values()):
        return data
    fill = float(call.attrs.get("extrapolation_value", 0.0))
    return _filled(call, data, inside, fill)


def taps(axis: Axis, mode: Mode) -> tuple[Array, Array]:
    """What each output element is made of.

    Returns:
        int32[out, taps], places in the input; float64[out, taps], their weights.
    """
    x = _coordinates(axis, mode)
    base = np.ceil(x) - 1  # of two neighbours the left one: the right one may be x itself
    ratio = x - base
    if mode.kind == "nearest":
        low = {
            "round_prefer_floor": ratio <= 0.5,
            "round_prefer_ceil": ratio < 0.5,
            "floor": ratio < 1,
            "ceil": ratio < 0,
        }[mode.rounding]
        places = np.where(low, base, base + 1)[:, None]
        weights = np.ones_like(places)
    else:
        scale = min(axis.scale, 1.0) if mode.antialias else 1.0
        reach = 1 if mode.kind == "linear" else 2
        start = math.floor(-reach / scale) + 1
        steps = np.arange(start, 2 - start)
        places = base[:, None] + steps
        distance = np.abs(steps - ratio[:, None]) * scale
        weights = np.clip(1 - distance, 0, 1) if reach == 1 else _cubic(distance, mode.cubic_a)
        if mode.exclude_outside:
            weights = np.where((places >= 0) & (places < axis.size), weights, 0)
        if mode.antialias or mode.exclude_outside:
            weights = weights / weights.sum(1, keepdims=True)
    used = np.any(weights != 0, axis=0)
    return np.clip(places, 0, axis.size - 1).astype(np.int32)[:, used], weights[:, used]


def _cubic(distance: Array, a: float) -> Array:
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))


def _coordinates(axis: Axis, mode: Mode) -> Array:
    """float64[out]: where each output element lies in the input."""
    out = np.arange(axis.out, dtype=np.float64)
    length = axis.scale * axis.size  # as the scale says: not always a whole number
    start, end = axis.region
    centred = (out + 0.5) / axis.scale - 0.5
    steps = max(length - 1, np.finfo(float).tiny)  # where the length is 1, no output takes one
    span = (end - start) * (axis.size - 1)
    crop = span / 2 + out * 0 if length == 1 else out * span / steps
    found: dict[str, Array] = {
        "align_corners": out * (axis.size - 1) / steps,
        "asymmetric": out / axis.scale,
        "half_pixel": centred,
        "half_pixel_symmetric": axis.size / 2 * (1 - axis.out / length) + centred,
        "pytorch_half_pixel": out * 0 if axis.out == 1 else centred,
        "tf_crop_and_resize": crop + start * (axis.size - 1),
        "tf_half_pixel_for_nn": centred + 0.5,
    }
    return found[mode.coordinates]


def _along(call: Call, data: Expr, axis: int, index: Array, weights: Array, dtype: str) -> Expr:
    """One axis of the tensor resized."""
    picks = index.shape[1]

    def resize(source: Tensor, places: Tensor, factors: Tensor) -> Tensor:
        shape = [*source.shape]
        shape[axis] = index.shape[0]

        def element(*at: Tensor) -> Tensor:
            def pick(k: int) -> Tensor:
                return source[(*at[:axis], places[at[axis], k], *at[axis + 1 :])]

            if picks == 1:
                return pick(0)
            kind = "float64" if dtype == "float64" else "float32"
            total = tirx.const(0, kind)
            for k in range(picks):
                total += pick(k).astype(kind) * factors[at[axis], k].astype(kind)
            return total.astype(dtype)

        return te.compute(shape, element, name="resize")

    return call.emit(resize, data, index, weights)


def _filled(call: Call, data: Expr, inside: dict[int, Array], fill: float) -> Expr:
    """The tensor with a value where the input ends."""
    numbers = list(inside)

    def extrapolate(source: Tensor, *known: Tensor) -> Tensor:
        def element(*at: Tensor) -> Tensor:
            within = tirx.all(*(flags[at[n]] > 0 for n, flags in zip(numbers, known, strict=True)))
            return tirx.Select(within, source(*at), tirx.const(fill, source.dtype))

        return te.compute(source.shape, element, name="extrapolate")

    return call.emit(extrapolate, data, *(inside[n].astype(np.int8) for n in numbers))
