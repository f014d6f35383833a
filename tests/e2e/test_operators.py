"""Small graphs, compiled by the whole pipeline and compared with ONNX Runtime.

Each case holds several operators, so that one build serves them all. The pipeline itself compares
with ONNX Runtime and fails above its tolerance; the tests compare once more on inputs of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from compiling import check_outputs, compiled
from onnx import TensorProto, helper, numpy_helper

from veltair.runtime.artifact import available_isa
from veltair.runtime.errors import UnsupportedOperatorError
from veltair.runtime.manifest import LANES, Isa


class GraphOf:
    """Writes a model node by node; every value that nothing reads becomes an output."""

    def __init__(self, **inputs: tuple[int, ...]) -> None:
        self.rng = np.random.default_rng(7)
        self.inputs = [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()
        ]
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, *shape: int, scale: float = 0.3) -> str:
        return self.constant(self.rng.standard_normal(shape).astype(np.float32) * np.float32(scale))

    def constant(self, data: Any) -> str:  # noqa: ANN401 (whatever NumPy makes an array of)
        name = f"k{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(data), name))
        return name

    def __call__(self, op: str, *inputs: str, **attributes: Any) -> str:  # noqa: ANN401 (ONNX's)
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"{name}_node", **attributes))
        return name

    def conv(self, x: str, shape: tuple[int, ...], *, bias: bool = True, **attributes: Any) -> str:  # noqa: ANN401
        """Convolution with a drawn weight of `shape` (OC, IC / groups, KH, KW)."""
        scale = 1 / float(np.sqrt(np.prod(shape[1:])))
        extra = [self.weight(shape[0])] if bias else []
        return self("Conv", x, self.weight(*shape, scale=scale), *extra, **attributes)

    def model(self, opset: int = 17) -> onnx.ModelProto:
        read = {i for n in self.nodes for i in n.input}
        ends = [o for n in self.nodes for o in n.output if o not in read]
        outputs = [onnx.ValueInfoProto(name=name) for name in ends]
        graph = helper.make_graph(self.nodes, "g", self.inputs, outputs, self.weights)
        model = helper.make_model(
            graph, ir_version=8, opset_imports=[helper.make_opsetid("", opset)]
        )
        return onnx.shape_inference.infer_shapes(model)


def convolutions() -> onnx.ModelProto:
    g = GraphOf(x=(1, 3, 23, 17))
    stem = g("Relu", g.conv("x", (20, 3, 7, 7), strides=[2, 2], pads=[3, 3, 3, 3]))
    wide = g.conv(stem, (48, 20, 3, 3), pads=[1, 1, 1, 1])
    same = g.conv(wide, (48, 48, 1, 1), bias=False)
    total = g("Relu", g("Add", same, wide))
    g.conv(total, (33, 48, 3, 3), dilations=[2, 2], pads=[2, 2, 2, 2])
    g.conv(total, (16, 48, 1, 5), pads=[0, 2, 0, 2])
    g.conv(total, (16, 48, 2, 3), pads=[1, 0, 0, 2], strides=[2, 1])
    g.conv(total, (40, 48, 1, 1), strides=[2, 2])
    g("Sigmoid", g.conv(total, (16, 48, 3, 3), auto_pad="SAME_UPPER", strides=[2, 2]))
    return g.model()


def grouped_convolutions() -> onnx.ModelProto:
    g = GraphOf(x=(2, 32, 9, 11))
    for kernel, stride in ((3, 1), (3, 2), (5, 1), (5, 2)):
        pad = kernel // 2
        y = g.conv("x", (32, 1, kernel, kernel), group=32, pads=[pad] * 4, strides=[stride] * 2)
        g("Clip", y, g.constant(np.float32(0)), g.constant(np.float32(6)))
    g.conv("x", (64, 16, 3, 3), group=2, pads=[1, 1, 1, 1])
    g.conv("x", (48, 4, 3, 3), group=8, pads=[1, 1, 1, 1])
    g.conv("x", (64, 1, 3, 3), group=32, pads=[1, 1, 1, 1])
    odd = g.conv("x", (20, 32, 1, 1))
    g.conv(odd, (20, 1, 3, 3), group=20, pads=[1, 1, 1, 1], dilations=[1, 1])
    return g.model()


def pools_and_norms() -> onnx.ModelProto:
    g = GraphOf(x=(1, 24, 13, 11))
    g("MaxPool", "x", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    g("MaxPool", "x", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    g("MaxPool", "x", kernel_shape=[2, 2], strides=[2, 2], dilations=[2, 1])
    g("AveragePool", "x", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    g("AveragePool", "x", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)
    g("AveragePool", "x", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0], ceil_mode=1)
    g("AveragePool", "x", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, count_include_pad=1)
    g("GlobalMaxPool", "x")
    g("LRN", "x", size=5, alpha=1e-2)
    g("LRN", "x", size=3, alpha=1e-2, beta=0.6, bias=2.0)
    statistics = [g.constant(g.rng.random(24, dtype=np.float32) + 0.5) for _ in range(4)]
    g("Relu", g("BatchNormalization", "x", *statistics))
    g("InstanceNormalization", "x", *statistics[:2])
    pooled = g("Flatten", g("GlobalAveragePool", "x"))
    g("Softmax", g("Gemm", pooled, g.weight(10, 24), g.weight(10), transB=1), axis=1)
    return g.model()


def element_wise() -> onnx.ModelProto:
    g = GraphOf(x=(2, 20, 6, 5), y=(2, 20, 6, 5))
    c = g.conv("x", (20, 20, 3, 3), pads=[1, 1, 1, 1])
    d = g.conv("y", (20, 20, 1, 1))
    gate = g("Sigmoid", g("GlobalAveragePool", c))
    g("Mul", c, gate)
    g("Mul", d, g("Sigmoid", d))
    g("Sub", g("Max", c, d), g.weight(20, 1, 1))
    g("Div", c, g("Exp", d))
    g("Add", g("HardSwish", c), g.constant(np.float32(0.5)))
    g("Elu", g("LeakyRelu", d, alpha=0.2))
    g("Where", g("Greater", c, d), c, g("Neg", d))
    g("Pow", g("Abs", d), g.constant(np.float32(1.5)))
    g("Add", c, g.weight(1, 20, 6, 1))
    return g.model()


def matrices() -> onnx.ModelProto:
    g = GraphOf(x=(2, 7, 36), q=(2, 4, 7, 9))
    h = g("Add", g("MatMul", "x", g.weight(36, 50)), g.weight(50))
    half, root = g.constant(np.float32(0.5)), g.constant(np.float32(np.sqrt(2)))
    one = g.constant(np.float32(1))
    g("Mul", g("Mul", h, g("Add", g("Erf", g("Div", h, root)), one)), half)
    scores = g("MatMul", "q", g("Transpose", "q", perm=[0, 1, 3, 2]))
    mixed = g("MatMul", g("Softmax", scores, axis=-1), "q")
    back = g("Reshape", g("Transpose", mixed, perm=[0, 2, 1, 3]), g.constant(np.array([2, 7, 36])))
    total = g("Add", back, "x")
    g("LayerNormalization", total, g.weight(36), g.weight(36), axis=-1)
    g("Gemm", g("Flatten", "x"), g.weight(252, 17), g.weight(1), alpha=0.5, beta=2.0)
    g("ReduceMean", "x", axes=[1], keepdims=0)
    return g.model()


def shapes() -> onnx.ModelProto:
    g = GraphOf(x=(1, 16, 8, 8), v=(5,))
    c = g.conv("x", (16, 16, 3, 3), pads=[1, 1, 1, 1])
    d = g.conv(c, (32, 16, 3, 3), pads=[1, 1, 1, 1])
    joined = g("Concat", c, d, c, axis=1)
    g.conv(joined, (24, 64, 3, 3), pads=[1, 1, 1, 1])
    odd = g.conv(joined, (10, 64, 1, 1))
    g("Concat", odd, d, axis=1)
    g("Concat", d, d, axis=2)
    bounds = [g.constant(np.array(v)) for v in ([1, 0], [7, 5], [1, 3])]
    g("Slice", d, *bounds)
    scales = g.constant(np.array([1, 1, 2, 2], np.float32))
    g("Resize", d, "", scales, mode="nearest", coordinate_transformation_mode="asymmetric")
    g("Pad", d, g.constant(np.array([0, 0, 1, 2, 0, 0, 0, 1])))
    g("Cast", g("Greater", c, g.constant(np.float32(0))), to=TensorProto.INT64)
    g("Identity", "v")
    g("Unsqueeze", "v", g.constant(np.array([0, 2])))
    g("Sum", c, "x", g.weight(16, 1, 1))
    return g.model()


CASES: list[Callable[[], onnx.ModelProto]] = [
    convolutions,
    grouped_convolutions,
    pools_and_norms,
    element_wise,
    matrices,
    shapes,
]


@pytest.mark.parametrize("isa", LANES)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_outputs_agree_with_onnx_runtime(
    tmp_path: Path, case: Callable[[], onnx.ModelProto], isa: Isa
) -> None:
    check_outputs(tmp_path, case(), isa)


def test_operator_without_lowering_is_named_where_it_must_be_compiled(tmp_path: Path) -> None:
    g = GraphOf(x=(4, 4))
    g("Relu", "x")
    g.nodes.append(helper.make_node("Det", ["x"], ["det"], name="the_det"))
    with pytest.raises(UnsupportedOperatorError, match=r"Det 'the_det': TVM can't lower it"):
        compiled(tmp_path, g.model(), available_isa(), strict=True)
    assert not (tmp_path / "repository").exists()
