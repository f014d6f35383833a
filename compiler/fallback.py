"""What can't be compiled: finds it, and makes of it the segments that ONNX Runtime runs.

A node falls back where its operator isn't one that TVM lowers, or where what it reads or writes has
no place in a statically planned arena: a shape that depends on the data, a sequence, a string.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import helper

from veltair.compiler.definitions import opset_of
from veltair.compiler.fold import is_random
from veltair.compiler.inference import value_shapes
from veltair.compiler.nodes import subgraphs, tensor_reads
from veltair.compiler.partition import Partition, partition
from veltair.runtime.errors import InputError
from veltair.runtime.framed import STRING
from veltair.runtime.manifest import ITEM_BYTES, TensorSpec

MOST_BYTES = 1 << 20  # of an input's or output's elements, where the shape doesn't say how many
_MOST_NAMED = 3  # operators in a label
_BETWEEN = "it lies between parts of one segment"
_FOLLOWS = "it reads what no arena can hold"


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A part of the graph that ONNX Runtime runs as one layer.

    Attributes:
        model: of its nodes, with the initializers that they read.
        inputs: names of the activations that it reads.
        outputs: names of what others, or a client, read of it.
        nodes: names of its nodes.
        reasons: why each of them falls back.
        framed: those of the names whose tensors carry their own shapes.
    """

    model: onnx.ModelProto
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[str, ...]
    reasons: tuple[str, ...]
    framed: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Its operators, e.g. `fallback NonMaxSuppression+Gather+2`."""
        kinds = list(dict.fromkeys(node.op_type for node in self.model.graph.node))
        more = f"+{len(kinds) - _MOST_NAMED}" if len(kinds) > _MOST_NAMED else ""
        return f"fallback {'+'.join(kinds[:_MOST_NAMED])}{more}"

    @property
    def culprits(self) -> dict[str, str]:
        """Why nodes fall back for their own sake and not for others', by their names."""
        pairs = zip(self.nodes, self.reasons, strict=True)
        return {name: reason for name, reason in pairs if reason not in (_BETWEEN, _FOLLOWS)}

    @property
    def culprit_kinds(self) -> set[str]:
        """Operators of the culprits."""
        names = self.culprits
        return {node.op_type for node in self.model.graph.node if node.name in names}

    @property
    def explanations(self) -> tuple[str, ...]:
        """Operator, name and reason of each culprit."""
        kinds = {node.name: node.op_type for node in self.model.graph.node}
        return tuple(f"{kinds[name]} '{name}': {why}" for name, why in self.culprits.items())


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A model, divided.

    Attributes:
        items: nodes that are compiled, and segments, in execution order.
        constants: of the model, by name.
    """

    items: tuple[onnx.NodeProto | Segment, ...]
    constants: Mapping[str, onnx.TensorProto]


def split(model: onnx.ModelProto, refused: Mapping[str, str]) -> Parts:
    """Divides a clean model.

    Args:
        model: shapes inferred; each node has a name of its own.
        refused: why nodes can't be compiled that the model itself doesn't tell, by their names.
    """
    cut = _Cut(model, refused)
    items: list[onnx.NodeProto | Segment] = []
    for group in cut.partition.groups:
        nodes = [cut.nodes[i] for i in group.nodes]
        items += [cut.segment(group.nodes)] if group.is_segment else nodes
    return Parts(items=tuple(items), constants=cut.constants)


class _Cut:
    """One division of a model."""

    def __init__(self, model: onnx.ModelProto, refused: Mapping[str, str]) -> None:
        self.model = model
        self.shapes = value_shapes(model)
        self.constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self.nodes = []
        for node in model.graph.node:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                tensor = onnx.TensorProto()
                tensor.CopyFrom(node.attribute[0].t)
                tensor.name = node.output[0]
                self.constants[tensor.name] = tensor
            else:
                self.nodes.append(node)
        self.producers = {name: i for i, n in enumerate(self.nodes) for name in n.output if name}
        self.types = _value_types(model)
        ends = (*model.graph.input, *model.graph.output)
        self.ends = {value.name: value for value in ends if self._unplaceable(value.name)}
        self.reasons = {
            i: reason
            for i, node in enumerate(self.nodes)
            if (reason := refused.get(node.name) or self._reason(node))
        }
        self.partition = self._partition()
        self.reasons |= dict.fromkeys(self.partition.between, _BETWEEN)

    def segment(self, group: tuple[int, ...]) -> Segment:
        """The segment of some nodes."""
        nodes = [self.nodes[i] for i in group]
        made = {name for node in nodes for name in node.output if name}
        reads = dict.fromkeys(name for node in nodes for name in tensor_reads(node))
        inputs = tuple(n for n in reads if n not in made and n not in self.constants)
        inside = set(group)
        needed = {value.name for value in self.model.graph.output}
        for i, node in enumerate(self.nodes):
            if i not in inside:
                needed.update(tensor_reads(node))
        outputs = tuple(name for node in nodes for name in node.output if name in needed)
        graph = helper.make_graph(
            nodes,
            "segment",
            [self._value(name) for name in inputs],
            [self._value(name) for name in outputs],
            initializer=[self.constants[name] for name in reads if name in self.constants],
        )
        made_model = helper.make_model(
            graph, opset_imports=self.model.opset_import, ir_version=self.model.ir_version
        )
        return Segment(
            model=made_model,
            inputs=inputs,
            outputs=outputs,
            nodes=tuple(node.name for node in nodes),
            reasons=tuple(self.reasons[i] for i in group),
            framed=tuple(name for name in (*inputs, *outputs) if name in self.ends),
        )

    def _value(self, name: str) -> onnx.ValueInfoProto:
        if name in self.ends:
            return self.ends[name]
        shape, elem = self.shapes[name]
        return helper.make_tensor_value_info(name, elem, shape)

    def _partition(self) -> Partition:
        before = []
        tied = []
        for i, node in enumerate(self.nodes):
            sources = {n: self.producers[n] for n in tensor_reads(node) if n in self.producers}
            before.append(set(sources.values()))
            tied += [(source, i) for name, source in sources.items() if self._unplaceable(name)]
        return partition(before, self.reasons, tied)

    def _reason(self, node: onnx.NodeProto) -> str:
        """Why a node can't be compiled, as far as the model tells; empty where it can."""
        if subgraphs(node):
            return "it runs a subgraph"
        opset = opset_of(self.model)
        if node.domain not in ("", "ai.onnx") or not onnx.defs.has(node.op_type, opset):
            return f"its operator is of domain '{node.domain}'"
        if is_random(node, self.constants):
            return "it draws at random"
        for name in node.input:
            if name and (why := self._unplaceable(name)):
                return _FOLLOWS if name in self.producers else why
        return next((why for name in node.output if name and (why := self._unplaceable(name))), "")

    def _unplaceable(self, name: str) -> str:
        """Why a tensor can't lie in the arena; empty where it can."""
        kind = self.types.get(name)
        if kind is not None and kind != "tensor_type":
            return f"'{name}' is a {kind.removesuffix('_type')}"
        if name not in self.shapes:
            return f"the shape of '{name}' depends on the data"
        elem = self.shapes[name][1]
        type_name = onnx.TensorProto.DataType.Name(elem).lower()
        if dtype_of(elem) is None:
            return f"'{name}' is of type {type_name}"
        return ""


