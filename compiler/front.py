"""From a clean model to the graph of what runs: layers that are compiled, and segments."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from veltair.compiler.expand import expand_regions
from veltair.compiler.graph import Graph, from_model
from veltair.compiler.passes import prepare
from veltair.runtime.errors import UnsupportedOperatorError
from veltair.runtime.manifest import TensorSpec


def build_graph(
    model: onnx.ModelProto,
    lanes: int,
    *,
    framed: Mapping[str, TensorSpec] | None = None,
    strict: bool = False,
) -> Graph:
    """Imports, rewrites and lowers a model; what can't be lowered falls back.

    Args:
        model: clean.
        lanes: float32 lanes of a vector.
        framed: inputs and outputs that carry their own shapes.
        strict: whether what would fall back is an error.

    Raises:
        UnsupportedOperatorError: it is strict, and some nodes would fall back.
    """
    refused: dict[str, str] = {}
    while True:  # each time round some more nodes are known to fall back
        try:
            graph = expand_regions(prepare(from_model(model, refused, framed), lanes), lanes)
        except UnsupportedOperatorError as error:
            if not error.reasons.keys() - refused.keys():
                raise
            refused |= error.reasons
        else:
            break
    if strict:
        _check_compiled(graph)
    return graph


def _check_compiled(graph: Graph) -> None:
    found = [op.attrs["segment"] for op in graph.ops if op.kind == "Fallback"]
    why = [text for segment in found for text in segment.explanations]
    if why:
        listed = "\n  ".join(why)
        raise UnsupportedOperatorError(
            f"--strict, and {len(why)} nodes can't be compiled:\n  {listed}\n"
            "leave out --strict to let ONNX Runtime run them"
        )
