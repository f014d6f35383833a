"""Folds constants without ONNX Runtime, for models of which it refuses an operator or a type.

Reference: onnx.reference, ONNX's own definition of its operators in NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

_MOST_BYTES = 1 << 26  # of what is folded: beyond, a constant costs more than what makes it
_RANDOM = ("Random", "Bernoulli", "Multinomial")  # how such operators' names begin


def fold_constants(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which what nodes make of constants alone is constant.

    A node that ONNX's reference implementation can't run stays, as do those that write the model's
    outputs.
    """
    folded = onnx.ModelProto()
    folded.CopyFrom(model)
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    ends = {output.name for output in model.graph.output}
    del folded.graph.node[:]
    for node in model.graph.node:
        made = None
        if not ends.intersection(node.output) and _is_foldable(node, constants):
            made = _made(node, constants, model)
        if made is None:
            folded.graph.node.append(node)
        else:
            constants |= {tensor.name: tensor for tensor in made}
    del folded.graph.initializer[:]
    folded.graph.initializer.extend(constants.values())
    return folded


def draws(model: onnx.ModelProto) -> bool:
    """Whether a run's outputs are random, so that no two agree."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    return any(is_random(node, constants) for node in model.graph.node)


def is_random(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> bool:
    """Whether a node draws numbers: by its operator, or as `Dropout` does in training."""
    if node.op_type != "Dropout":
        return str(node.op_type).startswith(_RANDOM)
    training = node.input[2] if len(node.input) > 2 else ""
    if training not in constants:
        return bool(training)
    return bool(np.any(numpy_helper.to_array(constants[training])))


def _is_foldable(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> bool:
    """Whether it is the same in each run; operators with subgraphs are left alone."""
    runs_subgraph = any(a.type == onnx.AttributeProto.GRAPH for a in node.attribute)
    known = all(name in constants for name in node.input if name)
    return known and not runs_subgraph and not is_random(node, constants)


def _made(
    node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto], model: onnx.ModelProto
) -> list[onnx.TensorProto] | None:
    """What a node makes of constants; None where it can't be told."""
    names = [name for name in node.output if name]
    graph = helper.make_graph(
        [node],
        "fold",
        [],
        [onnx.ValueInfoProto(name=name) for name in names],
        [constants[name] for name in dict.fromkeys(node.input) if name],
    )
    single = helper.make_model(graph, opset_imports=model.opset_import)
    try:
        values = ReferenceEvaluator(single).run(None, {})
    except Exception:  # whatever an implementation in NumPy raises: the node stays
        return None
    if not all(isinstance(v, np.ndarray) and v.nbytes <= _MOST_BYTES for v in values):
        return None
    return [numpy_helper.from_array(v, name) for v, name in zip(values, names, strict=True)]
