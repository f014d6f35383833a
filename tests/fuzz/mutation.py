"""Changes models where a change has a meaning: nodes, names, types, shapes, attributes, data."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random

import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, TensorProto, helper

_INTEGERS = [0, 1, -1, 2, 3, 7, 64, 255, -(1 << 31), 1 << 31, 1 << 62, -(1 << 63), (1 << 63) - 1]
_SIZES = [0, 1, 2, 3, 5, 16, 100, -1, 1 << 16, 1 << 31, 1 << 40, 1 << 62]
_FLOATS = [0.0, -0.0, 1.0, -1.0, 1e-38, 3e38, math.inf, -math.inf, math.nan]
_NAMES = ["", "x", "y", "a/b", "../up", "with space", "\u00e9\u4e2d", "a\0b", "n" * 5000, "%s{0}"]
_TYPES = [*TensorProto.DataType.values(), 99]
_OPSETS = [1, 7, 9, 11, 13, 17, 18, 21, 22, 23, 24, 25, 26, 999]
_KINDS = sorted({s.name for s in onnx.defs.get_all_schemas() if s.domain == ""})
_DOMAINS = ["", "ai.onnx", "ai.onnx.ml", "com.microsoft", "com.example"]

Change = Callable[[Random, onnx.ModelProto], None]


def mutated(data: bytes, other: bytes, random: Random) -> bytes | None:
    """A model with some changes; None where the data is no model."""
    model, donor = _parsed(data), _parsed(other)
    if model is None:
        return None
    for _ in range(random.choice([1, 1, 1, 2, 3, 6])):
        if donor is not None and random.random() < 0.1:
            _take(random, model, donor)
        else:
            random.choice(_CHANGES)(random, model)
    return bytes(model.SerializeToString())


def _parsed(data: bytes) -> onnx.ModelProto | None:
    try:
        model = onnx.ModelProto.FromString(data)
    except DecodeError:
        return None
    return model if model.graph.node else None


def _graphs(model: onnx.ModelProto) -> list[onnx.GraphProto]:
    found = [model.graph]
    for graph in found:
        for node in graph.node:
            for attribute in node.attribute:
                found += [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]
    return found


def _graph(random: Random, model: onnx.ModelProto) -> onnx.GraphProto:
    graphs = _graphs(model)
    return graphs[0] if random.random() < 0.6 else random.choice(graphs)


def _node(random: Random, model: onnx.ModelProto) -> onnx.NodeProto:
    graph = _graph(random, model)
    bodies = [graph.node, *(function.node for function in model.functions)]
    filled = [nodes for nodes in bodies if len(nodes)]
    return random.choice(random.choice(filled)) if filled else onnx.NodeProto()


def _names(model: onnx.ModelProto) -> list[str]:
    graph = model.graph
    values = [v.name for v in (*graph.input, *graph.output, *graph.initializer)]
    return [*values, *(name for node in graph.node for name in (*node.input, *node.output))]


def _name(random: Random, model: onnx.ModelProto) -> str:
    known = _names(model)
    return random.choice(known) if known and random.random() < 0.85 else random.choice(_NAMES)


def _rewire(random: Random, model: onnx.ModelProto) -> None:
    node = _node(random, model)
    names = node.input if random.random() < 0.8 else node.output
    action = random.random()
    if action < 0.2:
        names.append(_name(random, model))
    elif action < 0.35 and len(names):
        del names[random.randrange(len(names))]
    elif len(names):
        names[random.randrange(len(names))] = _name(random, model)


def _retype_node(random: Random, model: onnx.ModelProto) -> None:
    node = _node(random, model)
    if random.random() < 0.85:
        node.op_type = random.choice(_KINDS)
        if random.random() < 0.5:
            del node.attribute[:]
    elif random.random() < 0.5:
        node.domain = random.choice(_DOMAINS)
    else:
        node.name = random.choice(_NAMES)


def _move_nodes(random: Random, model: onnx.ModelProto) -> None:
    nodes = _graph(random, model).node
    if not len(nodes):
        return
    index = random.randrange(len(nodes))
    if random.random() < 0.5:
        nodes.add().CopyFrom(nodes[index])
        if random.random() < 0.8:
            nodes[-1].output[:] = [f"{name}_{len(nodes)}" for name in nodes[-1].output]
            for name in nodes[-1].output:
                model.graph.output.add(name=name)
    elif len(nodes) > 1:
        del nodes[index]


def _add_node(random: Random, model: onnx.ModelProto) -> None:
    """An operator of any kind, over what there is, whose outputs are read by a client."""
    kind = random.choice(_KINDS)
    schema = onnx.defs.get_schema(kind)
    count = random.randint(schema.min_input, min(schema.max_input, schema.min_input + 3))
    made = [f"made{len(model.graph.node)}_{i}" for i in range(max(1, schema.min_output))]
    node = helper.make_node(kind, [_name(random, model) for _ in range(count)], made, name=made[0])
    for attribute in schema.attributes.values():
        if attribute.required or random.random() < 0.3:
            _fill(random, node.attribute.add(name=attribute.name), int(attribute.type))
    model.graph.node.append(node)
    for name in made:
        model.graph.output.add(name=name)


def _fill(random: Random, attribute: AttributeProto, kind: int) -> None:
    attribute.type = kind
    attribute.i = random.choice(_INTEGERS)
    attribute.f = random.choice(_FLOATS)
    attribute.s = random.choice([b"", b"linear", b"SAME_UPPER", b"constant", b"\xff\xfe"])
    count = random.choice([0, 1, 2, 2, 4])
    attribute.ints[:] = [random.choice(_INTEGERS) for _ in range(count)]
    attribute.floats[:] = [random.choice(_FLOATS) for _ in range(count)]
    attribute.strings[:] = [attribute.s] * count
    attribute.t.data_type = TensorProto.FLOAT
    attribute.t.float_data.append(1.0)
    keep = {v: k for k, v in _FIELDS.items()}.get(kind)
    for field in _FIELDS:
        if field != keep:
            attribute.ClearField(field)


_FIELDS = {
    "f": AttributeProto.FLOAT,
    "i": AttributeProto.INT,
    "s": AttributeProto.STRING,
    "t": AttributeProto.TENSOR,
    "floats": AttributeProto.FLOATS,
    "ints": AttributeProto.INTS,
    "strings": AttributeProto.STRINGS,
}


def _attribute(random: Random, model: onnx.ModelProto) -> None:
    node = _node(random, model)
    action = random.random()
    if action < 0.25 or not len(node.attribute):
        if not onnx.defs.has(node.op_type):
            return
        known = list(onnx.defs.get_schema(node.op_type).attributes.values())
        if known:
            chosen = random.choice(known)
            kept = [a for a in node.attribute if a.name != chosen.name]
            del node.attribute[:]
            node.attribute.extend(kept)
            _fill(random, node.attribute.add(name=chosen.name), int(chosen.type))
        return
    attribute = random.choice(node.attribute)
    if action < 0.35:
        node.attribute.remove(attribute)
    elif action < 0.45:
        _fill(random, attribute, random.choice(list(_FIELDS.values())))
    elif len(attribute.ints):
        attribute.ints[random.randrange(len(attribute.ints))] = random.choice(_INTEGERS)
    elif attribute.HasField("t"):
        _change_tensor(random, attribute.t)
    elif attribute.type == AttributeProto.INT:
        attribute.i = random.choice(_INTEGERS)
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = random.choice(_FLOATS)


def _value(random: Random, model: onnx.ModelProto) -> None:
    """Type or shape of an input, an output, or a value between."""
    graph = _graph(random, model)
    values = [*graph.input, *graph.output, *graph.value_info]
    if not values:
        return
    value = random.choice(values)
    tensor = value.type.tensor_type
    action = random.random()
    if action < 0.15:
        tensor.elem_type = random.choice(_TYPES)
    elif action < 0.2:
        value.type.ClearField("value")
    elif action < 0.25:
        value.name = _name(random, model)
    elif action < 0.3:
        value.CopyFrom(helper.make_tensor_sequence_value_info(value.name, TensorProto.FLOAT, None))
    elif action < 0.35:
        tensor.ClearField("shape")
    elif action < 0.5:
        tensor.shape.dim.add().dim_value = random.choice(_SIZES)
    elif len(tensor.shape.dim):
        tensor.shape.dim[random.randrange(len(tensor.shape.dim))].dim_value = random.choice(_SIZES)


def _tensor(random: Random, model: onnx.ModelProto) -> None:
    tensors = _graph(random, model).initializer
    if len(tensors):
        _change_tensor(random, random.choice(tensors))


def _change_tensor(random: Random, tensor: TensorProto) -> None:
    action = random.random()
    if action < 0.5 and tensor.data_type == TensorProto.INT64:  # a shape, axes, a count
        numbers = [random.choice(_INTEGERS) for _ in range(random.choice([0, 1, 2, 4]))]
        if random.random() < 0.7:
            numbers = [random.choice(_INTEGERS) for _ in range(math.prod(tensor.dims) % 64)]
        dims = tensor.dims if len(numbers) == math.prod(tensor.dims) else [len(numbers)]
        tensor.CopyFrom(helper.make_tensor(tensor.name, TensorProto.INT64, dims, numbers))
    elif action < 0.6:
        tensor.data_type = random.choice(_TYPES)
    elif action < 0.75 and len(tensor.dims):
        tensor.dims[random.randrange(len(tensor.dims))] = random.choice(_SIZES)
    elif action < 0.8:
        tensor.dims.append(random.choice(_SIZES))
    elif action < 0.9 and tensor.raw_data:
        tensor.raw_data = bytes(random.choices(tensor.raw_data, k=len(tensor.raw_data)))
    elif action < 0.95:
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=random.choice(["weights.bin", "../x", ""]))
    else:
        tensor.raw_data = tensor.raw_data[: len(tensor.raw_data) // 2]


def _stamp(random: Random, model: onnx.ModelProto) -> None:
    if len(model.opset_import) and random.random() < 0.8:
        chosen = random.choice(model.opset_import)
        if random.random() < 0.85:
            chosen.version = random.choice(_OPSETS)
        else:
            chosen.domain = random.choice(_DOMAINS)
    else:
        model.ir_version = random.choice([0, 1, 3, 4, 8, 10, 13, 99, -1])


def _rename(random: Random, model: onnx.ModelProto) -> None:
    """Gives a tensor another name wherever it stands."""
    old, new = _name(random, model), random.choice(_NAMES)
    for graph in _graphs(model):
        for value in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
            if value.name == old:
                value.name = new
        for node in graph.node:
            _replace(node.input, old, new)
            _replace(node.output, old, new)


def _replace(names: Sequence[str], old: str, new: str) -> None:
    names[:] = [new if name == old else name for name in names]  # type: ignore[index]


def _enclose(random: Random, model: onnx.ModelProto) -> None:
    """Puts a node into both branches of a condition."""
    nodes = model.graph.node
    index = random.randrange(len(nodes))
    node = onnx.NodeProto()
    node.CopyFrom(nodes[index])
    inner = []
    for name in ("then_branch", "else_branch"):
        outputs = [onnx.ValueInfoProto(name=f"{o}_{name}") for o in node.output]
        branch = onnx.NodeProto()
        branch.CopyFrom(node)
        branch.output[:] = [value.name for value in outputs]
        inner.append(helper.make_graph([branch], name, [], outputs))
    condition = _name(random, model)
    nodes[index].CopyFrom(
        helper.make_node("If", [condition], node.output, then_branch=inner[0], else_branch=inner[1])
    )


def _take(random: Random, model: onnx.ModelProto, donor: onnx.ModelProto) -> None:
    """Takes nodes of another model, and its constants, which may have names that are taken."""
    count = random.randint(1, min(4, len(donor.graph.node)))
    begin = random.randrange(len(donor.graph.node) - count + 1)
    model.graph.node.extend(donor.graph.node[begin : begin + count])
    model.graph.initializer.extend(donor.graph.initializer)
    for node in donor.graph.node[begin : begin + count]:
        _replace_unknown(random, model, node)
        for name in node.output:
            model.graph.output.add(name=name)
    model.functions.extend(donor.functions)


def _replace_unknown(random: Random, model: onnx.ModelProto, node: onnx.NodeProto) -> None:
    if len(node.input) and random.random() < 0.7:
        last = model.graph.node[-1]
        if len(last.input):
            last.input[0] = _name(random, model)


_CHANGES: list[Change] = [
    *(_rewire, _rewire, _retype_node, _move_nodes, _add_node, _add_node, _add_node),
    *(_attribute, _attribute, _attribute, _value, _value, _tensor, _tensor, _tensor),
    *(_stamp, _rename, _enclose),
]
