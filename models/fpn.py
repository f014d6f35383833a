"""Faster R-CNN's dense part on a feature pyramid: many heads that share weights, many outputs.

What the graph of such a detector is before and behind its data-dependent middle (proposals,
suppression, alignment): a backbone, a pyramid over it, the region proposals' head on each of its
five levels, and on four the head of a region, here of the one region that is the whole image.

Reference:
    "Feature pyramid networks for object detection" (2017), sections 3, 4.1 and 4.2; the sizes of
    the heads as in torchvision's `fasterrcnn_resnet50_fpn`, with 91 classes.
    "Deep residual learning for image recognition" (2016), table 1, 18-layer column.

Differs:
    ResNet-18 as the backbone and an image of 224 x 224, so that the heads weigh more than it. A
    region is the maximum in each of 7 x 7 windows, where the original interpolates at proposals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from veltair.models.builder import GraphBuilder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import onnx

    from veltair.models.builder import Tensor

BRANCH_SCALE = 0.5  # of what is added, as in ResNet-50
REGION = 7  # height and width of what a region's head reads
BOX_VALUES = 4


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What can be chosen smaller.

    Attributes:
        size: height and width of the image, of which the last stage leaves a multiple of `REGION`.
        stages: channels and blocks of the backbone's, each half as high and wide as the one before.
        channels: of the pyramid.
        anchors: boxes a pixel.
        hidden: channels of a region's head.
        classes: of objects, and the background.
    """

    size: int = 224
    stages: Sequence[tuple[int, int]] = ((64, 2), (128, 2), (256, 2), (512, 2))
    channels: int = 256
    anchors: int = 3
    hidden: int = 1024
    classes: int = 91


def basic_block(g: GraphBuilder, name: str, x: Tensor, channels: int, stride: int) -> Tensor:
    """Two 3x3 convolutions, and the shortcut around them."""
    y = g.conv(f"{name}.conv1", x, channels, kernel=3, stride=stride)
    y = g.relu(f"{name}.relu1", g.batch_norm(f"{name}.bn1", y))
    y = g.conv(f"{name}.conv2", y, channels, kernel=3)
    y = g.batch_norm(f"{name}.bn2", y, scale=BRANCH_SCALE)
    if stride != 1 or x.channels != channels:
        x = g.conv(f"{name}.shortcut.conv", x, channels, kernel=1, stride=stride)
        x = g.batch_norm(f"{name}.shortcut.bn", x)
    return g.relu(f"{name}.relu2", g.add(f"{name}.add", y, x))


def backbone(g: GraphBuilder, x: Tensor, stages: Sequence[tuple[int, int]]) -> list[Tensor]:
    """What each stage ends in, the largest image first."""
    x = g.conv("conv1", x, stages[0][0], kernel=7, stride=2)
    x = g.relu("relu1", g.batch_norm("bn1", x))
    x = g.max_pool("pool1", x, kernel=3, stride=2, pads=(1, 1, 1, 1))
    ends = []
    for stage, (channels, blocks) in enumerate(stages, start=1):
        for block in range(blocks):
            stride = 2 if stage > 1 and block == 0 else 1
            x = basic_block(g, f"stage{stage}.{block}", x, channels, stride)
        ends.append(x)
    return ends


def pyramid(g: GraphBuilder, ends: Sequence[Tensor], channels: int) -> list[Tensor]:
    """A level for each end, which also sees all smaller ones, and one of half the smallest."""
    merged: Tensor | None = None
    levels: list[Tensor] = []
    for level in range(len(ends) + 1, 1, -1):  # the level is the logarithm of its stride
        x = g.conv(f"lateral{level}", ends[level - 2], channels, kernel=1, bias=True)
        if merged is not None:
            x = g.add(f"merge{level}", x, g.double(f"double{level + 1}", merged))
        merged = x
        x = replace(x, gain=1 / math.sqrt(len(levels) + 1))  # it is a sum of so many
        levels.append(g.conv(f"level{level}", x, channels, kernel=3, bias=True))
    smallest = g.max_pool(f"level{len(ends) + 2}", levels[0], kernel=1, stride=2, pads=(0, 0, 0, 0))
    return [*reversed(levels), smallest]


def proposals(g: GraphBuilder, level: int, x: Tensor, anchors: int) -> tuple[Tensor, Tensor]:
    """Whether there is an object in each anchor of each pixel, and by how much it is off."""
    name = f"rpn{level}"
    y = g.conv(f"{name}.conv", x, x.channels, kernel=3, bias=True, weights="rpn.conv")
    y = g.relu(f"{name}.relu", y)
    offsets = BOX_VALUES * anchors
    return (
        g.conv(f"objectness{level}", y, anchors, kernel=1, bias=True, weights="rpn.objectness"),
        g.conv(f"deltas{level}", y, offsets, kernel=1, bias=True, weights="rpn.deltas"),
    )


def region(
    g: GraphBuilder, level: int, x: Tensor, side: int, sizes: Sizes
) -> tuple[Tensor, Tensor]:
    """The classes of a region and its box for each of them."""
    name = f"region{level}"
    window = side // REGION
    if window > 1:
        x = g.max_pool(f"{name}.pool", x, kernel=window, stride=window, pads=(0, 0, 0, 0))
    x = g.flatten(f"{name}.flatten", x, pixels=REGION * REGION)
    for layer in ("fc6", "fc7"):
        x = g.fully_connected(f"{name}.{layer}", x, sizes.hidden, weights=f"region.{layer}")
        x = g.relu(f"{name}.{layer}.relu", x)
    boxes = BOX_VALUES * sizes.classes
    return (
        g.fully_connected(f"classes{level}", x, sizes.classes, weights="region.classes"),
        g.fully_connected(f"boxes{level}", x, boxes, weights="region.boxes"),
    )


def network(g: GraphBuilder, x: Tensor, sizes: Sizes) -> Mapping[Tensor, Sequence[int]]:
    """The outputs, with the images that they are."""
    levels = pyramid(g, backbone(g, x, sizes.stages), sizes.channels)
    outputs: dict[Tensor, Sequence[int]] = {}
    side = sizes.size // 4
    for level, y in enumerate(levels, start=2):
        outputs.update(dict.fromkeys(proposals(g, level, y, sizes.anchors), (side, side)))
        if y is not levels[-1]:
            outputs.update(dict.fromkeys(region(g, level, y, side, sizes), ()))
        side = (side + 1) // 2
    return outputs


def fpn_heads(batch: int, seed: int) -> onnx.ModelProto:
    """Writes the pyramid with its heads.

    `data` float32[batch, 3, 224, 224] to `objectness2` .. `objectness6` [batch, 3, H, W], `deltas2`
    .. `deltas6` [batch, 12, H, W], H and W 56 to 4, `classes2` .. `classes5` [batch, 91], and
    `boxes2` .. `boxes5` [batch, 364].
    """
    g = GraphBuilder("fpn_heads", batch=batch, seed=seed)
    sizes = Sizes()
    return g.model_of_several(network(g, g.image(size=sizes.size), sizes))