def dtype_of(elem_type: int) -> str | None:
    """NumPy's name of an ONNX element type; None where an arena can't hold it."""
    if elem_type == onnx.TensorProto.BFLOAT16:
        return "bfloat16"
    try:
        name = str(helper.tensor_dtype_to_np_dtype(elem_type).name)
    except KeyError:
        return None
    return name if name in ITEM_BYTES else None


def _value_types(model: onnx.ModelProto) -> dict[str, str]:
    """What kind of value each tensor is: `tensor_type`, `sequence_type`, ..."""
    graph = model.graph
    values = (*graph.input, *graph.value_info, *graph.output)
    return {v.name: str(v.type.WhichOneof("value")) for v in values if v.type.WhichOneof("value")}


def framed_ends(
    path: Path, model: onnx.ModelProto, most_bytes: Mapping[str, int]
) -> dict[str, TensorSpec]:
    """The model's inputs and outputs that carry their own shapes: see `veltair.runtime.framed`.

    Args:
        path: of the model, for messages.
        model: clean.
        most_bytes: room for the elements of those that it names.

    Raises:
        InputError: one is no tensor or of a type that no client can send, or `most_bytes` names
            what isn't framed.
    """
    shapes = value_shapes(model)
    found = {}
    for value in (*model.graph.input, *model.graph.output):
        if value.type.WhichOneof("value") != "tensor_type":
            kind = str(value.type.WhichOneof("value") or "unknown").removesuffix("_type")
            raise InputError(
                f"{path}: '{value.name}' is a {kind}; clients send and receive tensors: cut the "
                "model where its values are tensors"
            )
        tensor = value.type.tensor_type
        dtype = (
            STRING if tensor.elem_type == onnx.TensorProto.STRING else dtype_of(tensor.elem_type)
        )
        if dtype is None:
            name = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
            raise InputError(
                f"{path}: '{value.name}' is of type {name}; clients send and receive "
                f"{', '.join((*ITEM_BYTES, STRING))}: cut the model where it has one of those"
            )
        if dtype != STRING and value.name in shapes:
            continue
        sizes = [d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim]
        found[value.name] = TensorSpec(
            name=value.name,
            dtype=dtype,
            shape=tuple(sizes) if tensor.HasField("shape") else (-1,),
            most_bytes=most_bytes.get(value.name, MOST_BYTES),
        )
    for name in most_bytes:
        if name not in found:
            known = ", ".join(found) or "none"
            raise InputError(
                f"--most-bytes {name}=...: it is no input or output whose size only a value tells; "
                f"those are: {known}"
            )
    return found
