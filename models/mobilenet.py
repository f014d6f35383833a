"""MobileNet-V2 at width 1.0.

Reference:
    "MobileNetV2: inverted residuals and linear bottlenecks" (2018), table 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from veltair.models.builder import GraphBuilder

if TYPE_CHECKING:
    import onnx

    from veltair.models.builder import Tensor

# expansion t, output channels c, repetitions n, stride s of the first: the paper's table 2
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def inverted_residual(
    g: GraphBuilder, name: str, x: Tensor, channels: int, *, expansion: int, stride: int
) -> Tensor:
    """Widens by a 1x1, filters each channel by a 3x3, narrows by a 1x1 without activation."""
    y = x
    wide = x.channels * expansion
    if expansion != 1:
        y = _conv_bn_relu6(g, f"{name}.expand", y, wide, kernel=1)
    y = _conv_bn_relu6(g, f"{name}.depthwise", y, wide, kernel=3, stride=stride, groups=wide)
    y = g.batch_norm(f"{name}.project.bn", g.conv(f"{name}.project.conv", y, channels, kernel=1))
    return g.add(f"{name}.add", x, y) if stride == 1 and x.channels == channels else y


def mobilenet_v2(batch: int, seed: int) -> onnx.ModelProto:
    """Writes MobileNet-V2: `data` float32[batch, 3, 224, 224] to `logits` [batch, 1000]."""
    g = GraphBuilder("mobilenet_v2", batch=batch, seed=seed)
    x = _conv_bn_relu6(g, "first", g.image(), 32, kernel=3, stride=2)
    for stage, (expansion, channels, repetitions, stride) in enumerate(STAGES, start=1):
        for block in range(repetitions):
            x = inverted_residual(
                g,
                f"stage{stage}.{block}",
                x,
                channels,
                expansion=expansion,
                stride=stride if block == 0 else 1,
            )
    x = _conv_bn_relu6(g, "last", x, 1280, kernel=1)
    return g.model(g.dense("logits", g.global_average_pool("pool", x), 1000))


def _conv_bn_relu6(
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
    return g.relu6(f"{name}.relu6", g.batch_norm(f"{name}.bn", x))
