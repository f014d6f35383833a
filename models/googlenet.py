"""GoogLeNet (Inception-v1) as the ONNX model zoo has it: with LRN, without batch normalisation.

Reference:
    "Going deeper with convolutions" (2015), table 1.

Differs:
    Without what inference drops: dropout and the two auxiliary classifiers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from veltair.models.builder import GraphBuilder

if TYPE_CHECKING:
    import onnx

    from veltair.models.builder import Tensor


@dataclass(frozen=True)
class Inception:
    """A row of the paper's table 1: output channels of each convolution of a module."""

    name: str
    one: int
    three_reduce: int
    three: int
    five_reduce: int
    five: int
    pool_project: int


STAGE_3 = (
    Inception("inception_3a", 64, 96, 128, 16, 32, 32),
    Inception("inception_3b", 128, 128, 192, 32, 96, 64),
)
STAGE_4 = (
    Inception("inception_4a", 192, 96, 208, 16, 48, 64),
    Inception("inception_4b", 160, 112, 224, 24, 64, 64),
    Inception("inception_4c", 128, 128, 256, 24, 64, 64),
    Inception("inception_4d", 112, 144, 288, 32, 64, 64),
    Inception("inception_4e", 256, 160, 320, 32, 128, 128),
)
STAGE_5 = (
    Inception("inception_5a", 256, 160, 320, 32, 128, 128),
    Inception("inception_5b", 384, 192, 384, 48, 128, 128),
)


def inception(g: GraphBuilder, x: Tensor, row: Inception) -> Tensor:
    """Four branches over the same input, joined along the channels."""
    name = row.name
    one = _conv_relu(g, f"{name}.1x1", x, row.one, kernel=1)
    three = _conv_relu(g, f"{name}.3x3_reduce", x, row.three_reduce, kernel=1)
    three = _conv_relu(g, f"{name}.3x3", three, row.three, kernel=3)
    five = _conv_relu(g, f"{name}.5x5_reduce", x, row.five_reduce, kernel=1)
    five = _conv_relu(g, f"{name}.5x5", five, row.five, kernel=5)
    pool = g.max_pool(f"{name}.pool", x, kernel=3, stride=1, pads=(1, 1, 1, 1))
    pool = _conv_relu(g, f"{name}.pool_proj", pool, row.pool_project, kernel=1)
    return g.concat(f"{name}.output", [one, three, five, pool])


def googlenet(batch: int, seed: int) -> onnx.ModelProto:
    """Writes GoogLeNet: `data` float32[batch, 3, 224, 224] to `prob` [batch, 1000]."""
    g = GraphBuilder("googlenet", batch=batch, seed=seed)
    x = _conv_relu(g, "conv1.7x7_s2", g.image(), 64, kernel=7, stride=2)
    x = g.local_response_norm("pool1.norm1", _halve(g, "pool1.3x3_s2", x))
    x = _conv_relu(g, "conv2.3x3_reduce", x, 64, kernel=1)
    x = g.local_response_norm("conv2.norm2", _conv_relu(g, "conv2.3x3", x, 192, kernel=3))
    x = _halve(g, "pool2.3x3_s2", x)
    for row in STAGE_3:
        x = inception(g, x, row)
    x = _halve(g, "pool3.3x3_s2", x)
    for row in STAGE_4:
        x = inception(g, x, row)
    x = _halve(g, "pool4.3x3_s2", x)
    for row in STAGE_5:
        x = inception(g, x, row)
    x = g.average_pool("pool5.7x7_s1", x, kernel=7)
    return g.model(g.softmax("prob", g.dense("loss3.classifier", x, 1000)))


def _halve(g: GraphBuilder, name: str, x: Tensor) -> Tensor:
    """Pools 3x3 with stride 2; Caffe rounds the size up, hence the padding at the far side."""
    return g.max_pool(name, x, kernel=3, stride=2, pads=(0, 0, 1, 1))


def _conv_relu(
    g: GraphBuilder, name: str, x: Tensor, channels: int, *, kernel: int, stride: int = 1
) -> Tensor:
    x = g.conv(name, x, channels, kernel=kernel, stride=stride, bias=True)
    return g.relu(f"{name}.relu", x)
