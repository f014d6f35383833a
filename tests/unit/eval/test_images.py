"""Preprocessing: geometry, colours, layout."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_sample_images

from veltair.eval.images import DEVIATION, MEAN, preprocess


def test_result_is_one_contiguous_channels_first_image() -> None:
    image = preprocess(load_sample_images().images[0])
    assert image.shape == (1, 3, 224, 224)
    assert image.dtype == np.float32
    assert image.flags.c_contiguous


def test_colours_keep_their_place_and_are_normalised() -> None:
    photograph = np.zeros((300, 400, 3), dtype=np.uint8)
    photograph[...] = [255, 0, 51]
    image = preprocess(photograph)
    expected = (np.array([1.0, 0.0, 0.2]) - MEAN) / DEVIATION
    np.testing.assert_allclose(image[0, :, 100, 100], expected, rtol=1e-6)
    assert np.ptp(image, axis=(2, 3)).max() == 0


@pytest.mark.parametrize("shape", [(256, 512, 3), (512, 256, 3)])
def test_centre_is_kept_and_the_margins_go(shape: tuple[int, int, int]) -> None:
    photograph = np.full(shape, 255, dtype=np.uint8)
    middle = tuple(slice((n - 224) // 2, (n + 224) // 2) for n in shape[:2])
    photograph[middle] = 0  # no scaling: the shorter side is 256 already
    black = (0 - MEAN) / DEVIATION
    np.testing.assert_array_equal(
        preprocess(photograph)[0], np.broadcast_to(black[:, None, None], (3, 224, 224))
    )


def test_other_sizes() -> None:
    assert preprocess(load_sample_images().images[1], 32, 64).shape == (1, 3, 32, 64)
