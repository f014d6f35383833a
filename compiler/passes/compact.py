"""Makes what a kernel reads or a client receives lie as it must.

Some tensors lie inside a larger buffer: with a border of zeros for a padded reader, or as a part of
a concatenation. Kernels that take no strided views get a compact copy of them. Each of the graph's
outputs gets a buffer of its own, which no other output and no input shares.
"""

from __future__ import annotations

from dataclasses import replace

from veltair.compiler.graph import VIEW_KINDS, Graph, Op
from veltair.compiler.passes.rewrite import Rewriter, swap_names


def borders(graph: Graph) -> dict[str, tuple[int, int, int, int]]:
    """The border (top, left, bottom, right) that the padded readers of each tensor need."""
    found: dict[str, tuple[int, int, int, int]] = {}
    for op in graph.ops:
        if op.kind == "Conv" and any(op.attrs["pads"]):
            name = op.inputs[0]
            old = found.get(name, (0, 0, 0, 0))
            t, l, b, r = (max(x, y) for x, y in zip(old, op.attrs["pads"], strict=True))  # noqa: E741
            found[name] = (t, l, b, r)
    return found


def parts(graph: Graph) -> dict[str, tuple[str, int]]:
    """The concatenation that each part lies in, and the part's first channel there."""
    found: dict[str, tuple[str, int]] = {}
    for op in graph.ops:
        if op.kind == "ConcatView":
            channel = 0
            for name in op.inputs:
                found[name] = (op.outputs[0], channel)
                channel += graph.tensors[name].shape[1]
    return found


def strided(graph: Graph) -> set[str]:
    """Tensors that don't lie compactly: bordered ones, and parts of several images or of those."""
    bordered, inside = borders(graph), parts(graph)
    found = set(bordered)
    for op in reversed(graph.ops):  # a concatenation stands before those that it is a part of
        for name in op.outputs:
            if name in inside:
                parent = inside[name][0]
                several = graph.tensors[name].shape[0] > 1
                if several or parent in found:
                    found.add(name)
    return found


def compact(graph: Graph, lanes: int) -> Graph:
    """Inserts the copies that readers without views, and the graph's outputs, need."""
    return _own_outputs(_compact_reads(graph), lanes)


def _compact_reads(graph: Graph) -> Graph:
    loose = strided(graph)
    rewriter = Rewriter(graph)
    copies: dict[str, str] = {}

    def read(name: str) -> str:
        if name not in loose:
            return name
        if name not in copies:
            copies[name] = rewriter.activation(name, "@compact")
            rewriter.emit(Op(kind="Relayout", inputs=(name,), outputs=(copies[name],)))
        return copies[name]

    for op in graph.ops:
        if op.kind in VIEW_KINDS:
            rewriter.emit(op)
            continue
        names = {n: read(n) for n in op.reads if n in loose}
        rewriter.emit(swap_names(op, names))
    return rewriter.finish()


def _own_outputs(graph: Graph, lanes: int) -> Graph:
    """Copies each output whose buffer is an input, a constant or another output's."""
    sources = {op.outputs[0]: op.inputs[0] for op in graph.ops if op.kind == "Reshape"}
    producers, taken = graph.producers(), set(parts(graph)) | set(borders(graph))
    loose = strided(graph)
    rewriter = Rewriter(graph)
    names: dict[str, str] = {}
    for name in graph.outputs:
        root = name
        while root in sources:
            root = sources[root]
        tensor = graph.tensors[root]
        exact = tensor.layout == "plain" or tensor.shape[1] % lanes == 0
        if root in producers and root not in taken and exact:
            taken.add(root)
        else:
            inner = rewriter.fresh(f"{name}@inner")
            rewriter.tensors[inner] = replace(graph.tensors[name], name=inner)
            rewriter.tensors[name] = replace(graph.tensors[name], data=None, layout="plain")
            names[name] = inner
    for op in graph.ops:
        rewriter.emit(swap_names(op, names))
    for name, inner in names.items():
        kind = "Relayout" if name in loose else "Copy"  # a copy reads what lies compactly
        rewriter.emit(Op(kind=kind, inputs=(inner,), outputs=(name,)))
    return rewriter.finish()
