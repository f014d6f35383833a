"""Lets batched products read and write transposed matrices where they lie.

Attention divides channels into heads by a reshape, which is free, and a transpose, which would be a
copy. A product takes any strides, so it takes the transpose's input as it is.
"""

from __future__ import annotations

from veltair.compiler.graph import Graph, Op
from veltair.compiler.passes.normalise import drop_unused

Permutation = tuple[int, ...]


def absorb_transposes(graph: Graph) -> Graph:
    """Moves transposes into the batched products beside them.

    A product's `perms` are those of its two inputs, each as ONNX's Transpose would make the operand
    of what is read, and of its output, as it would make what is written of the result.
    """
    writers = {name: op for op in graph.ops for name in op.outputs}
    readers = graph.consumers()
    ops: list[Op] = []
    for op in graph.ops:
        if op.kind != "BatchMatMul":
            ops.append(op)
            continue
        inputs, perms = [], []
        for name in op.inputs:
            source = writers.get(name)
            perm = _permutation(source) if source and _is_computed(graph, source) else None
            inputs.append(source.inputs[0] if source and perm else name)
            perms.append(perm or _identity(graph, name))
        output, perm = op.outputs[0], _identity(graph, op.outputs[0])
        indices = readers.get(output, [])
        if len(indices) == 1 and output not in graph.outputs:
            reader = graph.ops[indices[0]]
            if (moved := _permutation(reader)) is not None:
                output, perm = reader.outputs[0], moved
        ops.append(
            op.replaced(
                inputs=tuple(inputs),
                outputs=(output,),
                attrs={**op.attrs, "perms": (*perms, perm)},
            )
        )
    return drop_unused(graph.with_ops(_without_absorbed(ops)))


def _is_computed(graph: Graph, op: Op) -> bool:
    return all(graph.tensors[name].data is None for name in op.inputs)


def _without_absorbed(ops: list[Op]) -> list[Op]:
    """Drops the transposes whose output a product writes itself."""
    written = {op.outputs[0] for op in ops if op.kind == "BatchMatMul"}
    return [op for op in ops if op.kind == "BatchMatMul" or not written.intersection(op.outputs)]


def _identity(graph: Graph, name: str) -> Permutation:
    return tuple(range(len(graph.tensors[name].shape)))


def _permutation(op: Op) -> Permutation | None:
    """The order of a transpose's dimensions; None for any other operation."""
    if op.kind != "Default" or len(op.protos) != 1 or op.protos[0].op_type != "Transpose":
        return None
    found = next((a.ints for a in op.protos[0].attribute if a.name == "perm"), None)
    return tuple(int(i) for i in found) if found is not None else None
