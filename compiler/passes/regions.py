"""Gathers neighbouring `Default` operations into regions that the Relax importer fuses."""

from __future__ import annotations

from veltair.compiler.graph import Graph, Op

_LARGEST = 64  # nodes; a bound on what one import works on


def gather_regions(graph: Graph) -> Graph:
    """Merges each run of consecutive `Default` operations of one layout into one.

    A run of the execution order is convex: no path leaves it and comes back.
    """
    runs: list[list[Op]] = []
    for op in graph.ops:
        joins = (
            runs
            and op.kind == runs[-1][-1].kind == "Default"
            and op.attrs["packed"] == runs[-1][-1].attrs["packed"]
            and sum(len(o.protos) for o in runs[-1]) < _LARGEST
        )
        if joins:
            runs[-1].append(op)
        else:
            runs.append([op])
    merged = [_merge(graph, run) if run[0].kind == "Default" else run[0] for run in runs]
    return graph.with_ops(merged)


def _merge(graph: Graph, run: list[Op]) -> Op:
    inside = {id(op) for op in run}
    written = {name for op in run for name in op.outputs}
    outside = {n for op in graph.ops if id(op) not in inside for n in op.reads}
    outputs = [n for op in run for n in op.outputs if n in outside or n in graph.outputs]
    inputs = dict.fromkeys(n for op in run for n in op.inputs if n not in written)
    return Op(
        kind="Default",
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        nodes=tuple(n for op in run for n in op.nodes),
        attrs={"packed": run[0].attrs["packed"]},
        protos=tuple(p for op in run for p in op.protos),
    )
