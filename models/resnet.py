"""ResNet-50, version 1.5: the stride of a bottleneck sits in its 3x3 convolution.

Reference:
    "Deep residual learning for image recognition" (2016), table 1, 50-layer column.

Differs:
    The paper strides in the first 1x1 convolution; every current implementation in the 3x3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from veltair.models.builder import GraphBuilder

if TYPE_CHECKING:
    import onnx

    from veltair.models.builder import Tensor

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))  # width of the 3x3 convolutions, blocks
EXPANSION = 4
# A trained network's residual branches are weak beside what they are added to. At full strength
# sixteen additions would double the variance sixteen times.
BRANCH_SCALE = 0.5


def bottleneck(g: GraphBuilder, name: str, x: Tensor, width: int, stride: int) -> Tensor:
    """1x1 to `width`, 3x3, 1x1 to four times `width`, and the shortcut around them."""
    y = _conv_bn_relu(g, name, 1, x, width, kernel=1)
    y = _conv_bn_relu(g, name, 2, y, width, kernel=3, stride=stride)
    y = g.conv(f"{name}.conv3", y, width * EXPANSION, kernel=1)
    y = g.batch_norm(f"{name}.bn3", y, scale=BRANCH_SCALE)
    if stride != 1 or x.channels != width * EXPANSION:
        x = g.conv(f"{name}.shortcut.conv", x, width * EXPANSION, kernel=1, stride=stride)
        x = g.batch_norm(f"{name}.shortcut.bn", x)
    return g.relu(f"{name}.relu3", g.add(f"{name}.add", y, x))


def resnet50(batch: int, seed: int) -> onnx.ModelProto:
    """Writes ResNet-50: `data` float32[batch, 3, 224, 224] to `logits` [batch, 1000]."""
    g = GraphBuilder("resnet50", batch=batch, seed=seed)
    x = g.conv("conv1", g.image(), 64, kernel=7, stride=2)
    x = g.relu("relu1", g.batch_norm("bn1", x))
    x = g.max_pool("pool1", x, kernel=3, stride=2, pads=(1, 1, 1, 1))
    for stage, (width, blocks) in enumerate(STAGES, start=1):
        for block in range(blocks):
            stride = 2 if stage > 1 and block == 0 else 1
            x = bottleneck(g, f"stage{stage}.{block}", x, width, stride)
    x = g.global_average_pool("pool5", x)
    return g.model(g.dense("logits", x, 1000))


def _conv_bn_relu(
    g: GraphBuilder, name: str, index: int, x: Tensor, width: int, *, kernel: int, stride: int = 1
) -> Tensor:
    x = g.conv(f"{name}.conv{index}", x, width, kernel=kernel, stride=stride)
    return g.relu(f"{name}.relu{index}", g.batch_norm(f"{name}.bn{index}", x))
