"""The layer graph: what the passes transform between ONNX and kernels.

A graph is a list of operations in execution order over named tensors. Operations keep ONNX's names
where ONNX has them (`Conv`, `MatMul`, `MaxPool`, ...); `Default` stands for a run of nodes that the
Relax importer lowers. Passes return new graphs; nothing here is changed in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import onnx
from onnx import numpy_helper

from veltair.compiler.binding import Array
from veltair.compiler.definitions import opset_of
from veltair.compiler.fallback import Segment, dtype_of, split
from veltair.compiler.inference import value_shapes
from veltair.runtime.manifest import TensorSpec

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
        kind: ONNX's operator, or `Default`, `Relayout`, `Reshape`, `ConcatView`, `Fallback`.
        inputs: tensor names: data first, then a constant weight if the kind has one.
        outputs: tensor names.
        nodes: names of the ONNX nodes that it covers.
        attrs: the kind's parameters, normalised; of a `Fallback` its `segment`.
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
    """Operations in execution order over tensors.

    Attributes:
        tensors: by name; a framed one as its bytes.
        ops: in order.
        inputs: a client's names.
        outputs: likewise.
        opset: of ONNX, that the operations follow.
        framed: inputs and outputs that carry their own shapes, as a client sees them.
    """

    tensors: Mapping[str, Tensor]
    ops: tuple[Op, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opset: int
    framed: Mapping[str, TensorSpec] = field(default_factory=dict)

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

    def spec(self, name: str) -> TensorSpec:
        """An input or output as a client sees it."""
        if name in self.framed:
            return self.framed[name]
        tensor = self.tensors[name]
        return TensorSpec(name=name, dtype=tensor.dtype, shape=tensor.shape)

    def with_ops(self, ops: Iterable[Op], tensors: Mapping[str, Tensor] | None = None) -> Graph:
        """A copy with other operations (and tensors)."""
        return replace(self, ops=tuple(ops), tensors=self.tensors if tensors is None else tensors)


def from_model(
    model: onnx.ModelProto,
    refused: Mapping[str, str] | None = None,
    framed: Mapping[str, TensorSpec] | None = None,
) -> Graph:
    """The graph of a clean model: an `Op` a node, attributes as ONNX has them, or a segment.

    Args:
        model: shapes inferred; each node has a name of its own.
        refused: why nodes can't be compiled that the model itself doesn't tell, by their names.
        framed: inputs and outputs that carry their own shapes.
    """
    parts = split(model, refused or {})
    tensors = {
        name: Tensor(name=name, shape=(spec.size_bytes,), dtype="uint8")
        for name, spec in (framed or {}).items()
    }
    for name, (shape, elem) in value_shapes(model).items():
        dtype = dtype_of(elem)
        if dtype is not None and name not in tensors:
            tensors[name] = Tensor(name=name, shape=shape, dtype=dtype)
    for name, proto in parts.constants.items():
        if dtype_of(proto.data_type) is not None:
            data = numpy_helper.to_array(proto)
            tensors[name] = Tensor(name=name, shape=data.shape, dtype=data.dtype.name, data=data)
    ops = [_segment_op(i) if isinstance(i, Segment) else _node_op(i) for i in parts.items]
    return Graph(
        tensors=tensors,
        ops=tuple(ops),
        inputs=tuple(i.name for i in model.graph.input),
        outputs=tuple(o.name for o in model.graph.output),
        opset=opset_of(model),
        framed=framed or {},
    )


def _node_op(node: onnx.NodeProto) -> Op:
    return Op(
        kind=node.op_type,
        inputs=tuple(node.input),
        outputs=tuple(node.output),
        nodes=(node.name,),
        attrs={a.name: onnx.helper.get_attribute_value(a) for a in node.attribute},
        protos=(node,),
    )


def _segment_op(segment: Segment) -> Op:
    return Op(
        kind="Fallback",
        inputs=segment.inputs,
        outputs=segment.outputs,
        nodes=segment.nodes,
        attrs={"segment": segment},
    )
