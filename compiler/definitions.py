"""Replaces operators by those that ONNX defines them by."""

from __future__ import annotations

from collections.abc import Collection

import onnx
import onnx.inliner
import onnx.shape_inference

from veltair.compiler.inference import inferred
from veltair.compiler.nodes import all_nodes

ONNX_DOMAINS = ("", "ai.onnx")
# What ONNX Runtime has operators of beside ONNX's own.
RUNTIME_DOMAINS = ("ai.onnx.ml", "com.microsoft")
# The newest whose operators every ONNX Runtime that we take has.
OLDEST_RUNTIME_OPSET = 22
_OURS = "veltair.definition"  # domain of the functions that stand for definitions


def opset_of(model: onnx.ModelProto) -> int:
    """The version of ONNX's own operator set that the model imports; 0 if it imports none."""
    versions = [o.version for o in model.opset_import if o.domain in ONNX_DOMAINS]
    return int(max(versions, default=0))


def has_definition(kind: str, domain: str, opset: int) -> bool:
    """Whether ONNX defines an operator by others."""
    try:
        schema = onnx.defs.get_schema(kind, opset, domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def inline(model: onnx.ModelProto, inlined: Collection[str]) -> onnx.ModelProto:
    """Replaces operators by their definitions: those asked for, and what ONNX Runtime lacks."""
    versions = {o.domain: o.version for o in model.opset_import}
    wanted = []
    for domain, kind in sorted(operators_of(model.graph)):
        version = versions.get(domain, versions.get("ai.onnx", 0))
        if not has_definition(kind, domain, version):
            continue
        since = onnx.defs.get_schema(kind, version, domain).since_version
        known = since <= OLDEST_RUNTIME_OPSET if domain in ONNX_DOMAINS else False
        if kind in inlined or not (known or domain in RUNTIME_DOMAINS):
            wanted.append((domain, kind))
    if not wanted:
        return model
    try:
        typed = inferred(model)  # definitions depend on types
        typed = _with_functions(typed, wanted)
        return onnx.inliner.inline_selected_functions(typed, wanted, inline_schema_functions=True)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):  # or over 2 GB
        return model


def _with_functions(model: onnx.ModelProto, wanted: Collection[tuple[str, str]]) -> onnx.ModelProto:
    """The model with those nodes inlined that leave an optional input out before another.

    ONNX's own inliner asks for the type of every input of these, also of one that isn't there.
    """
    values = (*model.graph.input, *model.graph.value_info, *model.graph.output)
    types = {value.name: value.type for value in values}
    for tensor in model.graph.initializer:
        types[tensor.name] = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
    opset = opset_of(model)
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for number, node in enumerate(changed.graph.node):
        if (node.domain, node.op_type) not in wanted or "" not in node.input:
            continue
        schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
        read = [name for name in node.input if name]
        if not schema.has_context_dependent_function or not types.keys() >= set(read):
            continue
        known = [types[name] if name else onnx.TypeProto() for name in node.input]
        function = onnx.FunctionProto()
        function.ParseFromString(
            schema.get_context_dependent_function(
                node.SerializeToString(), [t.SerializeToString() for t in known]
            )
        )
        function.domain, function.name = _OURS, f"{node.op_type}_{number}"
        node.domain, node.op_type = function.domain, function.name
        changed.functions.append(function)
    if not changed.functions:
        return model
    changed.opset_import.append(onnx.helper.make_opsetid(_OURS, 1))
    return onnx.inliner.inline_local_functions(changed)


def operators_of(graph: onnx.GraphProto) -> set[tuple[str, str]]:
    """Domain and kind of the operators that a graph uses, in its subgraphs too."""
    return {(node.domain, node.op_type) for node in all_nodes(graph)}
