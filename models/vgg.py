"""VGG-19: sixteen 3x3 convolutions and three fully connected layers.

Reference:
    "Very deep convolutional networks for large-scale image recognition" (2015), table 1, column E.

Differs:
    Without the dropout, which inference drops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from veltair.models.builder import GraphBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx

    from veltair.models.builder import Tensor

STAGES = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))  # channels, convolutions
HIDDEN = 4096
LAST_PIXELS = 7 * 7


def network(
    g: GraphBuilder, x: Tensor, stages: Sequence[tuple[int, int]], pixels: int, hidden: int
) -> Tensor:
    """The layers: stages of channels and convolutions, then of so many pixels, dense ones."""
    for stage, (channels, convolutions) in enumerate(stages, start=1):
        for index in range(1, convolutions + 1):
            name = f"conv{stage}_{index}"
            x = g.relu(f"{name}.relu", g.conv(name, x, channels, kernel=3, bias=True))
        x = g.max_pool(f"pool{stage}", x, kernel=2, stride=2, pads=(0, 0, 0, 0))
    x = g.flatten("flatten", x, pixels=pixels)
    for name in ("fc6", "fc7"):
        x = g.relu(f"{name}.relu", g.fully_connected(name, x, hidden))
    return g.fully_connected("logits", x, 1000)


def vgg19(batch: int, seed: int) -> onnx.ModelProto:
    """Writes VGG-19: `data` float32[batch, 3, 224, 224] to `logits` [batch, 1000]."""
    g = GraphBuilder("vgg19", batch=batch, seed=seed)
    return g.model(network(g, g.image(), STAGES, LAST_PIXELS, HIDDEN))
