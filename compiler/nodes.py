"""What an ONNX node is called in a message, what it runs, and what it reads."""

from __future__ import annotations

from typing import TypeAlias

import onnx

AnyGraph: TypeAlias = onnx.GraphProto | onnx.FunctionProto


def describe(node: onnx.NodeProto) -> str:
    """Names a node for a message: operator, name, and where it stands in the graph."""
    where = f"from {', '.join(i for i in node.input if i) or 'nothing'} to {', '.join(node.output)}"
    return f"operator {node.op_type}, node '{node.name}' ({where})"


def subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """What a node runs, as the branches of `If`."""
    return [
        inner
        for attribute in node.attribute
        for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else []))
    ]


def all_graphs(graph: AnyGraph) -> list[AnyGraph]:
    """A graph, or a function, and its subgraphs."""
    found = [graph]
    for node in graph.node:
        for inner in subgraphs(node):
            found += all_graphs(inner)
    return found


def sparse_tensors(attribute: onnx.AttributeProto) -> list[onnx.SparseTensorProto]:
    """Those of an attribute."""
    single = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
    return [*attribute.sparse_tensors, *single]


def all_nodes(graph: AnyGraph) -> list[onnx.NodeProto]:
    """The nodes of a graph or of a function, and of their subgraphs."""
    return [node for each in all_graphs(graph) for node in each.node]


def tensor_reads(node: onnx.NodeProto) -> tuple[str, ...]:
    """What a node reads: its inputs, and what its subgraphs take from outside of them."""
    names = dict.fromkeys(name for name in node.input if name)
    for graph in subgraphs(node):
        names |= dict.fromkeys(_free_names(graph))
    return tuple(names)


def put_in_order(graph: onnx.GraphProto) -> None:
    """Moves each node of an acyclic graph behind those whose results it reads; the rest stays."""
    producers = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    placed: dict[int, None] = {}
    for index in range(len(graph.node)):
        waiting = [index]
        while waiting:
            reads = tensor_reads(graph.node[waiting[-1]])
            sources = {producers[name] for name in reads if name in producers}
            missing = sorted(sources - placed.keys(), reverse=True)
            if missing:
                waiting += missing
            else:
                placed[waiting.pop()] = None
    if list(placed) == sorted(placed):
        return
    nodes = [graph.node[index] for index in placed]
    del graph.node[:]
    graph.node.extend(nodes)


def _free_names(graph: onnx.GraphProto) -> list[str]:
    """Names that a subgraph reads and doesn't define."""
    known = {value.name for value in graph.input} | {t.name for t in graph.initializer}
    known |= {tensor.values.name for tensor in graph.sparse_initializer}
    free = []
    for node in graph.node:
        free += [name for name in tensor_reads(node) if name not in known]
        known.update(node.output)
    return free + [value.name for value in graph.output if value.name not in known]
