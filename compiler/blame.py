"""Finds the nodes that TVM computes otherwise than ONNX Runtime, where a model's outputs differ.

Each node that Relax lowers runs alone, without a schedule, on what ONNX Runtime computes before it.
"""

from __future__ import annotations

import onnx
import tvm

from veltair.compiler import codegen
from veltair.compiler.binding import Array
from veltair.compiler.graph import Graph, Op, from_model
from veltair.compiler.inference import value_shapes
from veltair.compiler.reference import TOLERANCE, answered, reference_run, relative_difference
from veltair.compiler.relax_import import Region, lower_region
from veltair.runtime.errors import UnsupportedOperatorError
from veltair.runtime.manifest import Isa, Manifest

# What kernels of our own compute wherever they can: these are not to blame.
_OWN = ("Conv", "MatMul", "Gemm", "Softmax", "MaxPool", "AveragePool", "Relu")


def wrong_nodes(model: onnx.ModelProto, manifest: Manifest, isa: Isa) -> dict[str, str]:
    """The nodes to blame, by name, each with why it must fall back.

    Args:
        model: clean, that was compiled.
        manifest: of the compiled model: its inputs.
        isa: instruction set.
    """
    values = _values(model, manifest)
    graph = from_model(model)
    found = {}
    for op in graph.ops:
        if op.kind in (*_OWN, "Fallback") or not all(name in values for name in op.outputs if name):
            continue
        difference = _difference(graph, op, values, isa)
        if not difference <= TOLERANCE:
            found[op.nodes[0]] = (
                f"TVM computes it otherwise than ONNX Runtime, by {difference:.0e} of its range"
            )
    return found


def _values(model: onnx.ModelProto, manifest: Manifest) -> dict[str, Array]:
    """Every tensor of a run, by name; none where no inputs are taken."""
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    ends, known = {value.name for value in model.graph.output}, value_shapes(model)
    infos = [v for v in model.graph.value_info if v.name in known and v.name not in ends]
    whole.graph.output.extend(infos)
    drawn = answered(reference_run(whole, optimised=False), manifest.inputs)
    if drawn is None:
        return {}
    names = [output.name for output in whole.graph.output]
    return {**drawn.feed, **dict(zip(names, drawn.expected, strict=True))}


def _difference(graph: Graph, op: Op, values: dict[str, Array], isa: Isa) -> float:
    """The largest of its outputs; 0 where the node isn't lowered, or not of one region alone."""
    reads = tuple(dict.fromkeys(name for name in op.inputs if name))
    outputs = tuple(name for name in op.outputs if name)
    single = op.replaced(kind="Default", inputs=reads, outputs=outputs)
    shapes = {name: graph.tensors[name].shape for name in (*reads, *outputs)}
    try:
        region = lower_region(graph, single, shapes)
    except UnsupportedOperatorError:
        return 0.0
    computed = _run(graph, region, values, isa)
    return max(relative_difference(computed[name], values[name]) for name in outputs)


def _run(graph: Graph, region: Region, values: dict[str, Array], isa: Isa) -> dict[str, Array]:
    known = dict(values)
    for number, call in enumerate(region.calls):
        symbol = f"part{number}"
        module = codegen.lower(symbol, call.func, isa)
        inputs = [
            (graph.tensors[i].data if graph.tensors[i].data is not None else known[i])
            if isinstance(i, str) and i in graph.tensors
            else (known[i] if isinstance(i, str) else i)
            for i in call.inputs
        ]
        read = [tvm.runtime.tensor(array) for array in inputs]
        written = [
            tvm.runtime.empty(tuple(map(int, buffer.shape)), str(buffer.dtype))
            for buffer in list(call.func.params)[len(read) :]
        ]
        module[symbol](*read, *written)
        known |= {name: t.numpy() for name, t in zip(call.outputs, written, strict=True)}
    return known
