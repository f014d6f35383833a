"""EfficientNet-B0: inverted residuals with squeeze-and-excitation and swish.

Reference:
    "EfficientNet: rethinking model scaling for convolutional neural networks" (2019), table 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from veltair.models.builder import GraphBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx

    from veltair.models.builder import Tensor


@dataclass(frozen=True)
class Stage:
    """A row of the paper's table 1; the stride is that of its first block."""

    expansion: int
    channels: int
    blocks: int
    stride: int
    kernel: int


STAGES = (
    Stage(1, 16, 1, 1, 3),
    Stage(6, 24, 2, 2, 3),
    Stage(6, 40, 2, 2, 5),
    Stage(6, 80, 3, 2, 3),
    Stage(6, 112, 3, 1, 5),
    Stage(6, 192, 4, 2, 5),
    Stage(6, 320, 1, 1, 3),
)
FIRST, LAST = 32, 1280  # channels before and behind the stages
SQUEEZE = 4  # a block's inputs by the hidden channels of its squeeze-and-excitation
BRANCH_SCALE = 0.5  # of what is added, as in ResNet-50


def squeeze_excite(g: GraphBuilder, name: str, x: Tensor, hidden: int) -> Tensor:
    """Multiplies each channel by a gate that follows from the means of all."""
    y = g.global_average_pool(f"{name}.pool", x)
    y = g.swish(f"{name}.swish", g.conv(f"{name}.reduce", y, hidden, kernel=1, bias=True))
    y = g.conv(f"{name}.expand", y, x.channels, kernel=1, bias=True)
    return g.gated(f"{name}.mul", x, g.sigmoid(f"{name}.sigmoid", y))


def block(g: GraphBuilder, name: str, x: Tensor, row: Stage, stride: int) -> Tensor:
    """Widens, filters each channel, gates the channels, and narrows without activation."""
    y = x
    wide = x.channels * row.expansion
    if row.expansion != 1:
        y = _conv_bn_swish(g, f"{name}.expand", y, wide, kernel=1)
    y = _conv_bn_swish(
        g, f"{name}.depthwise", y, wide, kernel=row.kernel, stride=stride, groups=wide
    )
    y = squeeze_excite(g, f"{name}.se", y, x.channels // SQUEEZE)
    y = g.conv(f"{name}.project.conv", y, row.channels, kernel=1)
    if stride != 1 or x.channels != row.channels:
        return g.batch_norm(f"{name}.project.bn", y)
    return g.add(f"{name}.add", x, g.batch_norm(f"{name}.project.bn", y, scale=BRANCH_SCALE))


def network(g: GraphBuilder, x: Tensor, stages: Sequence[Stage], last: int) -> Tensor:
    """The layers: the stages, a widening to `last` channels, and the classifier."""
    x = _conv_bn_swish(g, "first", x, FIRST, kernel=3, stride=2)
    for stage, row in enumerate(stages, start=1):
        for index in range(row.blocks):
            stride = row.stride if index == 0 else 1
            x = block(g, f"stage{stage}.{index}", x, row, stride)
    x = _conv_bn_swish(g, "last", x, last, kernel=1)
    return g.dense("logits", g.global_average_pool("pool", x), 1000)


def efficientnet_b0(batch: int, seed: int) -> onnx.ModelProto:
    """Writes EfficientNet-B0: `data` float32[batch, 3, 224, 224] to `logits` [batch, 1000]."""
    g = GraphBuilder("efficientnet_b0", batch=batch, seed=seed)
    return g.model(network(g, g.image(), STAGES, LAST))


def _conv_bn_swish(
    g: GraphBuilder,
    name: str,
    x: Tensor,
    channels: int,
    *,
    kernel: int,
    stride: int = 1,
    groups: int = 1,
) -> Tensor:
    x = g.conv(f"{name}.conv", x, channels, kernel=kernel, stride=stride, groups=groups)
    return g.swish(f"{name}.swish", g.batch_norm(f"{name}.bn", x))
