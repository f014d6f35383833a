"""Writes ONNX graphs of networks layer by layer, with seeded weights.

The weights are drawn, not trained, but a deep network of drawn weights is easily useless as a
workload: its activations grow or die with depth, or every input gives the same output. So each
filter is drawn with mean zero and scaled for what it reads, which keeps activations near variance
one and keeps the part that all inputs share from adding up.

Reference:
    "Characterizing signal propagation to close the performance gap in unnormalized
    ResNets" (2021), section 3: scaled weight standardisation and the gains below.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

OPSET = 17
IR_VERSION = 8  # the one that opset 17 came with: readable by every current tool

# What restores the variance that an activation takes from a normal variable of variance one.
LINEAR_GAIN = 1.0
RECTIFIED_GAIN = math.sqrt(2.0 / (1.0 - 1.0 / math.pi))
SWISH_GAIN = 1.787  # x * sigmoid(x)
GELU_GAIN = 1.701
GATE_GAIN = 2.0  # a gate of drawn weights lies around one half


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A value in the graph.

    Attributes:
        name: unique in the graph.
        channels: size of dimension 1 of an image, of the last one otherwise.
        gain: what the next filters multiply by, to make up for the activation before them.
    """

    name: str
    channels: int
    gain: float = LINEAR_GAIN


