"""Recognises operators that exporters write as several nodes: Gelu by erf, layer normalisation.

Works on the graph as imported, so that what follows knows one form of each.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from onnx import helper

from veltair.compiler.binding import Array
from veltair.compiler.graph import Graph, Op, Tensor

_CLOSE = 1e-4  # relative, of a constant to the one that a formula wants


def recompose(graph: Graph) -> Graph:
    """Replaces each pattern's last node by the operator; what nothing reads any more is dropped."""
    finder = _Finder(graph)
    ops = [finder.gelu(op) or finder.layer_norm(op) or op for op in graph.ops]
    return replace(graph, ops=tuple(ops), tensors=finder.tensors)


class _Finder:
    """Looks from a pattern's last node at what it is made of."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tensors: dict[str, Tensor] = dict(graph.tensors)
        self.writers = {name: op for op in graph.ops for name in op.outputs}

    # --- x / 2 * (1 + erf(x / sqrt(2))) -----------------------------------------------------

    def gelu(self, op: Op) -> Op | None:
        """The Gelu whose last product `op` is."""
        factors = self._factors(op, depth=2)
        if len(factors) != 3:
            return None
        rest = [f for f in factors if not self._is(f, 0.5)]
        values = [self._erf_of(f) for f in rest]
        for i, x in enumerate(values):
            if x is not None and len(rest) == 2 and rest[1 - i] == x:
                return _made(op, "Gelu", (x,), {})
        return None

    def _factors(self, op: Op, depth: int) -> list[str]:
        """The factors of a product of products."""
        if op.kind != "Mul":
            return []
        found: list[str] = []
        for name in op.inputs:
            writer = self.writers.get(name)
            inner = self._factors(writer, depth - 1) if writer and depth > 1 else []
            found += inner or [name]
        return found

    def _erf_of(self, name: str) -> str | None:
        """The x of 1 + erf(x / sqrt(2))."""
        erf = self._other(name, "Add", 1.0)
        writer = self.writers.get(erf or "")
        if writer is None or writer.kind != "Erf":
            return None
        scaled = writer.inputs[0]
        return self._other(scaled, "Div", math.sqrt(2)) or self._other(
            scaled, "Mul", math.sqrt(0.5)
        )

    def _other(self, name: str, kind: str, constant: float) -> str | None:
        """The operand that `kind` combines with a constant, where it wrote `name`."""
        writer = self.writers.get(name)
        if writer is None or writer.kind != kind:
            return None
        left, right = writer.inputs
        if self._is(right, constant):
            return left
        return right if kind != "Div" and self._is(left, constant) else None

    def _is(self, name: str, wanted: float) -> bool:
        value = self._scalar(name)
        return value is not None and abs(value - wanted) <= _CLOSE * abs(wanted)

    def _scalar(self, name: str) -> float | None:
        data = self._data(name)
        return float(data.reshape(-1)[0]) if data is not None and data.size == 1 else None

    def _data(self, name: str) -> Array | None:
        return self.tensors[name].data if name in self.tensors else None

    # --- (x - mean) / sqrt(mean of squares + epsilon) * scale + bias ------------------------

    def layer_norm(self, op: Op) -> Op | None:
        """The layer normalisation whose last addition `op` is."""
        if op.kind != "Add":
            return None
        bias, scaled = self._constant_and_other(op)
        product = self.writers.get(scaled)
        if not bias or product is None or product.kind != "Mul":
            return None
        scale, normal = self._constant_and_other(product)
        division = self.writers.get(normal)
        if not scale or division is None or division.kind != "Div":
            return None
        x, epsilon = self._normalised(division)
        if not x:
            return None
        columns = self.tensors[x].shape[-1]
        if any(self.tensors[n].shape != (columns,) for n in (scale, bias)):
            return None
        attributes = {"axis": -1, "epsilon": epsilon}
        return _made(op, "LayerNormalization", (x, scale, bias), attributes)

    def _constant_and_other(self, op: Op) -> tuple[str, str]:
        left, right = op.inputs
        if self._data(right) is not None:
            return right, left
        return (left, right) if self._data(left) is not None else ("", "")

    def _normalised(self, division: Op) -> tuple[str, float]:
        """The x and epsilon of a division of differences by their deviation; "" if it is none."""
        difference, deviation = division.inputs
        sub, root = self.writers.get(difference), self.writers.get(deviation)
        if sub is None or sub.kind != "Sub" or root is None or root.kind != "Sqrt":
            return "", 0.0
        x, mean = sub.inputs
        variance = self.writers.get(root.inputs[0])
        if self._mean_of(mean) != x or variance is None or variance.kind != "Add":
            return "", 0.0
        epsilon, squares = self._constant_and_other(variance)
        value = self._scalar(epsilon)
        square = self.writers.get(self._mean_of(squares))
        if value is None or square is None or not self._is_square(square, difference):
            return "", 0.0
        return x, value

    def _is_square(self, op: Op, of: str) -> bool:
        if op.kind == "Mul":
            return op.inputs == (of, of)
        return op.kind == "Pow" and op.inputs[0] == of and self._is(op.inputs[1], 2.0)

    def _mean_of(self, name: str) -> str:
        """What `name` is the mean over the last dimension of; "" if it is none."""
        op = self.writers.get(name)
        if op is None or op.kind != "ReduceMean" or not op.attrs.get("keepdims", 1):
            return ""
        axes = op.attrs.get("axes")
        if axes is None and len(op.inputs) > 1:
            axes = self._data(op.inputs[1])
        rank = len(self.tensors[op.inputs[0]].shape)
        last = axes is not None and [int(a) % rank for a in np.ravel(axes)] == [rank - 1]
        return op.inputs[0] if last else ""


def _made(op: Op, kind: str, inputs: tuple[str, ...], attributes: dict[str, float]) -> Op:
    """The recognised operator in the place of its pattern's last node."""
    proto = helper.make_node(kind, list(inputs), list(op.outputs), name=op.nodes[0], **attributes)
    return op.replaced(kind=kind, inputs=inputs, attrs=attributes, protos=(proto,))
