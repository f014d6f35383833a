"""What the graph asks of a kernel, and what a kernel builder gives back.

Layouts: `packed` activations are (N, ceil(C/v), H, W, v) with v the vector's float32 lanes (16 on
x86-64-v4, 8 on x86-64-v3); channels past C hold zeros or finite values that meet zero weights.
`plain` activations are dense in ONNX's order. A spatial operator with padding reads a view that
already includes its padding: the planner gives such tensors a border of zeros (a halo) that no
kernel writes, so kernels contain no boundary code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, kw_only=True)
class View:
    """A strided view of a buffer as a kernel sees it; strides in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str = "float32"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One element-wise step of an epilogue, applied to the accumulator in order.

    Attributes:
        kind: `add`, `mul` (with an operand), or an activation: `relu`, `clip` (params lo, hi),
            `sigmoid`, `silu`, `hardsigmoid` (alpha, beta), `hardswish`, `leaky_relu` (alpha),
            `tanh`, `gelu`, `elu` (alpha), `softplus`.
        operand: `none`; `channel`, a packed vector with one value an output channel (or column);
            `tensor`, a view of the output's shape.
        params: the activation's constants.
        view: the operand's view where operand is `tensor`.
    """

    kind: str
    operand: Literal["none", "channel", "tensor"] = "none"
    params: tuple[float, ...] = ()
    view: View | None = None


@dataclass(frozen=True, kw_only=True)
class ConvSpec:
    """A 2-D convolution over NCHW, groups and depthwise included.

    Attributes:
        data: packed (N, CB, H + pads, W + pads, v) or, where `data_plain`, (N, C, H + pads,
            W + pads) as for an image with few channels. Grouped convolutions whose channels a
            group don't divide by v get plain data and write plain output.
        output: packed (N, ceil(OC/v), OH, OW, v), or plain (N, OC, OH, OW) where `output_plain`.
    """

    batch: int
    in_channels: int
    out_channels: int
    groups: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    out_hw: tuple[int, int]
    data: View
    output: View
    data_plain: bool = False
    output_plain: bool = False
    epilogue: tuple[Step, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MatmulSpec:
    """`data (M, K) @ weight (K, N)` with a constant weight, packed at compile time.

    `data` and `output` are 2-D views with unit stride in the last dimension.
    """

    m: int
    k: int
    n: int
    data: View
    output: View
    epilogue: tuple[Step, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BatchMatmulSpec:
    """`a (..., M, K) @ b (..., K, N)`, both activations; any strides: transposes cost no copy.

    An epilogue's tensor has the output's shape; where it is the same along a dimension other than
    the last, its stride there is 0.
    """

    a: View
    b: View
    output: View
    epilogue: tuple[Step, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PoolSpec:
    """Max or average pooling over packed data; padding is implicit, the view has no halo."""

    kind: Literal["max", "avg"]
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int, int, int]  # top, left, bottom, right
    count_include_pad: bool
    data: View  # (N, CB, H, W, v)
    output: View  # (N, CB, OH, OW, v)


@dataclass(frozen=True, kw_only=True)
class LrnSpec:
    """Local response normalisation across channels, packed (ONNX LRN)."""

    channels: int
    size: int
    alpha: float
    beta: float
    bias: float
    data: View
    output: View


@dataclass(frozen=True, kw_only=True)
class SoftmaxSpec:
    """Softmax over the last dimension of (rows, columns)."""

    data: View
    output: View
    log: bool = False


@dataclass(frozen=True, kw_only=True)
class LayerNormSpec:
    """Layer normalisation over the last dimension of (rows, columns), with a scale a column.

    The bias a column, if there is one, is the operand behind the scale.
    """

    data: View
    output: View
    epsilon: float
    has_bias: bool


@dataclass(frozen=True, kw_only=True)
class GatherSpec:
    """`output[o, i] = data[o, index[i]]` of rows: data (O, R, W), index (I,), output (O, I, W)."""

    data: View
    index: View
    output: View


@dataclass(frozen=True, kw_only=True)
class RelayoutSpec:
    """Copies plain NCHW to packed, packed to plain, or within one layout (a copy, a concat part).

    Channels past C are written as zeros when packing.
    """

    channels: int
    data: View  # 4-D is plain, 5-D is packed
    output: View


@dataclass(frozen=True, kw_only=True)
class TirSpec:
    """Any other operator, as the function that Relax makes of it.

    Attributes:
        name: what Relax called it, e.g. `fused_add_relu`.
        digest: of the function's structure and stages: what two specs are told apart by, since
            Relax names buffers after the network's tensors.
        func: a PrimFunc; its buffers are dense, the inputs first.
    """

    name: str
    digest: str
    func: Any = field(compare=False)


WeightPacker = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One kernel: its function and all that the artifact records of the variant.

    Attributes:
        func: PrimFunc; buffers in order data (a, b), weight, epilogue operands in order, output.
        variant_id: self-describing, e.g. `conv3x3_direct_oc2x16_ow14`.
        algorithm: `direct`, `winograd`, `depthwise`, `grouped`, `matmul`, `default`, ...
        parallel_extent: iterations of the outer parallel loop.
        tile_bytes: working set of the cache tile.
        unroll: independent sums that a task carries side by side: its unrolled register tile.
        pack_weight: ONNX's weight, float32[OC, IC/groups, KH, KW] or float32[K, N], to the shape
            that `func` reads; None without a weight.
        pack_channel: a per-channel operand, float32[C], to the shape that `func` reads.
    """

    func: Any
    variant_id: str
    algorithm: str
    parallel_extent: int
    tile_bytes: int
    unroll: int = 1
    pack_weight: WeightPacker | None = None
    pack_channel: WeightPacker | None = None
