"""A model that doesn't fit: said in numbers, with what to do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper

from veltair.compiler.clean import infer_shapes
from veltair.compiler.graph import from_model
from veltair.compiler.memory import check_memory, explained_shortage
from veltair.compiler.passes import prepare
from veltair.compiler.passes.plan import plan_memory
from veltair.runtime.errors import InputError, VeltairError
from veltair.runtime.machine import available_memory_bytes

PATH = Path("net.onnx")


def check(size: int) -> None:
    """Of a convolution over an image of `size` by `size`."""
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
            helper.make_node("Exp", ["c"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, size, size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.zeros((16, 16, 3, 3), np.float32), "w")],
    )
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    prepared = prepare(from_model(infer_shapes(model)), 16)
    check_memory(PATH, prepared, plan_memory(prepared, 16))


def test_a_model_over_memory_is_refused_with_its_needs() -> None:
    check(64)
    available = available_memory_bytes()
    too_large = int((available / 64) ** 0.5) + 1  # its input alone
    with pytest.raises(VeltairError) as caught:
        check(2 * too_large)
    said = str(caught.value)
    assert said.startswith("net.onnx: needs 0.0 GiB for its weights, ")
    assert "GiB of memory available; end what else uses memory" in said
    assert "smaller --shape" in said


def numpy_runs_out() -> None:
    np.empty(1 << 55, np.uint8)


def tvm_runs_out() -> None:
    tvm.runtime.empty((1 << 55,), "uint8")


@pytest.mark.parametrize("run_out", [numpy_runs_out, tvm_runs_out])
def test_a_failed_allocation_is_explained(run_out: object) -> None:
    assert callable(run_out)
    with (
        pytest.raises(VeltairError, match=r"^net.onnx: out of memory \(.*\) with .* fewer --jobs"),
        explained_shortage(PATH),
    ):
        run_out()


@pytest.mark.parametrize("error", [InputError("bad_alloc"), ValueError("no"), KeyboardInterrupt()])
def test_other_errors_pass(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, explained_shortage(PATH):
        raise error
    assert caught.value is error
