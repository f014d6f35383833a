"""What the passes make of a transformer's operators, as exporters write them."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from veltair.compiler.clean import infer_shapes
from veltair.compiler.graph import Graph, from_model
from veltair.compiler.passes import prepare
from veltair.compiler.passes.patterns import recompose

LANES = 16
ROOT_TWO = math.sqrt(2)


class Nodes:
    """Writes a graph of one input `x` node by node; a number is a constant."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, value: object) -> str:
        name = f"k{len(self.constants)}"
        array = np.asarray(value)
        array = array.astype(np.float32) if array.dtype == np.float64 else array
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def __call__(self, op: str, *inputs: object, **attributes: object) -> str:
        names = [i if isinstance(i, str) else self.constant(i) for i in inputs]
        output = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, names, [output], name=output, **attributes))
        return output

    def graph(self, output: str) -> Graph:
        graph = helper.make_graph(
            self.nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
            self.constants,
        )
        model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
        return from_model(infer_shapes(model))


def gelu(n: Nodes, form: str, root: float = ROOT_TWO) -> str:
    scaled = n("Mul", "x", 1 / root) if form == "mul" else n("Div", "x", root)
    shifted = n("Add", 1.0, n("Erf", scaled))
    if form == "half first":
        return n("Mul", n("Mul", "x", 0.5), shifted)
    if form == "half inside":
        return n("Mul", "x", n("Mul", shifted, 0.5))
    return n("Mul", n("Mul", "x", shifted), 0.5)


@pytest.mark.parametrize("form", ["div", "mul", "half first", "half inside"])
def test_gelu_by_erf_is_recognised(form: str) -> None:
    n = Nodes(2, 8)
    graph = recompose(n.graph(gelu(n, form)))
    assert graph.ops[-1].kind == "Gelu"
    assert graph.ops[-1].inputs == ("x",)


def test_another_constant_is_no_gelu() -> None:
    n = Nodes(2, 8)
    assert recompose(n.graph(gelu(n, "div", root=1.5))).ops[-1].kind == "Mul"


def layer_norm(n: Nodes, axis: int = -1) -> str:
    difference = n("Sub", "x", n("ReduceMean", "x", axes=[axis]))
    variance = n("ReduceMean", n("Pow", difference, 2.0), axes=[axis])
    normal = n("Div", difference, n("Sqrt", n("Add", variance, 1e-5)))
    return n("Add", n("Mul", normal, np.ones(8)), np.zeros(8))


def test_layer_norm_of_its_parts_is_recognised() -> None:
    n = Nodes(2, 8, 8)
    last = recompose(n.graph(layer_norm(n))).ops[-1]
    assert last.kind == "LayerNormalization"
    assert last.attrs["epsilon"] == pytest.approx(1e-5)
    n = Nodes(2, 8, 8)
    assert recompose(n.graph(layer_norm(n, axis=1))).ops[-1].kind == "Add"


def test_attention_copies_nothing() -> None:
    n = Nodes(1, 6, 32)

    def heads(order: list[int]) -> str:
        y = n("Add", n("MatMul", "x", np.ones((32, 32))), np.ones(32))
        return n("Transpose", n("Reshape", y, np.array([1, 6, 2, 16])), perm=order)

    query, key, value = heads([0, 2, 1, 3]), heads([0, 2, 3, 1]), heads([0, 2, 1, 3])
    scores = n("Div", n("MatMul", query, key), 4.0)
    mixed = n("MatMul", n("Softmax", scores, axis=-1), value)
    joined = n("Reshape", n("Transpose", mixed, perm=[0, 2, 1, 3]), np.array([1, 6, 32]))
    graph = prepare(n.graph(n("MatMul", joined, np.ones((32, 32)))), LANES)
    kinds = [op.kind for op in graph.ops if op.kind != "Reshape"]
    assert kinds == ["MatMul"] * 3 + ["BatchMatMul", "Softmax", "BatchMatMul", "MatMul"]
    first, second = (op for op in graph.ops if op.kind == "BatchMatMul")
    assert first.attrs["perms"] == ((0, 2, 1, 3), (0, 2, 3, 1), (0, 1, 2, 3))
    assert [s.kind for s in first.epilogue] == ["mul"]
    assert second.attrs["perms"] == ((0, 1, 2, 3), (0, 2, 1, 3), (0, 2, 1, 3))


def test_transpose_with_another_reader_stays() -> None:
    n = Nodes(2, 6, 4)
    product = n("MatMul", "x", n("Transpose", "x", perm=[0, 2, 1]))
    turned = n("Transpose", product, perm=[0, 2, 1])
    graph = prepare(n.graph(n("Add", product, turned)), LANES)
    assert [op.kind for op in graph.ops] == ["BatchMatMul", "Default"]
    assert graph.ops[0].attrs["perms"] == ((0, 1, 2), (0, 2, 1), (0, 1, 2))