class GraphBuilder:
    """One ONNX graph in the making. Each method adds a layer and returns its output.

    The first argument of a layer is its node's name, and its weights are `<name>.weight` and so on.

    Args:
        name: the graph's; the weights depend on it and on `seed` alone.
        batch: samples a run.
        seed: any non-negative integer.
    """

    def __init__(self, name: str, *, batch: int, seed: int) -> None:
        self._name = name
        self._batch = batch
        self._random = np.random.default_rng([seed, zlib.crc32(name.encode())])
        self._inputs: list[onnx.ValueInfoProto] = []
        self._nodes: list[onnx.NodeProto] = []
        self._weights: dict[str, onnx.TensorProto] = {}

    def image(self, name: str = "data", size: int = 224) -> Tensor:
        """Declares the input: float32[batch, 3, size, size]."""
        shape = [self._batch, 3, size, size]
        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return Tensor(name=name, channels=3)

    def conv(
        self,
        name: str,
        x: Tensor,
        channels: int,
        *,
        kernel: int | tuple[int, int],
        stride: int = 1,
        dilation: int = 1,
        groups: int = 1,
        bias: bool | NDArray[np.float32] = False,
        padded: bool = True,
        weights: str = "",
    ) -> Tensor:
        """Convolution.

        Args:
            name: of the node.
            x: the image.
            channels: of the output.
            kernel: height and width; one number for both.
            stride: in both directions.
            dilation: in both directions.
            groups: that the channels are divided into.
            bias: float32[channels], or whether to draw one.
            padded: so that stride 1 keeps the image's size; not at all if false.
            weights: the name that layers of shared weights have in common; `name` if empty.
        """
        height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
        weights = weights or name
        shape = (channels, x.channels // groups, height, width)
        inputs = [x.name, self._filters(f"{weights}.weight", shape, x)]
        if isinstance(bias, np.ndarray):
            inputs.append(self._constant(f"{weights}.bias", bias))
        elif bias:
            inputs.append(self._drawn(f"{weights}.bias", channels, mean=0.0, deviation=0.1))
        pads = [dilation * (height // 2), dilation * (width // 2)] * 2 if padded else [0] * 4
        return self._node(
            "Conv",
            name,
            inputs,
            channels=channels,
            kernel_shape=[height, width],
            strides=[stride, stride],
            dilations=[dilation, dilation],
            pads=pads,
            group=groups,
        )

    def batch_norm(self, name: str, x: Tensor, *, scale: float = 1.0) -> Tensor:
        """Batch normalisation in inference, as a node of its own, its scales drawn near `scale`."""
        parts = [
            self._drawn(f"{name}.scale", x.channels, mean=scale, deviation=0.1 * scale),
            self._drawn(f"{name}.bias", x.channels, mean=0.0, deviation=0.1 * scale),
            self._drawn(f"{name}.mean", x.channels, mean=0.0, deviation=0.1),
            self._drawn(f"{name}.variance", x.channels, mean=1.0, deviation=0.1),
        ]
        return self._node(
            "BatchNormalization", name, [x.name, *parts], channels=x.channels, epsilon=1e-5
        )

    def relu(self, name: str, x: Tensor) -> Tensor:
        """max(x, 0)."""
        return self._node("Relu", name, [x.name], channels=x.channels, gain=RECTIFIED_GAIN)

    def relu6(self, name: str, x: Tensor) -> Tensor:
        """min(max(x, 0), 6), which ONNX writes as Clip."""
        bounds = [self._constant(f"clip.{bound}", np.float32(bound)) for bound in (0, 6)]
        return self._node("Clip", name, [x.name, *bounds], channels=x.channels, gain=RECTIFIED_GAIN)

    def leaky_relu(self, name: str, x: Tensor, alpha: float) -> Tensor:
        """The value where positive, alpha times it elsewhere."""
        mean_of_positive = 1.0 / math.sqrt(2.0 * math.pi)
        variance = (1.0 + alpha * alpha) / 2.0 - ((1.0 - alpha) * mean_of_positive) ** 2
        gain = 1.0 / math.sqrt(variance)
        return self._node("LeakyRelu", name, [x.name], channels=x.channels, gain=gain, alpha=alpha)

    def swish(self, name: str, x: Tensor) -> Tensor:
        """The value times its sigmoid, two nodes in ONNX."""
        gate = self.sigmoid(f"{name}.sigmoid", x)
        return self._node("Mul", name, [x.name, gate.name], channels=x.channels, gain=SWISH_GAIN)

    def sigmoid(self, name: str, x: Tensor) -> Tensor:
        """1 / (1 + e^-x)."""
        return self._node("Sigmoid", name, [x.name], channels=x.channels)

    def gated(self, name: str, x: Tensor, gate: Tensor) -> Tensor:
        """Multiplies each channel by its gate, an image of 1 x 1 between 0 and 1."""
        inputs = [x.name, gate.name]
        return self._node("Mul", name, inputs, channels=x.channels, gain=x.gain * GATE_GAIN)

    def add(self, name: str, x: Tensor, y: Tensor) -> Tensor:
        """The residual addition."""
        return self._node("Add", name, [x.name, y.name], channels=x.channels)

    def concat(self, name: str, parts: Sequence[Tensor]) -> Tensor:
        """Joins along the channels."""
        return self._node(
            "Concat",
            name,
            [part.name for part in parts],
            channels=sum(part.channels for part in parts),
            gain=min(part.gain for part in parts),
            axis=1,
        )

    def max_pool(
        self, name: str, x: Tensor, *, kernel: int, stride: int, pads: Sequence[int]
    ) -> Tensor:
        """Maximum over a window; `pads` as ONNX has them: top, left, bottom, right."""
        window = {"kernel_shape": [kernel, kernel], "strides": [stride, stride]}
        return self._same("MaxPool", name, x, **window, pads=list(pads))

    def max_pool_same(self, name: str, x: Tensor, *, kernel: int, stride: int) -> Tensor:
        """Maximum over a window, padded (at the far side first) to the stride's multiple."""
        window = {"kernel_shape": [kernel, kernel], "strides": [stride, stride]}
        return self._same("MaxPool", name, x, **window, auto_pad="SAME_UPPER")

    def average_pool(
        self, name: str, x: Tensor, *, kernel: int, stride: int = 1, padding: int = 0
    ) -> Tensor:
        """Mean over a window, of what lies in the image; `padding` is the same on all sides."""
        window = {"kernel_shape": [kernel, kernel], "strides": [stride, stride]}
        if padding:
            window["pads"] = [padding] * 4
        return self._same("AveragePool", name, x, **window)

    def global_average_pool(self, name: str, x: Tensor) -> Tensor:
        """Mean over the whole image."""
        return self._same("GlobalAveragePool", name, x)

    def double(self, name: str, x: Tensor) -> Tensor:
        """Doubles height and width, each pixel four times."""
        scales = self._constant("double.scales", np.array([1, 1, 2, 2], np.float32))
        return self._node(
            "Resize",
            name,
            [x.name, "", scales],
            channels=x.channels,
            gain=x.gain,
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )

    def local_response_norm(self, name: str, x: Tensor) -> Tensor:
        """Normalisation across 5 neighbouring channels, with AlexNet's constants."""
        return self._same("LRN", name, x, size=5, alpha=1e-4, beta=0.75, bias=1.0)

    def dense(self, name: str, x: Tensor, channels: int) -> Tensor:
        """Flattens an image of 1 x 1 and applies a fully connected layer with bias."""
        return self.fully_connected(name, self.flatten(f"{name}.flatten", x), channels)

    def flatten(self, name: str, x: Tensor, pixels: int = 1) -> Tensor:
        """An image of so many pixels as one row."""
        channels = x.channels * pixels
        return self._node("Flatten", name, [x.name], channels=channels, gain=x.gain, axis=1)

    def fully_connected(self, name: str, x: Tensor, channels: int, *, weights: str = "") -> Tensor:
        """A matrix product with bias, of rows that are flat; `weights` as in a convolution."""
        weights = weights or name
        weight = self._filters(f"{weights}.weight", (channels, x.channels), x)
        bias = self._drawn(f"{weights}.bias", channels, mean=0.0, deviation=0.1)
        return self._node("Gemm", name, [x.name, weight, bias], channels=channels, transB=1)

    def softmax(self, name: str, x: Tensor) -> Tensor:
        """Softmax over the channels."""
        return self._node("Softmax", name, [x.name], channels=x.channels, axis=1)

    def model(self, output: Tensor, image: Sequence[int] = ()) -> onnx.ModelProto:
        """Ends the graph with `output`, float32[batch, channels, *image], and checks it."""
        return self.model_of_several({output: image})

    def model_of_several(self, images: Mapping[Tensor, Sequence[int]]) -> onnx.ModelProto:
        """Ends the graph with outputs, each float32[batch, channels, *image], and checks it."""
        shapes = {y.name: [self._batch, y.channels, *image] for y, image in images.items()}
        return self._ended(shapes)

    def _ended(
        self,
        shapes: Mapping[str, Sequence[int]],
        integers: Mapping[str, Sequence[int]] | None = None,
    ) -> onnx.ModelProto:
        """Ends the graph with float32 outputs of these shapes, then int64 ones; checks it."""
        kinds = ((TensorProto.FLOAT, shapes), (TensorProto.INT64, integers or {}))
        outputs = [
            helper.make_tensor_value_info(name, kind, shape)
            for kind, each in kinds
            for name, shape in each.items()
        ]
        graph = helper.make_graph(
            self._nodes, self._name, self._inputs, outputs, list(self._weights.values())
        )
        self._weights.clear()  # the model's and the check's copies are memory enough
        model = helper.make_model(
            graph,
            producer_name="veltair",
            ir_version=IR_VERSION,
            opset_imports=[helper.make_opsetid("", OPSET)],
        )
        del graph
        onnx.checker.check_model(model, full_check=True)
        return model

    def _node(
        self,
        op: str,
        name: str,
        inputs: Sequence[str],
        *,
        channels: int,
        gain: float = LINEAR_GAIN,
        **attributes: float | str | Sequence[int],
    ) -> Tensor:
        self._nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return Tensor(name=name, channels=channels, gain=gain)

    def _same(
        self, op: str, name: str, x: Tensor, **attributes: float | str | Sequence[int]
    ) -> Tensor:
        """Adds a layer that keeps the channels and their gain."""
        return self._node(op, name, [x.name], channels=x.channels, gain=x.gain, **attributes)

    def _filters(self, name: str, shape: tuple[int, ...], x: Tensor) -> str:
        """Draws filters of mean zero that turn `x` into variance one, unless there are some."""
        if name in self._weights:
            return name
        return self._constant(name, self._drawn_filters(shape, x.gain))

    def _drawn_filters(self, shape: tuple[int, ...], gain: float) -> NDArray[np.float32]:
        fan_in = math.prod(shape[1:])
        values = self._random.standard_normal((shape[0], fan_in), dtype=np.float32)
        values -= values.mean(axis=1, keepdims=True)
        values *= np.float32(gain / math.sqrt(fan_in))
        return values.reshape(shape)

    def _drawn(self, name: str, channels: int, *, mean: float, deviation: float) -> str:
        if name in self._weights:
            return name
        values = self._random.standard_normal(channels, dtype=np.float32)
        return self._constant(name, np.float32(mean) + np.float32(deviation) * values)

    def _constant(
        self, name: str, value: NDArray[np.float32] | NDArray[np.int64] | np.float32
    ) -> str:
        if name not in self._weights:
            self._weights[name] = numpy_helper.from_array(np.asarray(value), name)
        return name
