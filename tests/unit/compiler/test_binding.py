"""Values bound at compile time: what fits an input, what becomes of it, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from veltair.compiler.binding import Array, bind
from veltair.compiler.clean import load_clean
from veltair.compiler.inference import value_shapes
from veltair.compiler.shape_operands import SHAPE_OPERANDS, shape_inputs
from veltair.compiler.target_options import parse_value
from veltair.runtime.errors import InputError


def identity(elem: int, shape: list[int | str] | None) -> onnx.ModelProto:
    """A model of one input `x` of some type and shape."""
    value = helper.make_tensor_value_info("x", elem, shape)
    node = helper.make_node("Identity", ["x"], ["y"])
    return helper.make_model(
        helper.make_graph([node], "g", [value], [helper.make_tensor_value_info("y", elem, None)])
    )


def bound(elem: int, shape: list[int | str] | None, data: Array) -> Array:
    model = identity(elem, shape)
    bind(Path("m.onnx"), model, {}, {"x": data})
    assert not model.graph.input
    (tensor,) = model.graph.initializer
    assert (tensor.name, tensor.data_type) == ("x", elem)
    return numpy_helper.to_array(tensor)


@pytest.mark.parametrize(
    ("elem", "shape", "given", "expected"),
    [
        (TensorProto.INT64, [2], np.array([3, -1]), np.array([3, -1], np.int64)),
        (TensorProto.INT64, ["n"], np.array(7), np.array([7], np.int64)),
        (TensorProto.INT64, [], np.array([7]), np.array(7, np.int64)),
        (TensorProto.INT32, [0], np.array([]), np.array([], np.int32)),
        (TensorProto.INT8, None, np.array(2.0), np.array(2, np.int8)),
        (TensorProto.FLOAT, [2, 2], np.array([0.1, 2, 3, 4]), np.float32([[0.1, 2], [3, 4]])),
        (TensorProto.FLOAT16, ["n", 1], np.float16([[1], [2]]), np.float16([[1], [2]])),
        (TensorProto.FLOAT, [1], np.array(np.inf), np.float32([np.inf])),
        (TensorProto.BOOL, [], np.array(1), np.array(True)),
    ],
)
def test_a_value_takes_its_inputs_type_and_shape(
    elem: int, shape: list[int | str] | None, given: Array, expected: Array
) -> None:
    found = bound(elem, shape, given)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("elem", "shape", "given"),
    [
        (TensorProto.INT64, [2], np.array([3])),
        (TensorProto.INT64, ["n", 2], np.array([3, 4])),
        (TensorProto.INT64, [1], np.array([0.5])),
        (TensorProto.INT64, [1], np.array([np.nan])),
        (TensorProto.INT8, [1], np.array([128])),
        (TensorProto.UINT8, [1], np.array([-1])),
        (TensorProto.BOOL, [1], np.array([2])),
        (TensorProto.FLOAT16, [1], np.array([1e6])),
        (TensorProto.INT64, [1], np.array([2**70])),
        (TensorProto.STRING, [1], np.array([1])),
    ],
)
def test_a_value_that_does_not_fit_is_refused(
    elem: int, shape: list[int | str], given: Array
) -> None:
    with pytest.raises(InputError, match=r"m.onnx: --value x=.* doesn't fit the input, which is"):
        bound(elem, shape, given)


def test_a_value_of_no_input_is_refused() -> None:
    with pytest.raises(InputError, match=r"--value z=...: the model has no such input; .* x$"):
        bind(Path("m.onnx"), identity(TensorProto.FLOAT, [1]), {"x": (1,)}, {"z": np.array(1)})


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("axes=1,-2", "axes", np.array([1, -2])),
        ("k=3", "k", np.array(3)),
        ("a=b=0.5", "a=b", np.array(0.5)),
        ("empty=", "empty", np.array([])),
        ("bounds=-inf,1e3", "bounds", np.array([-np.inf, 1000.0])),
    ],
)
def test_a_value_is_read_from_text(text: str, name: str, expected: Array) -> None:
    found_name, found = parse_value(text)
    assert found_name == name
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("text", ["axes", "=1", "axes=one", "axes=1,", "axes=1 2"])
def test_text_that_is_no_value_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="expected INPUT=NUMBER,NUMBER"):
        parse_value(text)


def reshaping() -> onnx.ModelProto:
    """`x` reshaped to `shape`, and `both` added to it, which is read as a shape too."""

    def value(name: str, elem: int, shape: Any) -> onnx.ValueInfoProto:  # noqa: ANN401 (onnx's)
        return helper.make_tensor_value_info(name, elem, shape)

    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["r"]),
        helper.make_node("Expand", ["r", "both"], ["e"]),
        helper.make_node("Add", ["e", "both"], ["y"]),
    ]
    inputs = [value("x", 7, [2, 6]), value("shape", 7, [2]), value("both", 7, [2])]
    graph = helper.make_graph(nodes, "g", inputs, [value("y", 7, None)])
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 18)])


def test_a_bound_shape_makes_the_shapes_behind_it_known(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(reshaping(), path)
    values = {"shape": np.array([6, -1]), "both": np.array([1, 2])}
    model = load_clean(path, {}, values=values)
    assert [i.name for i in model.graph.input] == ["x"]
    assert value_shapes(model)["y"][0] == (6, 2)


def test_inputs_that_give_shapes_alone_are_found() -> None:
    assert shape_inputs(reshaping()) == {"shape"}


def test_shape_operands_are_operands_that_onnx_has() -> None:
    for kind, positions in SHAPE_OPERANDS.items():
        most = max(s.max_input for s in onnx.defs.get_all_schemas_with_history() if s.name == kind)
        assert max(positions) < most, kind
