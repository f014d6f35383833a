"""Small layers of each kind that has a space."""

from __future__ import annotations

import math
from collections.abc import Callable

from kernel_harness import dense, halo

from veltair.compiler.kernels.spec import ConvSpec, MatmulSpec, Step

Pair = tuple[int, int]


def conv(
    lanes: int,
    *,
    ic: int,
    oc: int,
    hw: Pair,
    kernel: Pair = (3, 3),
    strides: Pair = (1, 1),
    groups: int = 1,
    data_plain: bool = False,
    output_halo: int = 0,
    steps: tuple[str, ...] = (),
) -> ConvSpec:
    """A convolution with an output of `hw`; `steps` are `bias`, `add` or an activation."""
    data_hw = [(hw[i] - 1) * strides[i] + kernel[i] for i in range(2)]
    blocks = [math.ceil(channels / lanes) for channels in (ic, oc)]
    data = dense(1, ic, *data_hw) if data_plain else dense(1, blocks[0], *data_hw, lanes)
    output = halo((1, blocks[1], *hw, lanes), output_halo, output_halo)
    made = {
        "bias": Step(kind="add", operand="channel"),
        "add": Step(kind="add", operand="tensor", view=output),
    }
    return ConvSpec(
        batch=1,
        in_channels=ic,
        out_channels=oc,
        groups=groups,
        kernel=kernel,
        strides=strides,
        dilations=(1, 1),
        out_hw=hw,
        data=data,
        output=output,
        data_plain=data_plain,
        epilogue=tuple(made.get(name) or Step(kind=name) for name in steps),
    )


def matmul(lanes: int, *, m: int, k: int, n: int, steps: tuple[str, ...] = ()) -> MatmulSpec:
    """A matrix product; `steps` as for `conv`."""
    output = dense(m, n)
    made = {
        "bias": Step(kind="add", operand="channel"),
        "add": Step(kind="add", operand="tensor", view=output),
    }
    return MatmulSpec(
        m=m,
        k=k,
        n=n,
        data=dense(m, k),
        output=output,
        epilogue=tuple(made.get(name) or Step(kind=name) for name in steps),
    )


LAYERS: dict[str, Callable[[int], ConvSpec | MatmulSpec]] = {
    "winograd-or-direct": lambda v: conv(v, ic=40, oc=56, hw=(12, 10), steps=("bias", "relu")),
    "pointwise-flat": lambda v: conv(
        v, ic=64, oc=80, hw=(6, 6), kernel=(1, 1), steps=("bias", "add", "relu")
    ),
    "strided-with-halo": lambda v: conv(
        v, ic=64, oc=64, hw=(7, 9), strides=(2, 2), output_halo=2, steps=("bias", "gelu")
    ),
    "plain-data": lambda v: conv(
        v, ic=3, oc=48, hw=(14, 14), kernel=(5, 5), strides=(2, 2), data_plain=True
    ),
    "grouped": lambda v: conv(v, ic=64, oc=64, hw=(8, 8), groups=2, steps=("silu",)),
    "depthwise": lambda v: conv(
        v, ic=40, oc=40, hw=(12, 14), groups=40, steps=("bias", "hardswish")
    ),
    "matmul": lambda v: matmul(v, m=20, k=48, n=70, steps=("bias", "gelu", "add")),
    "matrix-by-vector": lambda v: matmul(v, m=1, k=128, n=200, steps=("bias",)),
}
