"""SSD300's boxes: the published prior boxes, their decoding, and what the suppression keeps."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime as ort
import pytest

from veltair import models
from veltair.models import ssd
from veltair.models.detection import DetectionBuilder, Suppression

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

build = lru_cache(models.build)


def run(model: onnx.ModelProto, feed: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, map(np.asarray, session.run(names, feed)), strict=True))


def noise(seed: int, batch: int = 1) -> dict[str, NDArray[np.float32]]:
    random = np.random.default_rng(seed)
    return {"data": random.standard_normal((batch, 3, ssd.SIZE, ssd.SIZE), dtype=np.float32)}


def overlap(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """Common area by joint area."""
    low, high = np.maximum(one[:2], other[:2]), np.minimum(one[2:], other[2:])
    common = float(np.prod(np.maximum(high - low, 0)))
    areas = [float(np.prod(box[2:] - box[:2])) for box in (one, other)]
    return common / (sum(areas) - common)


def test_prior_boxes_are_the_published_ones() -> None:
    boxes = ssd.priors(ssd.LEVELS, ssd.SIZE)
    assert boxes.shape == (8732, 4)
    # SSD's own first and last cell: centre 4/300, sides 30 and sqrt(30 * 60); one cell, 264 wide.
    np.testing.assert_allclose(boxes[0] * 300, [4, 4, 30, 30], rtol=1e-6)
    np.testing.assert_allclose(boxes[1] * 300, [4, 4, 42.426407, 42.426407], rtol=1e-6)
    np.testing.assert_allclose(boxes[2] * 300, [4, 4, 42.426407, 21.213203], rtol=1e-6)
    np.testing.assert_allclose(boxes[4] * 300, [12, 4, 30, 30], rtol=1e-6)
    np.testing.assert_allclose(boxes[-1] * 300, [150, 150, 186.676190, 373.352380], rtol=1e-6)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_suppression_keeps_some_boxes_and_pads_the_rest(seed: int) -> None:
    got = run(build("ssd300_vgg16"), noise(seed))
    (count,) = got["count"]
    assert 20 <= count < ssd.KEEP.kept
    boxes, scores, labels = (got[name][0] for name in ("boxes", "scores", "labels"))
    assert np.isfinite(boxes).all()
    assert (np.diff(scores) <= 0).all()
    assert scores[:count].min() >= ssd.KEEP.least_score
    assert scores[:count].max() - scores[:count].min() > 0.1
    assert labels[:count].min() >= 1
    assert labels[:count].max() < ssd.CLASSES
    assert len(set(labels[:count])) > 5
    assert (boxes[:count, :2] < boxes[:count, 2:]).all()
    assert not scores[count:].any()
    assert not labels[count:].any()
    assert not boxes[count:].any()
    for first in range(count):
        for second in range(first):
            if labels[first] == labels[second]:
                assert overlap(boxes[first], boxes[second]) <= ssd.KEEP.overlap + 1e-5


def test_boxes_depend_on_the_input() -> None:
    one, other = (run(build("ssd300_vgg16"), noise(seed)) for seed in (1, 2))
    assert not np.array_equal(one["labels"], other["labels"])


def test_a_sample_gets_its_own_boxes_whatever_is_beside_it() -> None:
    feed = noise(4, batch=2)
    both = run(models.build("ssd300_vgg16", batch=2), feed)
    assert both["boxes"].shape == (2, 200, 4)
    for sample in range(2):
        alone = run(build("ssd300_vgg16"), {"data": feed["data"][sample : sample + 1]})
        count = both["count"][sample]
        assert count == alone["count"][0]
        np.testing.assert_allclose(both["scores"][sample], alone["scores"][0], atol=1e-4)
        assert both["labels"][sample, :5].tolist() == alone["labels"][0, :5].tolist()
        np.testing.assert_allclose(both["boxes"][sample, :5], alone["boxes"][0, :5], atol=1e-4)
        assert not both["labels"][sample, count:].any()
        assert not both["boxes"][sample, count:].any()


BOXES = 12  # an image of 3 x 4 x 4 values as rows of 4


def as_image(rows: NDArray[np.float64]) -> NDArray[np.float32]:
    """The image that `DetectionBuilder.rows` makes float[12, 4] of."""
    return rows.astype(np.float32).reshape(1, 4, 4, 3).transpose(0, 3, 1, 2)


def test_offsets_move_a_prior_box_by_its_size_and_grow_it_exponentially() -> None:
    priors = np.tile(np.array([0.5, 0.25, 0.2, 0.4], np.float32), (BOXES, 1))
    g = DetectionBuilder("boxes", batch=1, seed=0)
    offsets = g.rows("rows", g.image(size=4), values=4)
    corners = g.boxes("corners", offsets, priors, variances=(0.1, 0.2))
    model = g.model(replace(corners, channels=BOXES), image=(4,))
    rows = np.zeros((BOXES, 4))
    rows[1] = 10, 5, 0, 0
    rows[2] = 0, 0, math.log(2) / 0.2, math.log(0.5) / 0.2
    got = run(model, {"data": as_image(rows)})["corners"][0]
    np.testing.assert_allclose(got[0], [0.4, 0.05, 0.6, 0.45], atol=1e-6)
    np.testing.assert_allclose(got[1], [0.6, 0.25, 0.8, 0.65], atol=1e-6)
    np.testing.assert_allclose(got[2], [0.3, 0.15, 0.7, 0.35], atol=1e-6)


@pytest.mark.parametrize(
    ("kept", "scores", "labels", "lefts"),
    [
        (5, [0.9, 0.7, 0.6, 0, 0], [1, 2, 1, 0, 0], [0.1, 0.11, 0.7, 0, 0]),
        (2, [0.9, 0.7], [1, 2], [0.1, 0.11]),
    ],
)
def test_a_better_box_hides_those_of_its_class_that_it_overlaps(
    kept: int, scores: list[float], labels: list[int], lefts: list[float]
) -> None:
    g = DetectionBuilder("detections", batch=1, seed=0)
    boxes, shares = (
        g.rows(f"{name}.rows", g.image(name, size=4), values=4) for name in ("places", "certain")
    )
    model = g.detections(boxes, shares, Suppression(least_score=0.5, overlap=0.45, kept=kept))
    corners, certain = np.zeros((BOXES, 4)), np.zeros((BOXES, 4))
    corners[3], corners[7] = (0.1, 0.1, 0.3, 0.3), (0.11, 0.1, 0.31, 0.3)
    corners[5] = 0.7, 0.7, 0.8, 0.8
    certain[3, 1], certain[7, 1], certain[7, 2], certain[5, 1] = 0.9, 0.8, 0.7, 0.6
    certain[:, 0] = 0.95  # the background is no class
    certain[9, 3] = 0.4  # below the threshold
    got = run(model, {"places": as_image(corners), "certain": as_image(certain)})
    assert got["count"].tolist() == [np.count_nonzero(scores)]
    np.testing.assert_allclose(got["scores"], [scores], atol=1e-6)
    assert got["labels"].tolist() == [labels]
    np.testing.assert_allclose(got["boxes"][0, :, 0], lefts, atol=1e-6)
