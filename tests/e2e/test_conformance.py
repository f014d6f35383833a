"""ONNX's backend test suite runs against the compiler, and what comes of it is counted."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from veltair.compiler.backend import VeltairBackend
from veltair.eval.children import python
from veltair.eval.conformance_child import Outcome
from veltair.eval.onnx_conformance import report, run, summary
from veltair.runtime.artifact import available_isa
from veltair.runtime.errors import InputError

pytestmark = pytest.mark.skipif(available_isa() is None, reason="this CPU can't run kernels")

# One of each status; the one that can't succeed asks for a test that there is none of.
TESTS = {
    "test_relu_cpu": "compiled",
    "test_flexattention_fp16_cpu": "compiled",  # TVM has a scalar in it as one of a dimension
    "test_dft_inverse_cpu": "compiled",  # to more than the suite's tolerance: see TOLERANCES
    "test_resize_downsample_scales_linear_align_corners_cpu": "compiled",  # ONNX Runtime is wrong
    "test_maxunpool_export_with_output_shape_cpu": "skipped",  # see EXCEPTIONS
    "test_nonzero_example_cpu": "fallback",
    "test_sequence_insert_at_back_cpu": "refused",
    "test_adam_cpu": "refused",  # neither TVM nor ONNX Runtime has the operator
}


def test_outcomes_are_counted_and_a_crash_costs_one_test() -> None:
    found = run([*TESTS, "no such test"], jobs=1, limit_s=60)
    assert {o.name: o.status for o in found} == {**TESTS, "no such test": "failed"}
    told = summary(found)
    assert told["all"] == {
        "compiled": 4,
        "fallback": 1,
        "refused": 2,
        "skipped": 1,
        "failed": 1,
    }
    assert told["counted"]["compiled_share"] == 4 / 5
    assert told["operators"]["Relu"]["compiled"] == 1
    assert list(told["failures"]) == ["no such test"]
    assert "operator Adam, node ''" in told["refusals"]["test_adam_cpu"]
    assert told["refused_for"] == {
        "an input or output is a sequence or an optional value, no tensor": {"SequenceInsert": 1},
        "no model to serve has operators of domain ai.onnx.preview.training": {"Adam": 1},
    }
    assert list(told["tolerances"]) == ["test_dft_inverse"]
    assert "onnx/onnx#2398" in told["skips"]["test_maxunpool_export_with_output_shape_cpu"]
    assert told["fallbacks"] == {"MaxUnpool": 1, "NonZero": 1}


def test_the_command_writes_both_files(tmp_path: Path) -> None:
    command = python(
        "veltair.eval.onnx_conformance", "--out", str(tmp_path), "--tests", "test_sqrt_e"
    )
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "1 tests: 1 compiled" in done.stdout
    result = json.loads((tmp_path / "onnx_conformance.json").read_text())
    assert result["all"]["compiled"] == 1
    assert "| Sqrt | 1 |" in (tmp_path / "onnx_conformance.md").read_text()


def test_what_failed_is_on_the_page() -> None:
    failed = Outcome(name="t", category="c", status="failed", operators=("Add",), reason="a | b")
    text = report({"command": "c", "revision": "r", **summary([failed])})
    assert "- `t`: a / b" in text
    assert "| Add |  |  |  |  | 1 |" in text


def test_refusals_are_grouped_on_the_page() -> None:
    said = "model.onnx: 'y' is of type {}; clients send and receive bool"
    refused = [
        Outcome(
            name=f"{operator} {kind}",
            category="c",
            status="refused",
            operators=(operator,),
            reason=said.format(kind),
        )
        for operator, kind in (("Cast", "int4"), ("Cast", "int2"), ("Pad", "int2"))
    ]
    text = report({"command": "c", "revision": "r", **summary(refused)})
    assert (
        "| an input or output is of type int2, which clients can't send | 2 | Cast 1, Pad 1 |"
        in text
    )
    assert "| an input or output is of type int4, which clients can't send | 1 | Cast 1 |" in text
    assert "## Failures" not in text


def test_the_backend_runs_a_node_and_a_model_of_several_shapes() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    node = helper.make_node("Neg", ["x"], ["y"])
    (y,) = VeltairBackend.run_node(node, [x], outputs_info=[(x.dtype, x.shape)])
    assert (y == -x).all()
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
    )
    rep = VeltairBackend.prepare(helper.make_model(graph), "CPU")
    for rows in (2, 5, 2):
        x = np.full((rows, 3), rows, np.float32)
        assert (rep.run([x])[0] == -x).all()
    assert len(rep.manifests) == 2
    with pytest.raises(InputError, match="2 inputs given; the model takes x"):
        rep.run([x, x])
    with pytest.raises(InputError, match="input 'x' is a list; give a NumPy array"):
        rep.run([[1.0]])
    with pytest.raises(InputError, match="device CUDA: Veltair runs on CPU"):
        VeltairBackend.prepare(helper.make_model(graph), "CUDA")


def test_the_backend_binds_values_that_give_shapes() -> None:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Tile", ["x", "repeats"], ["y"])],
        "g",
        [value("x", TensorProto.FLOAT, [2]), value("repeats", TensorProto.INT64, [1])],
        [value("y", TensorProto.FLOAT, ["n"])],
    )
    rep = VeltairBackend.prepare(helper.make_model(graph), "CPU")
    x = np.arange(2, dtype=np.float32)
    for repeats in (1, 3, 1):
        assert (rep.run([x, np.array([repeats])])[0] == np.tile(x, repeats)).all()
    assert [[i.name for i in m.inputs] for m in rep.manifests] == [["x"], ["x"]]
    assert not any(layer.fallback for m in rep.manifests for layer in m.layers)
