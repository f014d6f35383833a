"""Small models of which parts can't be compiled."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL, STRING = (
    TensorProto.FLOAT,
    TensorProto.INT64,
    TensorProto.BOOL,
    TensorProto.STRING,
)


def value(name: str, shape: list[int | str] | None, elem: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, elem, shape)


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    opset: int = 18,
    **weights: np.ndarray,
) -> onnx.ModelProto:
    constants = [numpy_helper.from_array(data, name) for name, data in weights.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", opset)])


def node(op: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    """A node, named after its first output."""
    made = outputs.split()
    return helper.make_node(op, inputs.split(), made, name=f"n_{made[0]}", **attributes)


def between_convolutions() -> onnx.ModelProto:
    """An operator that TVM lacks, on tensors that convolutions keep packed and bordered."""
    rng = np.random.default_rng(1)
    nodes = [
        node("Conv", "x w", "a", pads=[1, 1, 1, 1]),
        node("Relu", "a", "b"),
        node("TopK", "b k", "v i", axis=1),
        node("Conv", "v u", "c", pads=[1, 1, 1, 1]),
        node("Add", "c b4", "y"),
        node("Slice", "b s e axes", "b4"),
    ]
    nodes[4], nodes[5] = nodes[5], nodes[4]
    return model_of(
        nodes,
        [value("x", [1, 3, 12, 12])],
        [value("y", [1, 8, 12, 12]), value("i", [1, 4, 12, 12], INT64)],
        w=rng.standard_normal((20, 3, 3, 3)).astype(np.float32) / 5,
        u=rng.standard_normal((8, 4, 3, 3)).astype(np.float32) / 6,
        k=np.array([4]),
        s=np.array([0]),
        e=np.array([8]),
        axes=np.array([1]),
    )


def shapes_of_the_data() -> onnx.ModelProto:
    """How many elements are selected is known only in a run; what becomes of them has a shape."""
    return model_of(
        [
            node("Exp", "x", "e"),
            node("NonZero", "m", "where"),
            node("Transpose", "where", "rows", perm=[1, 0]),
            node("GatherND", "e rows", "chosen"),
            node("ReduceSum", "chosen", "total", keepdims=1),
            node("Mul", "total e", "y"),
            node("Size", "chosen", "count"),
        ],
        [value("x", [3, 5]), value("m", [3, 5], INT64)],
        [value("y", [3, 5]), value("count", [], INT64)],
    )


def subgraphs() -> onnx.ModelProto:
    """Branches and a loop that read tensors and weights from outside of them."""
    taken = helper.make_graph([node("Mul", "r w", "t")], "taken", [], [value("t", [4, 4])])
    other = helper.make_graph(
        [node("Add", "r b", "inner"), node("Neg", "inner", "f")], "other", [], [value("f", [4, 4])]
    )
    body = helper.make_graph(
        [
            node("Identity", "go", "go_on"),
            node("Add", "sum r", "sum_out"),
        ],
        "body",
        [value("step", [], INT64), value("go", [], BOOL), value("sum", [4, 4])],
        [value("go_on", [], BOOL), value("sum_out", [4, 4])],
    )
    return model_of(
        [
            node("Relu", "x", "r"),
            node("If", "flag", "chosen", then_branch=taken, else_branch=other),
            node("Loop", "trips yes r", "looped", body=body),
            node("Add", "chosen looped", "both"),
            node("MatMul", "both w", "y"),
        ],
        [value("x", [4, 4]), value("flag", [], BOOL)],
        [value("y", [4, 4]), value("r", [4, 4])],
        w=np.random.default_rng(2).standard_normal((4, 4)).astype(np.float32),
        b=np.ones((4, 4), np.float32),
        trips=np.array(3),
        yes=np.array(True),
    )


def no_numbers() -> onnx.ModelProto:
    """Strings and sequences, which have no place in an arena."""
    return model_of(
        [
            node("Cast", "x", "text", to=STRING),
            node("Cast", "text", "back", to=FLOAT),
            node("SplitToSequence", "back two", "parts", axis=0),
            node("ConcatFromSequence", "parts", "whole", axis=1),
            node("Relu", "whole", "y"),
        ],
        [value("x", [4, 3])],
        [value("y", [2, 6])],
        two=np.array(2),
    )


def nothing_compiled() -> onnx.ModelProto:
    return model_of(
        [node("Det", "x", "d"), node("TopK", "d one", "y i")],
        [value("x", [2, 3, 3])],
        [value("y", [1])],
        one=np.array([1]),
    )


def large_weights() -> onnx.ModelProto:
    """A weight that a compiled layer and a segment read, and one that only the segment does."""
    rng = np.random.default_rng(3)
    branch = helper.make_graph([node("MatMul", "h v", "t")], "t", [], [value("t", [2, 64])])
    other = helper.make_graph([node("MatMul", "h w", "f")], "f", [], [value("f", [2, 64])])
    return model_of(
        [
            node("MatMul", "x w", "h"),
            node("If", "flag", "y", then_branch=branch, else_branch=other),
        ],
        [value("x", [2, 64]), value("flag", [], BOOL)],
        [value("y", [2, 64])],
        w=rng.standard_normal((64, 64)).astype(np.float32) / 8,
        v=rng.standard_normal((64, 64)).astype(np.float32) / 8,
    )


def selections() -> onnx.ModelProto:
    """Outputs whose shapes only a run tells, one used inside too, and one of fixed shape."""
    return model_of(
        [
            node("Relu", "x", "r"),
            node("NonZero", "r", "where"),
            node("Transpose", "where", "rows", perm=[1, 0]),
            node("GatherND", "r rows", "chosen"),
            node("Greater", "chosen half", "large"),
        ],
        [value("x", [5, 7])],
        [
            value("r", [5, 7]),
            value("where", None, INT64),
            value("chosen", ["some"]),
            value("large", None, BOOL),
        ],
        half=np.array(0.5, np.float32),
    )


def words() -> onnx.ModelProto:
    """Strings in and out."""
    return model_of(
        [
            node("StringConcat", "a b", "joined"),
            node("StringSplit", "joined", "parts count", delimiter="o"),
        ],
        [value("a", [2, 3], STRING), value("b", [1, 3], STRING)],
        [
            value("joined", [2, 3], STRING),
            value("parts", None, STRING),
            value("count", [2, 3], INT64),
        ],
        opset=20,
    )
