"""The layer graph: what the passes transform between ONNX and kernels.

A graph is a list of operations in execution order over named tensors. Operations keep ONNX's names
where ONNX has them (`Conv`, `MatMul`, `MaxPool`, ...); `Default` stands for a run of nodes that the
Relax importer lowers. Passes return new graphs; nothing here is changed in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from veltair.compiler.clean import opset_of, value_shapes

Array = npt.NDArray[Any]
Layout = Literal["plain", "packed"]

# Operations that read (residuals too) and write through strided views: from and into a bordered or
# shared buffer.
VIEW_KINDS = ("Conv", "Pool", "LRN", "Relayout", "ConcatView")


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A value of the graph.

    Attributes:
        name: unique.
        shape: logical, ONNX's order.
        dtype: NumPy's name.
        layout: how it lies in memory; `packed` is NCHW with channels in vectors.
        data: the value of a constant, logical shape; None for an activation.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    layout: Layout = "plain"
    data: Array | None = None


@dataclass(frozen=True, kw_only=True)
class EpilogueStep:
    """One step of an operation's epilogue; `tensor` names its operand (see `kernels.spec.Step`)."""

    kind: str
    operand: Literal["none", "channel", "tensor"] = "none"
    params: tuple[float, ...] = ()
    tensor: str | None = None


@dataclass(frozen=True, kw_only=True)
class Op:
    """One operation.

    Attributes:
        kind: ONNX's operator, or `Default`, `Relayout`, `Reshape`, `ConcatView`.
        inputs: tensor names: data first, then a constant weight if the kind has one.
        outputs: tensor names.
        nodes: names of the ONNX nodes that it covers.
        attrs: the kind's parameters, normalised.
        epilogue: steps fused behind the main computation.
        protos: the nodes themselves where kind is `Default`.
    """

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[str, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    epilogue: tuple[EpilogueStep, ...] = ()
    protos: tuple[onnx.NodeProto, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        """Every tensor read, epilogue operands included."""
        return self.inputs + tuple(s.tensor for s in self.epilogue if s.tensor is not None)

    def replaced(self, **changes: Any) -> Op:  # noqa: ANN401 (the fields' own types)
        """A copy with some fields changed."""
        return replace(self, **changes)


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Operations in execution order over tensors; inputs and outputs are a client's names."""

    tensors: Mapping[str, Tensor]
    ops: tuple[Op, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opset: int

    def consumers(self) -> dict[str, list[int]]:
        """Indices of the operations that read each tensor, one entry a read."""
        found: dict[str, list[int]] = {}
        for index, op in enumerate(self.ops):
            for name in op.reads:
                found.setdefault(name, []).append(index)
        return found

    def producers(self) -> dict[str, int]:
        """Index of the operation that writes each tensor."""
        return {name: i for i, op in enumerate(self.ops) for name in op.outputs}

    def with_ops(self, ops: Iterable[Op], tensors: Mapping[str, Tensor] | None = None) -> Graph:
        """A copy with other operations (and tensors)."""
        return replace(self, ops=tuple(ops), tensors=self.tensors if tensors is None else tensors)


def dtype_name(elem_type: int) -> str:
    """NumPy's name of an ONNX element type."""
    return str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(elem_type)).name)


def from_model(model: onnx.ModelProto) -> Graph:
    """The graph of a clean model, an `Op` a node, attributes as ONNX has them."""
    shapes = value_shapes(model)
    tensors = {
        name: Tensor(name=name, shape=shape, dtype=dtype_name(elem))
        for name, (shape, elem) in shapes.items()
    }
    for weight in model.graph.initializer:
        data = numpy_helper.to_array(weight)
        tensors[weight.name] = replace(tensors[weight.name], data=data)
    ops = []
    for index, node in enumerate(model.graph.node):
        named = onnx.NodeProto()
        named.CopyFrom(node)
        named.name = node.name or f"{node.op_type}_{index}"
        attrs = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "Constant":
            data = numpy_helper.to_array(attrs["value"])
            name = node.output[0]
            tensors[name] = Tensor(name=name, shape=data.shape, dtype=data.dtype.name, data=data)
            continue
        ops.append(
            Op(
                kind=node.op_type,
                inputs=tuple(node.input),
                outputs=tuple(node.output),
                nodes=(named.name,),
                attrs=attrs,
                protos=(named,),
            )
        )
    return Graph(
        tensors=tensors,
        ops=tuple(ops),
        inputs=tuple(i.name for i in model.graph.input),
        outputs=tuple(o.name for o in model.graph.output),
        opset=opset_of(model),
    )
