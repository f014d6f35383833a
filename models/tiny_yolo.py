"""Tiny YOLO v2 for the 20 classes of Pascal VOC, from the image to the grid of predictions.

Reference:
    "YOLO9000: better, faster, stronger" (2017); the layers are Darknet's `tiny-yolo-voc`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from veltair.models.builder import GraphBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx

    from veltair.models.builder import Tensor

SIZE = 416
GRID = 13
HALVED = (16, 32, 64, 128, 256)  # channels of the convolutions that a pool of stride 2 follows
DEEP = 1024
BOXES, CLASSES = 5, 20
BOX_VALUES = 5  # place, size, and whether there is an object
SLOPE = 0.1


def network(g: GraphBuilder, x: Tensor, halved: Sequence[int], deep: int) -> Tensor:
    """The layers, with these channels, to the grid."""
    for index, channels in enumerate(halved, start=1):
        x = _conv_bn_leaky(g, f"conv{index}", x, channels)
        x = g.max_pool(f"pool{index}", x, kernel=2, stride=2, pads=(0, 0, 0, 0))
    index = len(halved) + 1
    x = _conv_bn_leaky(g, f"conv{index}", x, 2 * halved[-1])
    x = g.max_pool_same(f"pool{index}", x, kernel=2, stride=1)
    x = _conv_bn_leaky(g, f"conv{index + 1}", x, deep)
    x = _conv_bn_leaky(g, f"conv{index + 2}", x, deep)
    return g.conv("grid", x, BOXES * (BOX_VALUES + CLASSES), kernel=1, bias=True)


def tiny_yolov2(batch: int, seed: int) -> onnx.ModelProto:
    """Writes Tiny YOLO v2: `data` float32[batch, 3, 416, 416] to `grid` [batch, 125, 13, 13]."""
    g = GraphBuilder("tiny_yolov2", batch=batch, seed=seed)
    return g.model(network(g, g.image(size=SIZE), HALVED, DEEP), image=(GRID, GRID))


def _conv_bn_leaky(g: GraphBuilder, name: str, x: Tensor, channels: int) -> Tensor:
    x = g.batch_norm(f"{name}.bn", g.conv(f"{name}.conv", x, channels, kernel=3))
    return g.leaky_relu(f"{name}.leaky", x, SLOPE)
