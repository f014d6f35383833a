"""Where a model's outputs differ from ONNX Runtime's: who is at fault, and what follows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from compiling import Quiet, options_alone
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tvm import te

from veltair.compiler import onnx_importer
from veltair.compiler.pipeline import CompileOptions, compile_model
from veltair.compiler.reference import TOLERANCE, reference_run, relative_difference
from veltair.compiler.te_operators import OPERATORS
from veltair.compiler.te_operators.call import Call, Expr, Tensor
from veltair.runtime.artifact import available_isa
from veltair.runtime.errors import UnsupportedOperatorError
from veltair.runtime.model import Model

pytestmark = pytest.mark.skipif(available_isa() is None, reason="this CPU can't run kernels")

SHAPE = (1, 3, 8, 6)
# ONNX Runtime spreads such a resize's places over the fractional length, ONNX over the elements.
RESIZE = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}


def model_of(nodes: Sequence[onnx.NodeProto]) -> onnx.ModelProto:
    """Nodes from `x` to `y` with `scales` and the weights `w` of a convolution."""
    weight = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    constants = {"scales": np.float32([1, 1, 0.6, 0.7]), "w": weight}
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    )


def options_of(
    folder: Path, model: onnx.ModelProto, *, batches: tuple[int, ...] = (), strict: bool = False
) -> CompileOptions:
    onnx.save(model, folder / "m.onnx")
    return options_alone(folder / "m.onnx", profiled=False, batches=batches, strict=strict)


def resized_twice() -> onnx.ModelProto:
    """Two resizes that ONNX Runtime computes otherwise, one behind the other, among other nodes."""
    return model_of(
        [
            helper.make_node("Relu", ["x"], ["r"]),
            helper.make_node("Resize", ["r", "", "scales"], ["small"], name="first", **RESIZE),
            helper.make_node("Conv", ["small", "w"], ["c"], pads=[1, 1, 1, 1]),
            helper.make_node("Resize", ["c", "", "scales"], ["less"], name="second", **RESIZE),
            helper.make_node("Sigmoid", ["less"], ["y"]),
        ]
    )


def test_a_kernel_that_agrees_with_onnx_stays(tmp_path: Path) -> None:
    model = resized_twice()
    result = compile_model(options_of(tmp_path, model, batches=(2,)), Quiet())
    assert [text.split(":")[0] for text in result.deviating] == [
        "Resize 'first'",
        "Resize 'second'",
    ]
    assert all("otherwise than ONNX defines it" in text for text in result.deviating)
    assert result.difference is not None
    assert not any(layer.fallback for n in (1, 2) for layer in result.manifest.at(n).layers)
    x = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    y = Model.load(tmp_path / "repository" / "m").run({"x": x})["y"]
    assert relative_difference(y, expected) <= TOLERANCE
    (other,) = reference_run(model)({"x": x})
    assert not relative_difference(other, expected) <= TOLERANCE  # or this tests nothing


def test_a_run_by_definition_is_onnx_s_own() -> None:
    model = resized_twice()
    x = np.random.default_rng(2).standard_normal(SHAPE).astype(np.float32)
    (mixed,) = reference_run(model, defined=["first", "second"])({"x": x})
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    assert relative_difference(mixed, expected) <= 1e-6


def test_a_kernel_that_agrees_with_neither_falls_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def doubled(call: Call) -> Expr:
        def twice(data: Tensor) -> Tensor:
            return te.compute(data.shape, lambda *at: data(*at) * 2, name="twice")

        return call.emit(twice, call.inputs[0])

    monkeypatch.setattr(onnx_importer, "OPERATORS", {**OPERATORS, "Cosh": doubled})
    node = helper.make_node("Cosh", ["x"], ["y"], name="n")
    result = compile_model(options_of(tmp_path, model_of([node])), Quiet())
    assert result.deviating == ()
    (layer,) = result.manifest.layers
    assert layer.fallback is not None
    (reason,) = layer.fallback.reasons
    assert reason.startswith("Cosh 'n': TVM computes it otherwise than ONNX Runtime")
    (tmp_path / "strict").mkdir()
    with pytest.raises(UnsupportedOperatorError, match="--strict"):
        compile_model(options_of(tmp_path / "strict", model_of([node]), strict=True), Quiet())
