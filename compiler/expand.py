"""Replaces every `Default` region by the kernels that Relax makes of it."""

from __future__ import annotations

from veltair.compiler.graph import Graph, Op, Tensor
from veltair.compiler.passes.plan import physical_shape
from veltair.compiler.passes.rewrite import Rewriter
from veltair.compiler.relax_import import TirCall, copy_function, lower_region
from veltair.runtime.errors import UnsupportedOperatorError


def expand_regions(graph: Graph, lanes: int) -> Graph:
    """Lowers regions and copies.

    Raises:
        UnsupportedOperatorError: some nodes have no lowering; all of them are named.
    """
    rewriter = Rewriter(graph)
    refusals: list[UnsupportedOperatorError] = []
    for op in graph.ops:
        if op.kind == "Default":
            try:
                _expand(rewriter, op, lanes)
            except UnsupportedOperatorError as error:
                refusals.append(error)
        elif op.kind == "Copy":
            tensor = graph.tensors[op.outputs[0]]
            func = copy_function(tensor.shape, tensor.dtype)
            rewriter.emit(op.replaced(kind="Tir", attrs={"func": func, "name": "copy"}))
        else:
            rewriter.emit(op)
    if refusals:
        reasons = {name: why for error in refusals for name, why in error.reasons.items()}
        raise UnsupportedOperatorError(str(refusals[0]), reasons)
    return rewriter.finish()


def _expand(rewriter: Rewriter, op: Op, lanes: int) -> None:
    graph = rewriter.graph
    physical = {n: physical_shape(graph.tensors[n], lanes) for n in (*op.inputs, *op.outputs)}
    if op.attrs["packed"]:
        channels = graph.tensors[op.outputs[0]].shape[1]
        for name in op.inputs:
            data = graph.tensors[name].data
            if data is not None:
                physical[name] = _packed_constant_shape(data.shape, channels, lanes)
        for proto in op.protos:  # values inside the region are packed too
            for name in proto.output:
                physical[name] = physical_shape(graph.tensors[name], lanes)
    region = lower_region(graph, op, physical)
    for name, (shape, dtype) in region.shapes.items():
        rewriter.tensors[name] = Tensor(name=name, shape=shape, dtype=dtype)
    for call in region.calls:
        rewriter.emit(_tir_op(rewriter, op, call))


def _tir_op(rewriter: Rewriter, op: Op, call: TirCall) -> Op:
    inputs = tuple(
        i if isinstance(i, str) else rewriter.constant(f"{op.nodes[0]}/const", i)
        for i in call.inputs
    )
    attrs = {"func": call.func, "name": call.name}
    return Op(kind="Tir", inputs=inputs, outputs=call.outputs, nodes=op.nodes, attrs=attrs)


def _packed_constant_shape(shape: tuple[int, ...], channels: int, lanes: int) -> tuple[int, ...]:
    n, c, h, w = (1,) * (4 - len(shape)) + shape
    if c == channels:
        return (n, -(-c // lanes), h, w, lanes)
    return (n, c, h, w, 1)
