"""From an ONNX file to the graph of what runs: layers that are compiled, and segments."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from veltair.compiler.binding import Array, Shape
from veltair.compiler.clean import load_clean
from veltair.compiler.definitions import has_definition, opset_of
from veltair.compiler.expand import expand_regions
from veltair.compiler.fallback import Segment, framed_ends
from veltair.compiler.graph import Graph, from_model
from veltair.compiler.passes import prepare
from veltair.compiler.passes.normalise import RULES
from veltair.compiler.runnable import refusal
from veltair.runtime.errors import UnsupportedOperatorError, VeltairError
from veltair.runtime.manifest import TensorSpec


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a graph is made from.

    Attributes:
        path: an ONNX file.
        shapes: of inputs with symbolic dimensions.
        values: of inputs that shall be constants: see `binding.bind`.
        lanes: float32 lanes of a vector.
        most_bytes: room for inputs and outputs whose size only a value tells, by name.
        refused: why nodes fall back that could be compiled, by their names.
    """

    path: Path
    shapes: Mapping[str, Shape]
    lanes: int
    values: Mapping[str, Array] = field(default_factory=dict)
    most_bytes: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Front:
    """A clean model and its graph.

    Attributes:
        model: clean.
        graph: of it.
        refusals: why ONNX Runtime doesn't run segments that it should.
    """

    model: onnx.ModelProto
    graph: Graph
    refusals: tuple[str, ...]

    @property
    def explanations(self) -> tuple[str, ...]:
        """Of the nodes that fall back: which, and why."""
        return tuple(text for segment in segments_of(self.graph) for text in segment.explanations)

    @property
    def cost(self) -> tuple[int, int]:
        """What of two graphs of one model to choose: the one of less."""
        return len(self.refusals), len(self.explanations)


def segments_of(graph: Graph) -> tuple[Segment, ...]:
    """What falls back."""
    return tuple(op.attrs["segment"] for op in graph.ops if op.kind == "Fallback")


def read_graph(source: Source, *, strict: bool = False) -> Front:
    """Reads, rewrites and lowers a model; what can't be lowered falls back.

    Operators that would fall back and that ONNX defines by others are replaced by those where then
    less falls back.

    Args:
        source: of the graph.
        strict: whether what would fall back is an error.

    Raises:
        InputError: the file can't be used, an input's shape isn't known, or a shape or a value
            doesn't fit its input.
        UnsupportedOperatorError: a node that nothing here runs; or it is strict, and some nodes
            would fall back.
    """
    front = _read(source, ())
    kinds = {kind for segment in segments_of(front.graph) for kind in segment.culprit_kinds}
    opset = opset_of(front.model)
    defined = {kind for kind in kinds if kind not in RULES and has_definition(kind, "", opset)}
    if defined:
        with contextlib.suppress(VeltairError):  # what ONNX Runtime makes nothing of
            other = _read(source, defined)
            if other.cost < front.cost:
                front = other
    if strict:
        _check_compiled(front)
    if front.refusals:
        raise UnsupportedOperatorError(
            f"{source.path}: {'; '.join(front.refusals)}; rewrite the model with other operators "
            "or types"
        )
    return front


def _read(source: Source, inlined: Collection[str]) -> Front:
    model = load_clean(source.path, source.shapes, inlined, source.values)
    framed = framed_ends(source.path, model, source.most_bytes)
    graph = lowered(source, model, framed)
    refusals = tuple(filter(None, map(refusal, segments_of(graph))))
    return Front(model=model, graph=graph, refusals=refusals)


def lowered(
    source: Source, model: onnx.ModelProto, framed: Mapping[str, TensorSpec] | None = None
) -> Graph:
    """The graph of a clean model; what can't be lowered falls back.

    Args:
        source: of the model.
        model: clean.
        framed: inputs and outputs that carry their own shapes.

    Raises:
        UnsupportedOperatorError: a node that nothing here runs.
    """
    refused = dict(source.refused)
    while True:  # each time round some more nodes are known to fall back
        try:
            graph = prepare(from_model(model, refused, framed), source.lanes)
            return expand_regions(graph, source.lanes)
        except UnsupportedOperatorError as error:
            if not error.reasons.keys() - refused.keys():
                raise
            refused |= error.reasons


def _check_compiled(front: Front) -> None:
    why = front.explanations
    if why:
        listed = "\n  ".join(why)
        raise UnsupportedOperatorError(
            f"--strict, and {len(why)} nodes can't be compiled:\n  {listed}\n"
            "leave out --strict to let ONNX Runtime run them"
        )
