"""Names that have no meaning or more than one, and values that follow from themselves."""

from __future__ import annotations

from collections.abc import Iterable, Set
from pathlib import Path

import onnx

from veltair.compiler.nodes import AnyGraph, describe, subgraphs, tensor_reads
from veltair.runtime.errors import InputError


def check_names(path: Path, model: onnx.ModelProto) -> None:
    """Checks that each tensor is defined once, before or behind where it is read, and in no cycle.

    Differs: ONNX wants nodes in order; ONNX Runtime sorts those of the outermost graph, and so do
    we.

    Raises:
        InputError: a name is defined twice or not at all, or the graph has a cycle or no outputs.
    """
    if not model.graph.output:
        raise InputError(f"{path}: the graph has no outputs; export it again with some")
    _Scope(path, "").check(model.graph, ())
    for function in model.functions:
        _Scope(path, f"function '{function.name}': ").check(function, ())


class _Scope:
    """Checks one graph and what it holds."""

    def __init__(self, path: Path, where: str) -> None:
        self.path = path
        self.where = where

    def error(self, text: str) -> InputError:
        return InputError(f"{self.path}: {self.where}{text}; export the model again")

    def check(self, graph: AnyGraph, outer: tuple[Set[str], ...]) -> None:
        """Args: the graph, and the names of the graphs around it."""
        producers = self._producers(graph)
        scopes = (*outer, self._given(graph), producers.keys())
        for node in graph.node:
            for name in node.input:
                if name and not _is_known(name, scopes):
                    raise self.error(f"{describe(node)} reads '{name}', which nothing defines")
            for inner in subgraphs(node):
                self.check(inner, scopes)
        outputs = _names(graph.output)
        for index, name in enumerate(outputs):
            if not _is_known(name, scopes):
                raise self.error(f"the output '{name}' is defined by nothing")
            if name in outputs[:index] and not outer:
                raise self.error(f"the output '{name}' is listed twice")
        self._check_acyclic(graph, producers)

    def _given(self, graph: AnyGraph) -> set[str]:
        """Names that are there before a node runs."""
        inputs = _names(graph.input)
        weights = []
        if isinstance(graph, onnx.GraphProto):
            weights += [t.name for t in graph.initializer]
            weights += [t.values.name for t in graph.sparse_initializer]
        for kind, names in (("input", inputs), ("weight", weights)):
            seen: set[str] = set()
            for name in names:
                if name in seen or not name:
                    told = f"'{name}' is defined twice" if name else "has no name"
                    raise self.error(f"the {kind} {told}")
                seen.add(name)
        return {*inputs, *weights}

    def _producers(self, graph: AnyGraph) -> dict[str, int]:
        given = self._given(graph)
        producers: dict[str, int] = {}
        for index, node in enumerate(graph.node):
            for name in node.output:
                if name in given:
                    raise self.error(
                        f"{describe(node)} makes '{name}', which is an input or a weight already"
                    )
                if name in producers:
                    raise self.error(
                        f"'{name}' is made twice: by {describe(graph.node[producers[name]])} and "
                        f"by {describe(node)}"
                    )
                if name:
                    producers[name] = index
        return producers

    def _check_acyclic(self, graph: AnyGraph, producers: dict[str, int]) -> None:
        waits = [
            {producers[name] for name in tensor_reads(node) if name in producers}
            for node in graph.node
        ]
        readers: dict[int, list[int]] = {}
        for index, sources in enumerate(waits):
            for source in sources:
                readers.setdefault(source, []).append(index)
        ready = [index for index, sources in enumerate(waits) if not sources]
        while ready:
            done = ready.pop()
            for reader in readers.pop(done, ()):
                waits[reader].discard(done)
                if not waits[reader]:
                    ready.append(reader)
        stuck = next((index for index, sources in enumerate(waits) if sources), None)
        if stuck is None:
            return
        seen: set[int] = set()
        while stuck not in seen:  # upwards, until a node of the cycle comes again
            seen.add(stuck)
            stuck = min(waits[stuck])
        node, source = graph.node[stuck], min(waits[stuck])
        name = next(n for n in tensor_reads(node) if producers.get(n) == source)
        raise self.error(
            f"the graph has a cycle: {describe(node)} reads '{name}', which follows from its output"
        )


def _names(values: Iterable[onnx.ValueInfoProto | str]) -> list[str]:
    """Names of a graph's values, or of a function's, which are names."""
    return [v if isinstance(v, str) else v.name for v in values]


def _is_known(name: str, scopes: Iterable[Set[str]]) -> bool:
    return any(name in scope for scope in scopes)
