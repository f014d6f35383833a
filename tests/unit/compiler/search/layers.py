"""Small layers of each kind that has a space."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Literal

from kernel_harness import dense, halo
from tvm import te, topi

from veltair.compiler.kernels import tir_spec
from veltair.compiler.kernels.spec import (
    BatchMatmulSpec,
    ConvSpec,
    GatherSpec,
    LayerNormSpec,
    LrnSpec,
    MatmulSpec,
    PoolSpec,
    RelayoutSpec,
    SoftmaxSpec,
    Step,
    TirSpec,
    View,
)
from veltair.compiler.search.key import Spec

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


def plain_conv(*, ic: int, oc: int, groups: int, hw: Pair, steps: tuple[str, ...] = ()) -> ConvSpec:
    """A convolution of 3 by 3 on plain NCHW, in and out."""
    data, output = dense(1, ic, hw[0] + 2, hw[1] + 2), dense(1, oc, *hw)
    packed = conv(16, ic=ic, oc=oc, hw=hw, groups=groups, steps=steps)
    return dataclasses.replace(packed, data=data, output=output, data_plain=True, output_plain=True)


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


def pool(lanes: int, kind: Literal["max", "avg"], *, include: bool = False) -> PoolSpec:
    """A pooling of 3 by 3 with padding, more of it at the end, into a tensor with a halo."""
    return PoolSpec(
        kind=kind,
        kernel=(3, 3),
        strides=(2, 2),
        dilations=(1, 1),
        pads=(0, 1, 2, 1),
        count_include_pad=include,
        data=dense(1, 3, 14, 16, lanes),
        output=halo((1, 3, 7, 8, lanes), 2, 2),
    )


def rows(shape: Pair) -> dict[str, View]:
    """The views of an operator on rows."""
    return {"data": dense(*shape), "output": dense(*shape)}


def transposed(shape: tuple[int, ...]) -> View:
    """A view whose last two dimensions are the other way round in memory."""
    *batch, m, n = shape
    strides = dense(*batch, n, m).strides
    return View(shape=shape, strides=(*strides[:-2], strides[-1], strides[-2]))


def scores(lanes: int) -> BatchMatmulSpec:
    """Attention's scores: a transposed operand, and a mask that is the same for all heads."""
    output = dense(2, 3, 20, 40)
    mask = View(shape=output.shape, strides=(40, 0, 0, 1))
    return BatchMatmulSpec(
        a=dense(2, 3, 20, 24),
        b=transposed((2, 3, 24, 40)),
        output=output,
        epilogue=(
            Step(kind="mul", operand="channel"),
            Step(kind="add", operand="tensor", view=mask),
        ),
    )


def element_wise(lanes: int) -> TirSpec:
    """Squeeze-excite's product."""
    x = te.placeholder((1, 3, 8, 8, lanes), "float32", name="x")
    s = te.placeholder((1, 3, 1, 1, lanes), "float32", name="s")
    y = te.compute(x.shape, lambda n, c, h, w, v: x[n, c, h, w, v] * s[n, c, 0, 0, v], name="y")
    return tir_spec(te.create_prim_func([x, s, y]), "multiply")


def masked(lanes: int) -> TirSpec:
    """Attention's mask, of integers, as what is added to the scores."""
    x = te.placeholder((1, 1, 6, 40), "int64", name="x")
    y = te.compute(x.shape, lambda *at: (1.0 - x[at].astype("float32")) * -10000.0, name="y")
    return tir_spec(te.create_prim_func([x, y]), "mask")


def halves(lanes: int) -> TirSpec:
    """Two outputs, of two types, of one input."""
    x = te.placeholder((6, 4 * lanes), "float32", name="x")
    shape = (6, 2 * lanes)
    left = te.compute(shape, lambda i, j: x[i, j] * 2.0, name="left")
    sign = te.compute(shape, lambda i, j: x[i, j + 2 * lanes] > 0.0, name="sign")
    return tir_spec(te.create_prim_func([x, left, sign]), "halves")


def largest(lanes: int) -> TirSpec:
    """Where a row is largest: a sum of pairs, and a result of integers."""
    x = te.placeholder((12, 3 * lanes), "float32", name="x")
    return tir_spec(te.create_prim_func([x, topi.argmax(x, axis=1)]), "argmax")


def halved(lanes: int) -> TirSpec:
    """Halves of integers, in float64."""
    x = te.placeholder((4, 8 * lanes), "int32", name="x")
    y = te.compute(x.shape, lambda i, j: x[i, j].astype("float64") * 0.5, name="y")
    return tir_spec(te.create_prim_func([x, y]), "halved")


def lookup(count: int, dtype: str) -> GatherSpec:
    """Rows of a table by indices."""
    index = View(shape=(count,), strides=(1,), dtype=dtype)
    return GatherSpec(data=dense(1, 30, 40), index=index, output=dense(1, count, 40))


def reduction(lanes: int) -> TirSpec:
    """A mean, and what is made of it."""
    x = te.placeholder((6, 14, 14, lanes), "float32", name="x")
    h, w = te.reduce_axis((0, 14), "h"), te.reduce_axis((0, 14), "w")
    total = te.compute((6, lanes), lambda c, v: te.sum(x[c, h, w, v], axis=[h, w]), name="total")
    mean = te.compute((6, lanes), lambda c, v: total[c, v] * (1.0 / 196.0), name="mean")
    return tir_spec(te.create_prim_func([x, mean]), "mean")


LAYERS: dict[str, Callable[[int], Spec]] = {
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
    "batch-matmul": lambda v: BatchMatmulSpec(
        a=dense(3, 20, 24), b=dense(3, 24, 40), output=dense(3, 20, 40)
    ),
    "scores": scores,
    "max-pool": lambda v: pool(v, "max"),
    "average-pool": lambda v: pool(v, "avg"),
    "average-pool-with-pads": lambda v: pool(v, "avg", include=True),
    "lrn": lambda v: LrnSpec(
        channels=24,
        size=5,
        alpha=1e-4,
        beta=0.75,
        bias=1.0,
        data=dense(1, -(-24 // v), 6, 5, v),
        output=dense(1, -(-24 // v), 6, 5, v),
    ),
    "softmax": lambda v: SoftmaxSpec(**rows((12, 50))),
    "log-softmax": lambda v: SoftmaxSpec(**rows((4, 33)), log=True),
    "layer-norm": lambda v: LayerNormSpec(**rows((12, 70)), epsilon=1e-5, has_bias=True),
    "gather": lambda _: lookup(12, "int64"),
    "gather-by-int32": lambda _: lookup(8, "int32"),
    "masked": masked,
    "two-outputs": halves,
    "argmax": largest,
    "float64": halved,
    "plain-groups": lambda _: plain_conv(
        ic=12, oc=18, groups=3, hw=(9, 37), steps=("bias", "relu")
    ),
    "plain-narrow": lambda _: plain_conv(ic=4, oc=8, groups=4, hw=(6, 5)),
    "to-packed": lambda v: RelayoutSpec(
        channels=20, data=dense(1, 20, 8, 9), output=halo((1, -(-20 // v), 8, 9, v), 2, 2)
    ),
    "to-plain": lambda v: RelayoutSpec(
        channels=20, data=dense(1, -(-20 // v), 8, 9, v), output=dense(1, 20, 8, 9)
    ),
    "element-wise": element_wise,
    "reduction": reduction,
}
