"""Operators and versions that neither TVM nor ONNX Runtime reads as they stand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from compiling import check_outputs, compiled
from fallback_models import BOOL, FLOAT, model_of, node, value
from onnx import helper

from veltair.runtime.artifact import available_isa

ISA = available_isa()
pytestmark = pytest.mark.skipif(ISA is None, reason="this CPU can't run kernels")


def test_what_onnx_defines_by_other_operators_is_compiled_as_those(tmp_path: Path) -> None:
    shape = [1, 2, 5, 8]
    inputs = [value(name, shape) for name in "qkv"]
    model = model_of([node("Attention", "q k v", "y")], inputs, [value("y", shape)], opset=23)
    loaded = compiled(tmp_path, model, ISA, strict=True, profiled=False)
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(shape).astype(np.float32) for _ in range(3))
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(8)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(loaded.run({"q": q, "k": k, "v": v})["y"], expected, rtol=1e-4)


def test_a_row_of_infinities_has_an_infinite_maximum(tmp_path: Path) -> None:
    model = model_of(
        [
            node("Where", "m x low", "masked"),
            node("ReduceMax", "masked axes", "y", keepdims=0),
            node("ReduceMin", "x axes", "z", keepdims=0),
        ],
        [value("m", [3, 4], BOOL), value("x", [3, 4])],
        [value("y", [3]), value("z", [3])],
        low=np.float32(-np.inf) * np.ones((), np.float32),
        axes=np.array([1]),
    )
    loaded = compiled(tmp_path, model, ISA, strict=True, profiled=False)
    mask = np.array([[True] * 4, [False] * 4, [True, False, False, False]])
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    x[1] = np.inf
    out = loaded.run({"m": mask, "x": x})
    assert out["y"].tolist() == [3.0, -np.inf, 8.0]
    assert out["z"].tolist() == [0.0, np.inf, 8.0]


def test_what_tvm_computes_otherwise_falls_back(tmp_path: Path) -> None:
    statistics = {name: np.full(3, 1.5, np.float32) for name in "sbuv"}
    model = model_of(
        [
            node("BatchNormalization", "x s b u v", "n mean var", training_mode=1),
            node("Relu", "n", "y"),
        ],
        [value("x", [2, 3, 4, 5])],
        [value("y", [2, 3, 4, 5]), value("mean", [3]), value("var", [3])],
        **statistics,
    )
    loaded = check_outputs(tmp_path, model, ISA)
    (fallen,) = [layer.fallback for layer in loaded.manifest.layers if layer.fallback]
    assert fallen.reasons == tuple(r for r in fallen.reasons if "otherwise than ONNX" in r)
    assert "BatchNormalization 'n_n'" in fallen.reasons[0]
    assert any(layer.fallback is None for layer in loaded.manifest.layers)


@pytest.mark.parametrize("opset", [7, 13, 21, onnx.defs.onnx_opset_version()])
def test_every_opset_is_read_whatever_onnx_runtime_knows(tmp_path: Path, opset: int) -> None:
    kind = "Mod" if opset >= 10 else "Add"  # an operator whose newest definition is very new
    nodes = [node("Exp", "x", "e"), node(kind, "e x", "y", **{"fmod": 1} if kind == "Mod" else {})]
    model = model_of(nodes, [value("x", [3, 5])], [value("y", [3, 5])], opset=opset)
    model.ir_version = onnx.IR_VERSION
    x = np.random.default_rng(1).standard_normal((3, 5)).astype(np.float32)
    loaded = compiled(tmp_path, model, ISA, strict=True, profiled=False)
    expected = np.fmod(np.exp(x), x) if kind == "Mod" else np.exp(x) + x
    np.testing.assert_allclose(loaded.run({"x": x})["y"], expected, rtol=1e-4, atol=1e-5)


def test_scalars_and_parts_of_size_zero_are_read(tmp_path: Path) -> None:
    model = model_of(
        [node("Split", "x sizes", "a none", axis=1), node("Mul", "a s", "y")],
        [value("x", [2, 4, 3]), value("s", [])],
        [value("y", [2, 4, 3]), value("none", [2, 0, 3])],
        sizes=np.array([4, 0]),
    )
    loaded = check_outputs(tmp_path, model, ISA)
    assert loaded.run({"x": np.ones((2, 4, 3), np.float32), "s": np.float32(2)})["y"].min() == 2


def test_a_model_of_another_domain_alone_says_no_version_of_ours(tmp_path: Path) -> None:
    binarizer = helper.make_node(
        "Binarizer", ["x"], ["y"], name="bin", domain="ai.onnx.ml", threshold=0.5
    )
    model = model_of([binarizer], [value("x", [2, 3])], [value("y", [2, 3], FLOAT)])
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    loaded = check_outputs(tmp_path, model, ISA)
    assert [layer.op for layer in loaded.manifest.layers] == ["fallback Binarizer"]
