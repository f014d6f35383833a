"""Operators of our own against ONNX's reference implementation, at what ONNX's tests leave out."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from veltair.compiler.backend import VeltairBackend
from veltair.compiler.binding import Array
from veltair.compiler.te_operators.resize import Axis, Mode, taps
from veltair.runtime.artifact import available_isa

compiled = pytest.mark.skipif(available_isa() is None, reason="this CPU can't run kernels")
X = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)
BYTES = np.random.default_rng(1).integers(0, 256, (2, 4, 7, 6)).astype(np.uint8)
FILTERS = np.random.default_rng(2).integers(0, 256, (4, 2, 3, 2)).astype(np.uint8)


def ints(*values: Any) -> Array:  # noqa: ANN401 (integers, or rows of them)
    return np.array(values, np.int64)


CASES: dict[str, tuple[str, list[Array | None], dict[str, Any]]] = {
    "resize_cubic_fp16": (
        "Resize",
        [X.astype(np.float16), None, np.float32([1, 1, 1.7, 0.6])],
        {"mode": "cubic", "coordinate_transformation_mode": "half_pixel"},
    ),
    "resize_nearest_int": (
        "Resize",
        [(X * 9).astype(np.int32), None, None, ints(2, 3, 9, 2)],
        {"mode": "nearest", "nearest_mode": "ceil"},
    ),
    "pad_dynamic_value": ("Pad", [X, ints(0, 1, 0, 2, 1, 0, 2, 1), np.float32(7)], {}),
    "pad_wrap": ("Pad", [X, ints(0, 0, 3, 1, 0, 0, 2, 4)], {"mode": "wrap"}),
    "cumsum": ("CumSum", [X, np.array(2)], {"reverse": 1, "exclusive": 1}),
    "l1": ("LpNormalization", [np.maximum(X, 0) * [1, 1, 0, 1, 1]], {"axis": 2, "p": 1}),
    "layer_norm": (
        "LayerNormalization",
        [X, np.ones((4, 5), np.float32) * 3, np.ones((4, 5), np.float32)],
        {"axis": 2},
    ),
    "one_hot": (
        "OneHot",
        [ints(0, -1, 3, 7), np.array(4), np.float32([-1, 2])],
        {"axis": 0},
    ),
    "pow": ("Pow", [np.int32([2, -3, 0]), np.float32([3, 2, 0])], {}),
    "is_inf": ("IsInf", [np.float32([1, np.inf, -np.inf, np.nan])], {"detect_positive": 0}),
    "reverse": ("ReverseSequence", [X[0], ints(1, 3, 2, 3)], {"time_axis": 0, "batch_axis": 1}),
    "all_true": ("ReduceMin", [X > -1, ints(-1, 1)], {"keepdims": 0}),
    "conv_integer": (
        "ConvInteger",
        [BYTES, FILTERS, np.uint8(9), np.uint8([0, 7, 130, 255])],
        {"group": 2, "strides": [2, 1], "dilations": [1, 2], "pads": [1, 2, 0, 3]},
    ),
    "conv_integer_same": (
        "ConvInteger",
        [BYTES.view(np.int8), FILTERS, None, np.uint8([3, 0, 1, 2])],
        {"group": 2, "auto_pad": "SAME_LOWER", "strides": [2, 2]},
    ),
    "dft": ("DFT", [X[..., :2], None, np.array(1)], {}),
    "irfft": ("DFT", [X[..., :2], np.array(6), np.array(2)], {"inverse": 1, "onesided": 1}),
    "shift": (
        "BitShift",
        [np.int32([-8, 8, 8, -8]), np.int32([1, 40, -1, 40])],
        {"direction": "RIGHT"},
    ),
    "mod": ("Mod", [np.float32([-3, 3, 5.5, 0]), np.float32([np.inf, -2, 2, -np.inf])], {}),
    "bits": ("BitCast", [X], {"to": onnx.TensorProto.INT32}),
    "eye": ("EyeLike", [np.zeros((3, 5), np.int32)], {"k": -1, "dtype": onnx.TensorProto.DOUBLE}),
}


def model_of(
    node: onnx.NodeProto, names: list[str], arrays: list[Array], result: Array | None = None
) -> onnx.ModelProto:
    """A model of a node, of such inputs; a result has the shape and type of its output."""
    ends = [_value(name, array) for name, array in zip(names, arrays, strict=True)]
    (name,) = node.output
    end = onnx.ValueInfoProto(name=name) if result is None else _value(name, result)
    return onnx.shape_inference.infer_shapes(
        helper.make_model(helper.make_graph([node], "g", ends, [end]))
    )


def _value(name: str, array: Array) -> onnx.ValueInfoProto:
    elem = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, elem, array.shape)


# Operator, inputs, attributes; the index that is out of bounds, and what it stands for then.
BEYOND: dict[str, tuple[str, list[Array], dict[str, Any], Array]] = {
    "gather_elements": (
        "GatherElements",
        [X[0, 0, :1], ints([5, -6, 1])],
        {"axis": 1},
        ints([4, -5, 1]),
    ),
    "gather_nd": (
        "GatherND",
        [X, ints([0, 3], [-3, 1], [1, 2])],
        {},
        ints([0, 2], [-2, 1], [1, 2]),
    ),
    "gather_nd_of_batches": (
        "GatherND",
        [X, ints([3, 4], [-4, -5])],
        {"batch_dims": 1},
        ints([2, 3], [-3, -4]),
    ),
    "scatter_elements": (
        "ScatterElements",
        [X[0, 0], ints([4], [-5]), np.float32([[7], [8]])],
        {"axis": 0},
        ints([3], [-4]),
    ),
    "scatter_nd": (
        "ScatterND",
        [X[0, 0], ints([4, 0], [0, -6]), np.float32([7, 8])],
        {},
        ints([3, 0], [0, -5]),
    ),
    "max_unpool": (
        "MaxUnpool",
        [X[:1, :1, :2, :2], ints([[[16, -1], [5, 6]]]).reshape(1, 1, 2, 2)],
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        ints([[[15, 0], [5, 6]]]).reshape(1, 1, 2, 2),
    ),
    "reverse": (
        "ReverseSequence",
        [X[0], ints(4, -1, 2, 3)],
        {"time_axis": 0, "batch_axis": 1},
        ints(3, 0, 2, 3),
    ),
}


@compiled
@pytest.mark.parametrize("case", BEYOND)
def test_an_index_out_of_bounds_is_the_nearest_within(case: str) -> None:
    """Otherwise a kernel reads or writes beyond its tensors, as a client bids it."""
    kind, arrays, attributes, nearest = BEYOND[case]
    names = [f"i{n}" for n in range(len(arrays))]
    node = helper.make_node(kind, names, ["y"], **attributes)
    (expected,) = ReferenceEvaluator(model_of(node, names, arrays)).run(
        None, dict(zip(names, [arrays[0], nearest, *arrays[2:]], strict=True))
    )
    rep = VeltairBackend.prepare(model_of(node, names, arrays, expected))
    (y,) = rep.run(arrays)
    np.testing.assert_array_equal(y, expected)
    assert not any(layer.fallback for m in rep.manifests for layer in m.layers)


@compiled
@pytest.mark.parametrize("case", CASES)
def test_it_computes_what_onnx_defines(case: str) -> None:
    kind, given, attributes = CASES[case]
    names = [f"i{n}" if array is not None else "" for n, array in enumerate(given)]
    arrays = [array.astype(array.dtype) for array in given if array is not None]
    if case == "l1":
        arrays = [array.astype(np.float32) for array in arrays]
    node = helper.make_node(kind, names, ["y"], **attributes)
    read = [name for name in names if name]
    inputs = dict(zip(read, arrays, strict=True))
    (expected,) = ReferenceEvaluator(model_of(node, read, arrays)).run(None, inputs)
    rep = VeltairBackend.prepare(model_of(node, read, arrays, expected))
    (y,) = rep.run(arrays)
    assert y.dtype == expected.dtype
    tolerance = 2e-2 if y.dtype == np.float16 else 1e-5
    assert np.allclose(y, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    assert not any(layer.fallback for m in rep.manifests for layer in m.layers)


@compiled
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
@pytest.mark.parametrize(("kind", "attributes"), [("Div", {}), ("Mod", {}), ("Mod", {"fmod": 1})])
def test_a_division_that_processors_trap(
    kind: str, attributes: dict[str, Any], dtype: type[np.integer[Any]]
) -> None:
    least = int(np.iinfo(dtype).min)
    x = np.array([least, 7, 7, 100, least, 9], dtype)
    y = np.array([0, 0, 2, 7, -1 if least else 3, -4 if least else 4], dtype)
    expected = {
        "Div": [0, 0, 3, 14, least, -2 if least else 2],
        "Mod": [0, 0, 1, 2, 0, 1 if not least or attributes else -3],
    }[kind]
    node = helper.make_node(kind, ["x", "y"], ["z"], **attributes)
    rep = VeltairBackend.prepare(model_of(node, ["x", "y"], [x, y], x))
    (z,) = rep.run([x, y])
    assert z.tolist() == expected
    assert not any(layer.fallback for m in rep.manifests for layer in m.layers)


def test_an_axis_that_stays_takes_each_element_once() -> None:
    for kind in ("nearest", "linear", "cubic"):
        mode = Mode(
            kind=kind,
            coordinates="half_pixel",
            rounding="floor",
            cubic_a=-0.75,
            exclude_outside=False,
            antialias=False,
        )
        places, weights = taps(Axis(size=4, out=4, scale=1.0), mode)
        assert places.tolist() == [[0], [1], [2], [3]]
        assert (weights == 1).all()


@compiled
def test_an_inverse_transform_is_nearer_to_the_truth_than_single_precision() -> None:
    signal = np.arange(100, dtype=np.float32).reshape(1, 10, 10, 1) * np.float32([1, 0])
    node = helper.make_node("DFT", ["x", "", "axis"], ["y"], inverse=1)
    (y,) = VeltairBackend.run_node(
        node, [signal, np.int64(1)], outputs_info=[(np.dtype(np.float32), signal.shape)]
    )
    truth = np.fft.ifft(signal[..., 0].astype(np.complex128), axis=1)
    assert np.abs(y[..., 0] - truth.real).max() <= np.finfo(np.float32).eps * 100
    assert np.abs(y[..., 1] - truth.imag).max() <= np.finfo(np.float32).eps * 10
    zeros = np.abs(truth.imag) < 1e-12
    assert zeros.any()
    assert np.abs(y[..., 1][zeros]).max() < 1e-12
