"""Finds the nodes that TVM computes otherwise than ONNX Runtime, where a model's outputs differ.

Each node that Relax lowers runs alone, without a schedule, on what ONNX Runtime computes before it.
Where the two differ, ONNX's own implementation says which of them is at fault.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
import tvm

from veltair.compiler import codegen
from veltair.compiler.binding import Array
from veltair.compiler.graph import Graph, Op, from_model
from veltair.compiler.inference import value_shapes
from veltair.compiler.reference import (
    TOLERANCE,
    answered,
    definition,
    reference_run,
    relative_difference,
)
from veltair.compiler.relax_import import Region, lower_region
from veltair.runtime.errors import UnsupportedOperatorError
from veltair.runtime.manifest import Isa, Manifest

# What kernels of our own compute wherever they can: these are not to blame.
_OWN = ("Conv", "MatMul", "Gemm", "Softmax", "MaxPool", "AveragePool", "Relu")


@dataclass(frozen=True, kw_only=True)
class Blame:
    """Nodes at which the kernels and ONNX Runtime part.

    Attributes:
        wrong: that must fall back, by name, each with why.
        deviating: that the kernels compute as ONNX defines them and ONNX Runtime doesn't, likewise.
    """

    wrong: dict[str, str]
    deviating: dict[str, str]


def blame(model: onnx.ModelProto, manifest: Manifest, isa: Isa) -> Blame:
    """The nodes to blame for outputs that differ.

    Args:
        model: clean, that was compiled.
        manifest: of the compiled model: its inputs.
        isa: instruction set.
    """
    values = _values(model, manifest)
    graph = from_model(model)
    found = Blame(wrong={}, deviating={})
    for op in graph.ops:
        if op.kind in (*_OWN, "Fallback") or not all(name in values for name in op.outputs if name):
            continue
        computed = _computed(graph, op, values, isa)
        difference = _difference(computed, values)
        if difference <= TOLERANCE:
            continue
        (name,) = op.nodes
        if _difference(computed, _defined(model, graph, op, values)) <= TOLERANCE:
            found.deviating[name] = (
                f"ONNX Runtime computes it otherwise than ONNX defines it, by {difference:.0e} of "
                "its range; the kernel agrees with ONNX"
            )
        else:
            found.wrong[name] = (
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


def _computed(graph: Graph, op: Op, values: dict[str, Array], isa: Isa) -> dict[str, Array]:
    """What TVM makes of its inputs; nothing where the node isn't lowered alone."""
    reads = tuple(dict.fromkeys(name for name in op.inputs if name))
    outputs = tuple(name for name in op.outputs if name)
    single = op.replaced(kind="Default", inputs=reads, outputs=outputs)
    shapes = {name: graph.tensors[name].shape for name in (*reads, *outputs)}
    try:
        region = lower_region(graph, single, shapes)
    except UnsupportedOperatorError:
        return {}
    computed = _run(graph, region, values, isa)
    return {name: computed[name] for name in outputs}


def _defined(
    model: onnx.ModelProto, graph: Graph, op: Op, values: dict[str, Array]
) -> dict[str, Array]:
    """What ONNX's own implementation makes of the same; nothing where it can't run the node."""
    reads = dict.fromkeys(name for name in op.inputs if name)
    feed = {name: _value(graph, name, values) for name in reads}
    try:
        made = definition(model, op.protos[0])(feed)
    except Exception:  # its exceptions share no other base
        return {}
    outputs = [name for name in op.outputs if name]
    return {name: np.asarray(y) for name, y in zip(outputs, made, strict=True)}


def _difference(computed: dict[str, Array], expected: dict[str, Array]) -> float:
    """The largest over what is computed; infinite where nothing is expected of it."""
    return max(
        (
            relative_difference(array, expected[name]) if name in expected else float("inf")
            for name, array in computed.items()
        ),
        default=0.0,
    )


def _value(graph: Graph, name: str, values: dict[str, Array]) -> Array:
    data = graph.tensors[name].data if name in graph.tensors else None
    return values[name] if data is None else data


def _run(graph: Graph, region: Region, values: dict[str, Array], isa: Isa) -> dict[str, Array]:
    known = dict(values)
    for number, call in enumerate(region.calls):
        symbol = f"part{number}"
        module = codegen.lower(symbol, call.func, isa)
        inputs = [_value(graph, i, known) if isinstance(i, str) else i for i in call.inputs]
        read = [tvm.runtime.tensor(array) for array in inputs]
        written = [
            tvm.runtime.empty(tuple(map(int, buffer.shape)), str(buffer.dtype))
            for buffer in list(call.func.params)[len(read) :]
        ]
        module[symbol](*read, *written)
        known |= {name: t.numpy() for name, t in zip(call.outputs, written, strict=True)}
    return known
