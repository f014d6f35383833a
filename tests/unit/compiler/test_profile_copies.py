"""Layers that run for one sample after the other are alike, so that their times are of one kind."""

from __future__ import annotations

import numpy as np

from veltair.compiler.profile import copies, medians
from veltair.runtime.manifest import Layer, Variant


def layer(name: str, nodes: tuple[str, ...], *symbols: str) -> Layer:
    variants = tuple(
        Variant(
            id=symbol,
            symbol=symbol,
            algorithm="direct",
            parallel_extent=1,
            tile_bytes=0,
            arguments=(),
        )
        for symbol in symbols
    )
    return Layer(
        name=name,
        op="conv",
        nodes=nodes,
        input_shapes=(),
        output_shapes=(),
        flops=0,
        variants=variants,
    )


def test_layers_of_the_same_nodes_and_kernels_are_copies() -> None:
    layers = [
        layer("a", ("conv_a",), "f", "g"),
        layer("b", ("conv_b",), "f", "g"),  # another layer by the same kernels
        layer("a#2", ("conv_a",), "f", "g"),
        layer("b#2", ("conv_b",), "g", "f"),  # in another order: its times are not b's
    ]
    assert copies(layers) == [[0, 2], [1], [3]]


def test_layers_of_no_node_stay_alone() -> None:
    assert copies([layer("a", (), "f"), layer("b", (), "f")]) == [[0], [1]]


def test_a_median_is_of_all_copies() -> None:
    times = np.array([[1, 10, 5], [2, 20, 100], [3, 30, 6]])
    assert medians(times, [[0, 2], [1]]).tolist() == [4.0, 20.0, 4.0]
