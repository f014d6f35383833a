"""What the passes make of small graphs."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from veltair.compiler.clean import infer_shapes
from veltair.compiler.graph import Graph, from_model
from veltair.compiler.passes import prepare
from veltair.compiler.passes.fuse import fuse
from veltair.compiler.passes.normalise import normalise

LANES = 16


def graph_of(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[int]],
    outputs: list[str],
    weights: dict[str, tuple[int, ...]],
) -> Graph:
    rng = np.random.default_rng(0)
    for i, node in enumerate(nodes):
        node.name = node.name or f"n{i}"
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [
            numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n)
            for n, s in weights.items()
        ],
    )
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    return from_model(infer_shapes(model))


def kinds(graph: Graph) -> list[str]:
    return [op.kind for op in graph.ops]


def conv(data: str, weight: str, output: str, kernel: int = 1) -> onnx.NodeProto:
    return helper.make_node("Conv", [data, weight], [output], pads=[kernel // 2] * 4)


def test_residual_is_fused_into_the_later_convolution() -> None:
    graph = graph_of(
        [
            conv("x", "w0", "left"),
            conv("x", "w1", "right"),
            helper.make_node("Add", ["right", "left"], ["sum"]),
            helper.make_node("Relu", ["sum"], ["y"]),
        ],
        {"x": [1, 16, 4, 4]},
        ["y"],
        {"w0": (16, 16, 1, 1), "w1": (16, 16, 1, 1)},
    )
    fused = fuse(normalise(graph))
    assert kinds(fused) == ["Conv", "Conv"]
    assert fused.ops[0].epilogue == ()
    assert [(s.kind, s.operand, s.tensor) for s in fused.ops[1].epilogue] == [
        ("add", "tensor", "left"),
        ("relu", "none", None),
    ]
    assert fused.ops[1].outputs == ("y",)


def test_value_with_a_second_reader_is_not_fused_away() -> None:
    graph = graph_of(
        [
            conv("x", "w0", "c"),
            helper.make_node("Relu", ["c"], ["y"]),
            helper.make_node("Exp", ["c"], ["z"]),
        ],
        {"x": [1, 16, 4, 4]},
        ["y", "z"],
        {"w0": (16, 16, 1, 1)},
    )
    fused = fuse(normalise(graph))
    assert kinds(fused) == ["Conv", "Default", "Default"]


def test_graph_output_is_not_fused_away() -> None:
    graph = graph_of(
        [conv("x", "w0", "c"), helper.make_node("Relu", ["c"], ["y"])],
        {"x": [1, 16, 4, 4]},
        ["c", "y"],
        {"w0": (16, 16, 1, 1)},
    )
    assert kinds(fuse(normalise(graph))) == ["Conv", "Default"]


def test_gated_value_becomes_silu() -> None:
    graph = graph_of(
        [
            conv("x", "w0", "c"),
            helper.make_node("Sigmoid", ["c"], ["s"]),
            helper.make_node("Mul", ["c", "s"], ["y"]),
        ],
        {"x": [1, 16, 4, 4]},
        ["y"],
        {"w0": (16, 16, 1, 1)},
    )
    fused = fuse(normalise(graph))
    assert [s.kind for s in fused.ops[0].epilogue] == ["silu"]
    assert fused.ops[0].nodes == ("n0", "n1", "n2")


@pytest.mark.parametrize(
    ("shape", "fuses"), [((16, 1, 1), True), ((1,), True), ((1, 1, 4), False), ((4, 1), False)]
)
def test_constant_is_fused_if_it_has_one_value_a_channel(
    shape: tuple[int, ...], fuses: bool
) -> None:
    graph = graph_of(
        [conv("x", "w0", "c"), helper.make_node("Mul", ["c", "k"], ["y"])],
        {"x": [1, 16, 4, 4]},
        ["y"],
        {"w0": (16, 16, 1, 1), "k": shape},
    )
    assert (kinds(fuse(normalise(graph))) == ["Conv"]) == fuses


def test_sum_becomes_additions() -> None:
    graph = graph_of(
        [helper.make_node("Sum", ["x", "y", "z"], ["s"])],
        {"x": [2, 3], "y": [2, 3], "z": [3]},
        ["s"],
        {},
    )
    normal = normalise(graph)
    assert [op.protos[0].op_type for op in normal.ops] == ["Add", "Add"]
    assert normal.ops[1].outputs == ("s",)


def test_concatenation_of_whole_vectors_costs_no_copy() -> None:
    graph = graph_of(
        [
            conv("x", "w0", "a"),
            conv("x", "w1", "b", kernel=3),
            helper.make_node("Concat", ["a", "b"], ["c"], axis=1),
            conv("c", "w2", "y"),
        ],
        {"x": [1, 16, 4, 4]},
        ["y"],
        {"w0": (16, 16, 1, 1), "w1": (32, 16, 3, 3), "w2": (16, 48, 1, 1)},
    )
    # One copy packs the input, with the border that only the 3x3 needs; one unpacks the output.
    prepared = kinds(prepare(graph, LANES))
    assert prepared.count("Relayout") == 2
    assert "ConcatView" in prepared


def test_elementwise_run_stays_packed_between_convolutions() -> None:
    graph = graph_of(
        [
            conv("x", "w0", "c"),
            helper.make_node("Relu", ["c"], ["r"]),
            helper.make_node("Add", ["c", "r"], ["s"]),
            conv("s", "w1", "y"),
        ],
        {"x": [1, 16, 4, 4]},
        ["y"],
        {"w0": (16, 16, 1, 1), "w1": (16, 16, 1, 1)},
    )
    prepared = prepare(graph, LANES)
    assert kinds(prepared) == ["Relayout", "Conv", "Default", "Conv", "Relayout"]
    (run,) = (op for op in prepared.ops if op.kind == "Default")
    assert len(run.protos) == 2
    assert run.attrs["packed"]
