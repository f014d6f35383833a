"""Photographs as the networks of ImageNet want them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from numpy.typing import NDArray

MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)  # of ImageNet's red, green, blue
DEVIATION = np.array([0.229, 0.224, 0.225], dtype=np.float32)
MARGIN = 256 / 224  # the shorter side before the crop, against the crop


def preprocess(
    photograph: NDArray[np.uint8], height: int = 224, width: int = 224
) -> NDArray[np.float32]:
    """Scales, crops the centre, normalises and puts the colours first.

    The scale is the one at which `height` by `width`, with ImageNet's usual margin, just fits: for
    224 by 224 it makes the shorter side 256.

    Args:
        photograph: uint8[rows, columns, 3], red, green, blue.
        height: rows of the result.
        width: columns of the result.

    Returns:
        float32[1, 3, height, width].
    """
    rows, columns, _ = photograph.shape
    scale = MARGIN * max(height / rows, width / columns)
    size = (round(columns * scale), round(rows * scale))
    scaled = Image.fromarray(photograph).resize(size, Image.Resampling.BILINEAR)
    left, top = (size[0] - width) // 2, (size[1] - height) // 2
    crop = scaled.crop((left, top, left + width, top + height))
    normal = (np.asarray(crop, dtype=np.float32) / 255 - MEAN) / DEVIATION
    return np.ascontiguousarray(normal.transpose(2, 0, 1)[None])
