"""Adds what a one-shot detector has behind its convolutions: from offsets and scores to boxes.

Values are float32[batch, boxes, values] with one row a prior box; `channels` is `values`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper

from veltair.models.builder import GraphBuilder, Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx
    from numpy.typing import NDArray

BOX_VALUES = 4
_RECTIFIED_MEAN_SQUARE = 0.5  # of a normal variable of variance one


@dataclass(frozen=True, kw_only=True)
class Suppression:
    """What of the boxes is kept.

    Attributes:
        least_score: a box and class below it are dropped.
        overlap: by which a box hides those of its class with lower scores: common area by joint.
        kept: boxes a sample at most, those of the highest scores.
    """

    least_score: float
    overlap: float
    kept: int


class DetectionBuilder(GraphBuilder):
    """One ONNX graph of a detector in the making."""

    def l2_norm(self, name: str, x: Tensor, scale: float) -> Tensor:
        """Divides each pixel of a rectified image by its length; multiplies by learned scales."""
        length = self._node("ReduceL2", f"{name}.length", [x.name], channels=1, axes=[1])
        least = self._constant("least_length", np.float32(1e-10))
        length = self._node("Add", f"{name}.divisor", [length.name, least], channels=1)
        y = self._node("Div", f"{name}.div", [x.name, length.name], channels=x.channels)
        values = self._random.standard_normal(x.channels, dtype=np.float32)
        scales = np.float32(scale) * (1 + np.float32(0.1) * values).reshape(1, -1, 1, 1)
        gain = x.gain * math.sqrt(_RECTIFIED_MEAN_SQUARE * x.channels) / scale
        inputs = [y.name, self._constant(f"{name}.scale", scales)]
        return self._node("Mul", name, inputs, channels=x.channels, gain=gain)

    def rows(self, name: str, x: Tensor, values: int) -> Tensor:
        """An image with `values` channels for each of its boxes, as one row a box."""
        y = self._node("Transpose", f"{name}.last", [x.name], channels=values, perm=[0, 2, 3, 1])
        shape = self._constant(f"rows.{values}", np.array([self._batch, -1, values]))
        return self._node("Reshape", name, [y.name, shape], channels=values)

    def joined(self, name: str, parts: Sequence[Tensor]) -> Tensor:
        """The rows of all parts."""
        inputs = [part.name for part in parts]
        return self._node("Concat", name, inputs, channels=parts[0].channels, axis=1)

    def shares(self, name: str, x: Tensor) -> Tensor:
        """Softmax over the values of each row."""
        return self._node("Softmax", name, [x.name], channels=x.channels, axis=-1)

    def boxes(
        self, name: str, x: Tensor, priors: NDArray[np.float32], variances: tuple[float, float]
    ) -> Tensor:
        """Moves and sizes prior boxes.

        Args:
            name: of the last node.
            x: offsets of the centre's x and y by the prior's sizes, logarithms of the growth.
            priors: float32[boxes, 4], centres' x and y, widths and heights.
            variances: what centres' and sizes' offsets are multiplied by first.

        Returns:
            Left, top, right and bottom.
        """
        centre, size = priors[np.newaxis, :, :2], priors[np.newaxis, :, 2:]
        reaches = self._constant(f"{name}.reaches", np.multiply(size, variances[0], dtype="f4"))
        centres = self._constant(f"{name}.centres", centre)
        growth = self._constant(f"{name}.growth", np.float32(variances[1]))
        halves = self._constant(f"{name}.halves", np.multiply(size, 0.5, dtype="f4"))
        y = self._sliced(f"{name}.offset", x, 2, 0, 2)
        y = self._node("Mul", f"{name}.move", [y.name, reaches], channels=2)
        middle = self._node("Add", f"{name}.centre", [y.name, centres], channels=2)
        y = self._sliced(f"{name}.logarithm", x, 2, 2, 4)
        y = self._node("Mul", f"{name}.exponent", [y.name, growth], channels=2)
        y = self._node("Exp", f"{name}.factor", [y.name], channels=2)
        half = self._node("Mul", f"{name}.half", [y.name, halves], channels=2)
        corners = [
            self._node(op, f"{name}.{corner}", [middle.name, half.name], channels=2).name
            for op, corner in (("Sub", "low"), ("Add", "high"))
        ]
        return self._node("Concat", name, corners, channels=BOX_VALUES, axis=2)

    def detections(self, boxes: Tensor, shares: Tensor, keep: Suppression) -> onnx.ModelProto:
        """Ends the graph with the best boxes that no better one of their class hides.

        Args:
            boxes: corners.
            shares: of the background, then of each class.
            keep: how many, and which.

        Returns:
            A checked model, with outputs that are padded with zeros to K = `keep.kept` rows:
            `boxes` float32[batch, K, 4], `scores` float32[batch, K] from high to low, `labels`
            int64[batch, K] from 1, and `count` int64[batch] of rows that are no padding.
        """
        by_class = self._node(
            "Transpose", "shares.by_class", [shares.name], channels=shares.channels, perm=[0, 2, 1]
        )
        by_class = self._sliced("objects", by_class, 1, 1, shares.channels)
        limits = [
            self._constant("most", np.array([keep.kept])),
            self._constant("overlap", np.array([keep.overlap], np.float32)),
            self._constant("least_score", np.array([keep.least_score], np.float32)),
        ]
        inputs = [boxes.name, by_class.name, *limits]
        selected = self._node("NonMaxSuppression", "selected", inputs, channels=3)
        own = self._own(selected)
        order = self._best(own, selected, by_class, keep.kept)
        self._kept_rows(boxes, selected, order, keep.kept)
        return self._ended(
            {
                "boxes": [self._batch, keep.kept, BOX_VALUES],
                "scores": [self._batch, keep.kept],
            },
            {"labels": [self._batch, keep.kept], "count": [self._batch]},
        )

    def _own(self, selected: Tensor) -> Tensor:
        """Which of the selected boxes, over all samples, is each sample's: bool[batch, S]."""
        sample = self._column("selected.sample", selected, np.array(0))
        samples = self._constant("samples", np.arange(self._batch)[:, np.newaxis])
        return self._node("Equal", "own", [sample.name, samples], channels=1)

    def _best(self, own: Tensor, selected: Tensor, by_class: Tensor, kept: int) -> Tensor:
        """Adds the outputs `scores` and `count`; returns which of the selected they are of.

        Padding is of score 0 and the other samples' boxes are of -1, so no other is ever kept.
        """
        found = self._node("GatherND", "found", [by_class.name, selected.name], channels=1)
        other = self._constant("other", np.float32(-1))
        masked = self._node("Where", "masked", [own.name, found.name, other], channels=1)
        padding = self._constant("padding.scores", np.zeros((self._batch, kept), np.float32))
        padded = self._node("Concat", "padded", [masked.name, padding], channels=1, axis=1)
        most = self._constant("most", np.array([kept]))
        best = ("best.scores", "best.order")
        self._nodes.append(helper.make_node("TopK", [padded.name, most], best, name="best"))
        fixed = self._constant("kept", np.array([self._batch, kept]))  # as inference can't tell
        self._node("Reshape", "scores", [best[0], fixed], channels=kept)
        order = self._node("Reshape", "order", [best[1], fixed], channels=kept)
        ones = self._node("Cast", "own.ones", [own.name], channels=1, to=TensorProto.INT64)
        axes = self._constant("own.axes", np.array([1]))
        total = self._node("ReduceSum", "own.total", [ones.name, axes], channels=1, keepdims=0)
        self._node("Min", "count", [total.name, most], channels=1)
        return order

    def _kept_rows(self, boxes: Tensor, selected: Tensor, order: Tensor, kept: int) -> None:
        """Adds the outputs `boxes` and `labels`: the selected ones' and padding, in `order`."""
        place = self._column("selected.place", selected, np.array([0, 2]))
        corners = self._node("GatherND", "corners", [boxes.name, place.name], channels=BOX_VALUES)
        kind = self._column("selected.class", selected, np.array(1))
        one = self._constant("background", np.array(1))
        kind = self._node("Add", "selected.label", [kind.name, one], channels=1)
        for name, values, padding in (
            ("boxes", corners, np.zeros((kept, BOX_VALUES), np.float32)),
            ("labels", kind, np.zeros(kept, np.int64)),
        ):
            rows = [values.name, self._constant(f"padding.{name}", padding)]
            padded = self._node("Concat", f"{name}.padded", rows, channels=1, axis=0)
            self._node("Gather", name, [padded.name, order.name], channels=1, axis=0)

    def _column(self, name: str, selected: Tensor, index: NDArray[np.int64]) -> Tensor:
        """Of rows of sample, class and box."""
        inputs = [selected.name, self._constant(f"{name}.index", index)]
        return self._node("Gather", name, inputs, channels=index.size, axis=1)

    def _sliced(self, name: str, x: Tensor, axis: int, first: int, end: int) -> Tensor:
        """A range of an axis."""
        bounds = [
            self._constant(f"slice.{value}", np.array([value])) for value in (first, end, axis)
        ]
        return self._node("Slice", name, [x.name, *bounds], channels=end - first)
