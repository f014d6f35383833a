"""`ConvInteger`: a convolution of integers less their zero points, summed in 32 bits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from veltair.compiler.te_operators.call import Call, Expr, Tensor


def conv_integer(call: Call) -> Expr | None:
    """`ConvInteger` with a zero point for each output channel; None of any other.

    ONNX Runtime runs the others an order of magnitude faster, and refuses this one.
    """
    if not call.has(3) or math.prod(call.shape(3)) == 1:
        return None
    shape, kernel = call.shape(), call.shape(1)
    rank = len(shape) - 2
    strides = [int(s) for s in call.attrs.get("strides", [1] * rank)]
    dilations = [int(d) for d in call.attrs.get("dilations", [1] * rank)]
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, kernel[2:], strict=True)]
    low, high = _pads(call, shape[2:], reach, strides)
    padded = [a + s + b for a, s, b in zip(low, shape[2:], high, strict=True)]
    sizes = [(p - r) // s + 1 for p, r, s in zip(padded, reach, strides, strict=True)]
    per_group = kernel[0] // int(call.attrs.get("group", 1))

    def conv_integer(data: Tensor, weight: Tensor, *zeros: Tensor) -> Tensor:
        wide = te.compute(
            [*shape[:2], *padded], lambda *at: _centred(data, zeros[:-1], at, low), name="centred"
        )
        steps = [te.reduce_axis((0, size), name=f"step{n}") for n, size in enumerate(kernel[1:])]

        def element(*at: Tensor) -> Tensor:
            channel = at[1] // per_group * kernel[1] + steps[0]
            moved = zip(at[2:], strides, steps[1:], dilations, strict=True)
            source = wide(at[0], channel, *(i * s + k * d for i, s, k, d in moved))
            factor = weight(at[1], *steps).astype("int32") - zeros[-1](at[1]).astype("int32")
            return te.sum(source * factor, axis=steps)

        return te.compute([shape[0], kernel[0], *sizes], element, name="conv_integer")

    # Relax takes no operand that isn't there: the zero point of the data comes only if it is given.
    return call.emit(conv_integer, *(each for each in call.inputs if each is not None))


def _centred(
    data: Tensor, zeros: Sequence[Tensor], at: Sequence[Tensor], low: Sequence[int]
) -> Tensor:
    """An element of the padded data, less its zero point: 0 outside."""
    places = [*at[:2], *(i - a for i, a in zip(at[2:], low, strict=True))]
    value = data(*places).astype("int32")
    for zero in zeros:
        value -= zero(*([0] * len(zero.shape))).astype("int32")
    tests: list[Any] = [p >= 0 for p in places[2:]]
    tests += [p < s for p, s in zip(places[2:], data.shape[2:], strict=True)]
    return tirx.if_then_else(tirx.all(*tests), value, tirx.const(0, "int32"))


def _pads(
    call: Call, sizes: Sequence[int], reach: Sequence[int], strides: Sequence[int]
) -> tuple[list[int], list[int]]:
    """How many elements stand before and behind each axis."""
    automatic = call.text("auto_pad", "NOTSET")
    if not automatic.startswith("SAME"):
        given = [int(p) for p in call.attrs.get("pads", [0] * 2 * len(sizes))]
        return given[: len(sizes)], given[len(sizes) :]
    axes = zip(sizes, reach, strides, strict=True)
    totals = [max((-(-size // s) - 1) * s + r - size, 0) for size, r, s in axes]
    less, more = [t // 2 for t in totals], [t - t // 2 for t in totals]
    return (less, more) if automatic == "SAME_UPPER" else (more, less)
