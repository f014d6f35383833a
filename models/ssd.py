"""SSD300 on VGG-16 for the 20 classes of Pascal VOC, with its box decoding and suppression.

Reference:
    "SSD: single shot multibox detector" (2016), figure 2 and section 3.1, with the atrous fc6 and
    fc7; prior boxes and thresholds as the authors' `ssd_pascal.py` has them.

Differs:
    Suppression sees every box above the threshold, not the 400 best of each class: ONNX's operator
    has no such limit.
    The head's bias prefers the background and its filters are drawn at thrice the strength, as
    training does it, so that few boxes pass and their scores differ.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from veltair.models.detection import BOX_VALUES, DetectionBuilder, Suppression

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx
    from numpy.typing import NDArray

    from veltair.models.builder import GraphBuilder, Tensor

SIZE = 300
CLASSES = 21  # with the background
STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))  # channels, convolutions
HIDDEN = 1024  # channels of fc6 and fc7
DILATION = 6
NORM_SCALE = 20.0
VARIANCES = (0.1, 0.2)
KEEP = Suppression(least_score=0.01, overlap=0.45, kept=200)
# The maximum over a window varies more than what it is of; so the next filters get less.
POOL_GAIN, LAST_POOL_GAIN = 1 / 1.17, 1 / 1.4
BACKGROUND_BIAS = 19.0
CONFIDENCE_STRENGTH = 3.0


@dataclass(frozen=True)
class Level:
    """The prior boxes of one image of features, in pixels of the network's input.

    Attributes:
        side: height and width of the image.
        step: from one of its pixels to the next.
        least: side of the smaller square box.
        most: the larger square's is the geometric mean of both.
        ratios: of the sides of the others; each stands upright and lies.
    """

    side: int
    step: int
    least: int
    most: int
    ratios: tuple[int, ...]

    @property
    def boxes(self) -> int:
        """Boxes a pixel."""
        return 2 + 2 * len(self.ratios)


LEVELS = (
    Level(38, 8, 30, 60, (2,)),
    Level(19, 16, 60, 111, (2, 3)),
    Level(10, 32, 111, 162, (2, 3)),
    Level(5, 64, 162, 213, (2, 3)),
    Level(3, 100, 213, 264, (2,)),
    Level(1, 300, 264, 315, (2,)),
)


@dataclass(frozen=True)
class Extra:
    """A 1x1 convolution that narrows, then a 3x3 one that makes a smaller level."""

    narrow: int
    channels: int
    stride: int  # padded where it is 2


EXTRAS = (Extra(256, 512, 2), Extra(128, 256, 2), Extra(128, 256, 1), Extra(128, 256, 1))


def priors(levels: Sequence[Level], size: int) -> NDArray[np.float32]:
    """The prior boxes, by level, row, column and kind of box.

    Args:
        levels: theirs.
        size: of the network's input in pixels.

    Returns:
        float32[boxes, 4]: centre's x and y, width and height, as shares of the input's side.
    """
    rows = []
    for level in levels:
        middle = math.sqrt(level.least * level.most)
        sides = [(float(level.least), float(level.least)), (middle, middle)]
        for ratio in level.ratios:
            long, short = level.least * math.sqrt(ratio), level.least / math.sqrt(ratio)
            sides += [(long, short), (short, long)]
        for row, column in itertools.product(range(level.side), repeat=2):
            x, y = (column + 0.5) * level.step, (row + 0.5) * level.step
            rows += [(x, y, width, height) for width, height in sides]
    return (np.array(rows) / size).astype(np.float32)


def features(g: DetectionBuilder, x: Tensor) -> list[Tensor]:
    """The images that the heads read, one for each level."""
    levels = []
    for stage, (channels, convolutions) in enumerate(STAGES, start=1):
        for index in range(1, convolutions + 1):
            x = _conv_relu(g, f"conv{stage}_{index}", x, channels, kernel=3)
        if stage == 4:
            levels.append(g.l2_norm("conv4_3.norm", x, NORM_SCALE))
        if stage == 5:
            x = g.max_pool("pool5", x, kernel=3, stride=1, pads=(1, 1, 1, 1))
            x = replace(x, gain=x.gain * LAST_POOL_GAIN)
        else:  # Caffe rounds the third one's size up, hence the padding at its far side
            far = 1 if stage == 3 else 0
            x = g.max_pool(f"pool{stage}", x, kernel=2, stride=2, pads=(0, 0, far, far))
            x = replace(x, gain=x.gain * POOL_GAIN)
    x = _conv_relu(g, "fc6", x, HIDDEN, kernel=3, dilation=DILATION)
    levels.append(_conv_relu(g, "fc7", x, HIDDEN, kernel=1))
    for stage, extra in enumerate(EXTRAS, start=8):
        x = _conv_relu(g, f"conv{stage}_1", levels[-1], extra.narrow, kernel=1)
        x = _conv_relu(
            g,
            f"conv{stage}_2",
            x,
            extra.channels,
            kernel=3,
            stride=extra.stride,
            padded=extra.stride == 2,
        )
        levels.append(x)
    return levels


def heads(
    g: DetectionBuilder, images: Sequence[Tensor], levels: Sequence[Level]
) -> tuple[Tensor, Tensor]:
    """Each prior box's offsets and its classes' confidences."""
    offsets, confidences = [], []
    for index, (x, level) in enumerate(zip(images, levels, strict=True), start=1):
        y = g.conv(f"offset{index}", x, level.boxes * BOX_VALUES, kernel=3, bias=True)
        offsets.append(g.rows(f"offset{index}.rows", y, BOX_VALUES))
        bias = np.zeros((level.boxes, CLASSES), np.float32)
        bias[:, 0] = BACKGROUND_BIAS
        strong = replace(x, gain=x.gain * CONFIDENCE_STRENGTH)
        y = g.conv(f"confidence{index}", strong, level.boxes * CLASSES, kernel=3, bias=bias.ravel())
        confidences.append(g.rows(f"confidence{index}.rows", y, CLASSES))
    return g.joined("offsets", offsets), g.joined("confidences", confidences)


def ssd300_vgg16(batch: int, seed: int) -> onnx.ModelProto:
    """Writes SSD300: `data` float32[batch, 3, 300, 300] to at most 200 boxes.

    `boxes` float32[batch, 200, 4] are left, top, right and bottom as shares of the image's side,
    `scores` float32[batch, 200] descend, `labels` int64[batch, 200] are 1 to 20, and `count`
    int64[batch] says how many there are; the rest is 0.
    """
    g = DetectionBuilder("ssd300_vgg16", batch=batch, seed=seed)
    offsets, confidences = heads(g, features(g, g.image(size=SIZE)), LEVELS)
    boxes = g.boxes("corners_of_all", offsets, priors(LEVELS, SIZE), VARIANCES)
    return g.detections(boxes, g.shares("shares", confidences), KEEP)


def _conv_relu(
    g: GraphBuilder,
    name: str,
    x: Tensor,
    channels: int,
    *,
    kernel: int,
    stride: int = 1,
    dilation: int = 1,
    padded: bool = True,
) -> Tensor:
    x = g.conv(
        name,
        x,
        channels,
        kernel=kernel,
        stride=stride,
        dilation=dilation,
        padded=padded,
        bias=True,
    )
    return g.relu(f"{name}.relu", x)
