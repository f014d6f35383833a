"""Passes over the layer graph: pure functions, no input or output."""

from __future__ import annotations

from veltair.compiler.graph import Graph
from veltair.compiler.passes.compact import compact
from veltair.compiler.passes.fuse import fuse
from veltair.compiler.passes.layout import assign_layouts
from veltair.compiler.passes.normalise import drop_unused, normalise
from veltair.compiler.passes.patterns import recompose
from veltair.compiler.passes.regions import gather_regions
from veltair.compiler.passes.views import absorb_transposes


def prepare(graph: Graph, lanes: int) -> Graph:
    """Runs every pass, from ONNX's operations to what can be lowered and placed.

    Args:
        graph: as imported.
        lanes: float32 lanes of a vector.
    """
    fused = absorb_transposes(fuse(normalise(recompose(graph))))
    laid_out = assign_layouts(fused, lanes)
    return gather_regions(drop_unused(compact(laid_out, lanes)))


__all__ = ["prepare"]
