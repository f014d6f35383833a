"""DenseNet-121: each layer reads what all layers of its block before it wrote.

Reference:
    "Densely connected convolutional networks" (2017), table 1, first column, growth 32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from veltair.models.builder import GraphBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx

    from veltair.models.builder import Tensor

FIRST = 64
BLOCKS = (6, 12, 24, 16)  # layers
GROWTH = 32
BOTTLENECK = 4  # channels between a layer's two convolutions, by what it adds


def layer(g: GraphBuilder, name: str, x: Tensor, growth: int) -> Tensor:
    """Normalises, 1x1, normalises, 3x3; appends the result to the channels."""
    y = _bn_relu_conv(g, f"{name}.1", x, BOTTLENECK * growth, kernel=1)
    y = _bn_relu_conv(g, f"{name}.2", y, growth, kernel=3)
    return g.concat(f"{name}.output", [x, y])


def network(g: GraphBuilder, x: Tensor, first: int, blocks: Sequence[int], growth: int) -> Tensor:
    """The layers: blocks of so many, with a halving of channels and image between them."""
    x = g.conv("conv0", x, first, kernel=7, stride=2)
    x = g.relu("relu0", g.batch_norm("bn0", x))
    x = g.max_pool("pool0", x, kernel=3, stride=2, pads=(1, 1, 1, 1))
    for block, layers in enumerate(blocks, start=1):
        if block > 1:
            x = _bn_relu_conv(g, f"transition{block - 1}", x, x.channels // 2, kernel=1)
            x = g.average_pool(f"transition{block - 1}.pool", x, kernel=2, stride=2)
        for index in range(1, layers + 1):
            x = layer(g, f"block{block}.{index}", x, growth)
    x = g.relu("last.relu", g.batch_norm("last.bn", x))
    return g.dense("logits", g.global_average_pool("pool", x), 1000)


def densenet121(batch: int, seed: int) -> onnx.ModelProto:
    """Writes DenseNet-121: `data` float32[batch, 3, 224, 224] to `logits` [batch, 1000]."""
    g = GraphBuilder("densenet121", batch=batch, seed=seed)
    return g.model(network(g, g.image(), FIRST, BLOCKS, GROWTH))


def _bn_relu_conv(g: GraphBuilder, name: str, x: Tensor, channels: int, *, kernel: int) -> Tensor:
    x = g.relu(f"{name}.relu", g.batch_norm(f"{name}.bn", x))
    return g.conv(f"{name}.conv", x, channels, kernel=kernel)
