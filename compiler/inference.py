"""ONNX's inference of shapes, in a process of its own, and at a bounded cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx
import onnx.shape_inference
from onnx import TensorProto

from veltair.compiler.binding import Shape, dims
from veltair.compiler.nodes import subgraphs
from veltair.compiler.onnx_file import LARGE_BYTES
from veltair.compiler.onnx_process import CrashError, SlowError, onnx_process
from veltair.runtime.scratch import scratch

# Where ONNX follows the elements of rows as if these were shapes, and how many it may: each takes
# a microsecond and a hundred bytes.
_FOLLOWED = ("Add", "Cast", "Concat", "Gather", "Mul", "Slice", "Squeeze", "Sub", "Unsqueeze")
_MOST_FOLLOWED = 1 << 20


def inferred(
    model: onnx.ModelProto, *, strict: bool = False, check_type: bool = False
) -> onnx.ModelProto:
    """A copy with shapes, as far as they don't depend on data.

    Shapes that others are computed from are followed, unless these are many.

    Args:
        model: of any size.
        strict: whether shapes that don't fit each other are an error.
        check_type: whether types that don't are one.

    Raises:
        onnx.shape_inference.InferenceError: it is, or ONNX crashes on the model.
    """
    light = _without_weights(model)
    options = {"strict_mode": strict, "check_type": check_type}
    plain = _inferred(light, {})
    is_cheap = _followed(plain.graph, {}) <= _MOST_FOLLOWED
    result = _inferred(light, {**options, "data_prop": is_cheap})
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    for tensor in result.graph.initializer:
        tensor.CopyFrom(weights[tensor.name])
    return result


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which large weights lie elsewhere: inference would copy them and reads none."""
    light = onnx.ModelProto()
    light.CopyFrom(model)
    for tensor in light.graph.initializer:
        if len(tensor.raw_data) > LARGE_BYTES:
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="left-out")
    return light


def _inferred(model: onnx.ModelProto, options: Mapping[str, bool]) -> onnx.ModelProto:
    with scratch("inference") as folder:
        before, after = folder / "before.onnx", folder / "after.onnx"
        before.write_bytes(model.SerializeToString())
        try:
            refusal = onnx_process().run("infer", before, after, **options)
        except SlowError as error:
            refusal = f"ONNX's inference comes to no end on it ({error})"
        except CrashError as error:
            refusal = f"ONNX's inference crashes on it ({error})"
        if refusal:
            raise onnx.shape_inference.InferenceError(refusal)
        return onnx.load(after, load_external_data=False)


def _followed(graph: onnx.GraphProto, outer: Mapping[str, tuple[Shape, int]]) -> int:
    """Elements of the rows that inference would follow one by one, whatever they are.

    Args:
        graph: with the shapes that are known.
        outer: of what its nodes can read around it.
    """
    shapes = {**outer, **_shapes(graph)}
    total = 0
    for node in graph.node:
        total += sum(_followed(inner, shapes) for inner in subgraphs(node))
        if node.op_type in _FOLLOWED:
            # Where it isn't known what a node writes, as in a branch, its longest row may be that.
            known = [shapes[name][0] for name in node.output if name in shapes]
            known = known or [shapes[name][0] for name in node.input if name in shapes]
            total += max((shape[0] for shape in known if len(shape) == 1), default=0)
    return total


def value_shapes(model: onnx.ModelProto) -> dict[str, tuple[Shape, int]]:
    """Static shape and ONNX element type of each tensor whose shape is wholly known."""
    return _shapes(model.graph)


def _shapes(graph: onnx.GraphProto) -> dict[str, tuple[Shape, int]]:
    known: dict[str, tuple[Shape, int]] = {
        t.name: (tuple(t.dims), int(t.data_type)) for t in graph.initializer
    }
    values: list[Any] = [*graph.input, *graph.value_info, *graph.output]
    for value in values:
        if not value.type.tensor_type.HasField("shape"):
            continue
        sizes = dims(value)
        if all(isinstance(d, int) for d in sizes):
            shape = tuple(int(d) for d in sizes)
            known[value.name] = (shape, int(value.type.tensor_type.elem_type))
    return known
