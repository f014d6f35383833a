"""Adds the layers of a transformer's encoder to the graph builder.

Values are float32[batch, tokens, channels]; heads are float32[batch, heads, tokens, channels].
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto, helper

from veltair.models.builder import GELU_GAIN, GraphBuilder, Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx

_MASKED = np.finfo(np.float32).min
_LEAST_TOKENS, _LEAST_LENGTH = 1e-9, 1e-12  # what is divided by, so that nothing is divided by 0
_HEADS_FIRST, _HEADS_TRANSPOSED = (0, 2, 1, 3), (0, 2, 3, 1)


class TransformerBuilder(GraphBuilder):
    """One ONNX graph of an encoder in the making.

    Args:
        name: the graph's.
        batch: samples a run.
        tokens: of each sample.
        heads: that the channels are divided into.
        seed: any non-negative integer.
    """

    def __init__(self, name: str, *, batch: int, tokens: int, heads: int, seed: int) -> None:
        super().__init__(name, batch=batch, seed=seed)
        self._tokens, self._heads = tokens, heads

    def indices(self, name: str) -> Tensor:
        """Declares an input of one integer a token: int64[batch, tokens]."""
        shape = [self._batch, self._tokens]
        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.INT64, shape))
        return Tensor(name=name, channels=1)

    def embedding(
        self, name: str, index: Tensor, rows: int, channels: int, *, scale: float = 1.0
    ) -> Tensor:
        """The row of a table that each token names."""
        table = self._table(name, rows, channels, scale)
        return self._node("Gather", name, [table, index.name], channels=channels, axis=0)

    def positions(self, name: str, rows: int, channels: int, *, scale: float = 1.0) -> Tensor:
        """The rows of a table for the places of the tokens, the same for every sample."""
        table = self._table(name, rows, channels, scale)
        places = self._constant(f"{name}.index", np.arange(self._tokens)[np.newaxis])
        return self._node("Gather", name, [table, places], channels=channels, axis=0)

    def mask(self, name: str, attended: Tensor) -> Tensor:
        """What is added to scores: 0 where a token counts, float32's lowest where it doesn't."""
        axes = self._constant(f"{name}.axes", np.array([1, 2]))
        x = self._node("Unsqueeze", f"{name}.row", [attended.name, axes], channels=1)
        x = self._node("Cast", f"{name}.float", [x.name], channels=1, to=TensorProto.FLOAT)
        one = self._constant("one", np.float32(1))
        x = self._node("Sub", f"{name}.absent", [one, x.name], channels=1)
        lowest = self._constant("lowest", np.float32(_MASKED))
        return self._node("Mul", name, [x.name, lowest], channels=1)

    def linear(self, name: str, x: Tensor, channels: int, *, scale: float = 1.0) -> Tensor:
        """A matrix product with bias, of every token alike."""
        weight = self._matrix(f"{name}.weight", x.channels, channels, x.gain * scale)
        bias = self._drawn(f"{name}.bias", channels, mean=0.0, deviation=0.1)
        y = self._node("MatMul", f"{name}.product", [x.name, weight], channels=channels)
        return self._node("Add", name, [bias, y.name], channels=channels)

    def layer_norm(self, name: str, x: Tensor, epsilon: float) -> Tensor:
        """Normalises the channels of each token."""
        scale = self._drawn(f"{name}.scale", x.channels, mean=1.0, deviation=0.1)
        bias = self._drawn(f"{name}.bias", x.channels, mean=0.0, deviation=0.1)
        return self._node(
            "LayerNormalization",
            name,
            [x.name, scale, bias],
            channels=x.channels,
            axis=-1,
            epsilon=epsilon,
        )

    def gelu(self, name: str, x: Tensor) -> Tensor:
        """The value times the normal distribution's function of it, as exporters write it."""
        root = self._constant("root_two", np.float32(math.sqrt(2)))
        one, half = (self._constant(n, np.float32(v)) for n, v in (("one", 1), ("half", 0.5)))
        y = self._node("Div", f"{name}.scaled", [x.name, root], channels=x.channels)
        y = self._node("Erf", f"{name}.erf", [y.name], channels=x.channels)
        y = self._node("Add", f"{name}.shifted", [y.name, one], channels=x.channels)
        y = self._node("Mul", f"{name}.product", [x.name, y.name], channels=x.channels)
        return self._node("Mul", name, [y.name, half], channels=x.channels, gain=GELU_GAIN)

    def tanh(self, name: str, x: Tensor) -> Tensor:
        """Hyperbolic tangent."""
        return self._node("Tanh", name, [x.name], channels=x.channels)

    def attention(self, name: str, x: Tensor, mask: Tensor) -> Tensor:
        """Each token's mean of all tokens' values, weighed by how its query meets their keys."""
        query = self._heads_of(f"{name}.query", x, _HEADS_FIRST)
        key = self._heads_of(f"{name}.key", x, _HEADS_TRANSPOSED)
        value = self._heads_of(f"{name}.value", x, _HEADS_FIRST)
        size = x.channels // self._heads
        root = self._constant("root_size", np.float32(math.sqrt(size)))
        scores = self._node("MatMul", f"{name}.scores", [query.name, key.name], channels=1)
        scores = self._node("Div", f"{name}.scaled", [scores.name, root], channels=1)
        scores = self._node("Add", f"{name}.masked", [scores.name, mask.name], channels=1)
        shares = self._node("Softmax", f"{name}.shares", [scores.name], channels=1, axis=-1)
        mixed = self._node("MatMul", f"{name}.mixed", [shares.name, value.name], channels=size)
        mixed = self._node(
            "Transpose", f"{name}.joined", [mixed.name], channels=size, perm=_HEADS_FIRST
        )
        return self._reshaped(name, mixed, (self._batch, self._tokens, x.channels))

    def first_token(self, name: str, x: Tensor) -> Tensor:
        """The first token of each sample: float32[batch, channels]."""
        zero = self._constant("zero", np.array(0))
        return self._node("Gather", name, [x.name, zero], channels=x.channels, axis=1)

    def token_mean(self, name: str, x: Tensor, attended: Tensor) -> Tensor:
        """The mean of the tokens that count; 0 if none does: float32[batch, channels]."""
        last, tokens = (self._constant(f"{name}.axis{n}", np.array([n])) for n in (2, 1))
        least = self._constant(f"{name}.least", np.float32(_LEAST_TOKENS))
        kept = self._node("Unsqueeze", f"{name}.column", [attended.name, last], channels=1)
        kept = self._node("Cast", f"{name}.float", [kept.name], channels=1, to=TensorProto.FLOAT)
        y = self._node("Mul", f"{name}.kept", [x.name, kept.name], channels=x.channels)
        y = self._summed(f"{name}.sum", y, tokens)
        count = self._summed(f"{name}.count", kept, tokens)
        count = self._node("Clip", f"{name}.divisor", [count.name, least], channels=1)
        return self._node("Div", name, [y.name, count.name], channels=x.channels)

    def unit_length(self, name: str, x: Tensor) -> Tensor:
        """Each row over its Euclidean length, as PyTorch's `normalize` writes it."""
        least = self._constant(f"{name}.least", np.float32(_LEAST_LENGTH))
        length = self._node("ReduceL2", f"{name}.length", [x.name], channels=1, axes=[1])
        length = self._node("Clip", f"{name}.divisor", [length.name, least], channels=1)
        return self._node("Div", name, [x.name, length.name], channels=x.channels)

    def encoder(self, every_token: Tensor, first_token: Tensor) -> onnx.ModelProto:
        """Ends the graph with a value of every token and one of the first, and checks it."""
        return self._ended(
            {
                every_token.name: [self._batch, self._tokens, every_token.channels],
                first_token.name: [self._batch, first_token.channels],
            }
        )

    def _heads_of(self, name: str, x: Tensor, order: Sequence[int]) -> Tensor:
        """A matrix product whose channels become heads, the dimensions in `order`."""
        size = x.channels // self._heads
        y = self.linear(name, x, x.channels)
        y = self._reshaped(f"{name}.split", y, (self._batch, self._tokens, self._heads, size))
        return self._node("Transpose", f"{name}.heads", [y.name], channels=size, perm=list(order))

    def _reshaped(self, name: str, x: Tensor, shape: Sequence[int]) -> Tensor:
        sizes = self._constant(f"{name}.shape", np.array(shape))
        return self._node("Reshape", name, [x.name, sizes], channels=shape[-1])

    def _summed(self, name: str, x: Tensor, axes: str) -> Tensor:
        return self._node("ReduceSum", name, [x.name, axes], channels=x.channels, keepdims=0)

    def _matrix(self, name: str, rows: int, columns: int, gain: float) -> str:
        """What rows are multiplied by: float32[rows, columns]."""
        filters = self._drawn_filters((columns, rows), gain)
        return self._constant(name, np.ascontiguousarray(filters.T))

    def _table(self, name: str, rows: int, channels: int, scale: float) -> str:
        values = self._random.standard_normal((rows, channels), dtype=np.float32)
        values *= np.float32(scale)
        return self._constant(f"{name}.weight", values)
