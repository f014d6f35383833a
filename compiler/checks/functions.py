"""Functions of a model that call themselves, or that grow beyond reason where they are inlined."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import onnx

from veltair.compiler.nodes import AnyGraph, all_nodes, subgraphs
from veltair.runtime.errors import InputError

MOST_NODES = 1 << 18
# Protobuf reads a hundred messages within each other, and a subgraph is three.
MOST_NESTED = 24
_MOST_CALLS = 64  # within each other: inlining recurses

_Key = tuple[str, str, str]


def check_functions(path: Path, model: onnx.ModelProto) -> None:
    """Holds what inlining the model's functions would make against what can be worked with.

    Raises:
        InputError: a function is defined twice or calls itself, calls or subgraphs are nested too
            deep, or there would be too many nodes.
    """
    functions: dict[_Key, onnx.FunctionProto] = {}
    for function in model.functions:
        key = (function.domain, function.name, function.overload)
        if key in functions:
            raise InputError(
                f"{path}: function '{function.name}' of domain '{function.domain}' is defined "
                "twice; export the model again"
            )
        functions[key] = function
    calls = {key: _calls(f, functions) for key, f in functions.items()}
    nodes: dict[_Key, int] = {}
    nested: dict[_Key, int] = {}
    for key in _callees_first(path, calls):
        nodes[key] = _grown(functions[key], calls[key], nodes)
        nested[key] = _deepest(functions[key], nested)
    total = _grown(model.graph, _calls(model.graph, functions), nodes)
    if total > MOST_NODES:
        raise InputError(
            f"{path}: {total} nodes, with its functions put in the place of their calls; Veltair "
            f"reads {MOST_NODES}: export the model without functions that call each other"
        )
    deepest = _deepest(model.graph, nested)
    if deepest > MOST_NESTED:
        raise InputError(
            f"{path}: subgraphs are nested {deepest} deep; Veltair reads {MOST_NESTED}: export "
            "the model with fewer conditions and loops within each other"
        )


def _key(node: onnx.NodeProto) -> _Key:
    return (node.domain, node.op_type, node.overload)


def _calls(graph: AnyGraph, functions: Iterable[_Key]) -> list[_Key]:
    """The functions that a graph calls, one entry a call."""
    return [key for node in all_nodes(graph) if (key := _key(node)) in functions]


def _grown(graph: AnyGraph, calls: list[_Key], nodes: dict[_Key, int]) -> int:
    return len(all_nodes(graph)) + sum(nodes[key] for key in calls)


def _deepest(graph: AnyGraph, nested: dict[_Key, int]) -> int:
    """How deep subgraphs are nested, those of called functions included."""
    deepest = 0
    for node in graph.node:
        within = [1 + _deepest(inner, nested) for inner in subgraphs(node)]
        deepest = max(deepest, nested.get(_key(node), 0), *within, 0)
    return deepest


def _callees_first(path: Path, calls: dict[_Key, list[_Key]]) -> list[_Key]:
    """The functions in an order in which each comes behind those that it calls."""
    done: dict[_Key, None] = {}
    for first, called_first in calls.items():
        open_calls = [(first, iter(called_first))]
        while open_calls:
            key, rest = open_calls[-1]
            called = next((c for c in rest if c not in done), None)
            if called is None:
                done[key] = None
                open_calls.pop()
                continue
            if any(called == each for each, _ in open_calls):
                raise InputError(
                    f"{path}: function '{called[1]}' of domain '{called[0]}' calls itself"
                    f"{'' if called == key else f', by way of {key[1]!r}'}; export the model again"
                )
            if len(open_calls) > _MOST_CALLS:
                raise InputError(
                    f"{path}: more than {_MOST_CALLS} functions call each other in turn, down to "
                    f"'{called[1]}'; export the model without functions"
                )
            open_calls.append((called, iter(calls[called])))
    return list(done)
