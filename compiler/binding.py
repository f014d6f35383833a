"""Binds shapes and values to a model's inputs: what is compiled has fixed shapes.

A bound value becomes a constant: what depends on it alone is folded, and shapes, axes and counts
that it gives are known. The artifact has no such input.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from veltair.runtime.errors import InputError

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
_OLDEST_IR = 4  # the first format whose initializers need not be inputs
_FLOAT_DIMS_HINT = 224  # what an unknown image side is shown as in the example of a remedy
_MOST_TOLD = 8  # numbers of a value in a message


def bind(
    path: Path, model: onnx.ModelProto, shapes: Mapping[str, Shape], values: Mapping[str, Array]
) -> None:
    """Leaves the model with inputs of static shapes only, none of them an initializer.

    Args:
        path: of the model, for messages.
        model: is changed.
        shapes: shape of each input that has symbolic dimensions.
        values: of inputs that become constants; of the input's type and shape, or numbers that
            this type holds, as many as the shape has elements.

    Raises:
        InputError: an input's shape isn't known, or a shape or a value doesn't fit its input.
    """
    _drop_initializer_inputs(model)
    inputs = {i.name: i for i in model.graph.input}
    _check_known("shape", shapes, inputs)
    _check_known("value", values, inputs)
    for name, value in inputs.items():
        if not value.type.HasField("tensor_type"):
            raise InputError(f"{path}: input '{name}' is not a tensor; Veltair takes tensors only")
        if name in shapes:
            _bind_shape(path, value, shapes[name])
        elif name not in values:
            _require_static(path, value)
    for name, data in values.items():
        model.graph.initializer.append(_constant(path, inputs[name], data))
        model.graph.input.remove(inputs[name])
    if shapes or values:  # what was inferred for the symbolic shape no longer holds
        del model.graph.value_info[:]
        for output in model.graph.output:
            if output.type.HasField("tensor_type"):
                output.type.tensor_type.ClearField("shape")


def _check_known(option: str, given: Iterable[str], inputs: Collection[str]) -> None:
    for name in given:
        if name not in inputs:
            raise InputError(
                f"--{option} {name}=...: the model has no such input; its inputs are "
                f"{', '.join(inputs) or 'none'}"
            )


def _drop_initializer_inputs(model: onnx.ModelProto) -> None:
    weights = {i.name for i in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in weights]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    # Older versions of the format want each initializer among the inputs.
    model.ir_version = max(model.ir_version, _OLDEST_IR)


def dims(value: onnx.ValueInfoProto) -> list[int | str]:
    """The sizes of a tensor; a symbolic one by its name, or `?` where it has none."""
    return [
        int(d.dim_value) if d.HasField("dim_value") else (d.dim_param or "?")
        for d in value.type.tensor_type.shape.dim
    ]


def _fits(value: onnx.ValueInfoProto, shape: Shape) -> bool:
    """Whether the input can have the shape."""
    declared = dims(value)
    return not value.type.tensor_type.HasField("shape") or (
        len(declared) == len(shape)
        and all(isinstance(d, str) or d == s for d, s in zip(declared, shape, strict=True))
    )


def _bind_shape(path: Path, value: onnx.ValueInfoProto, shape: Shape) -> None:
    tensor = value.type.tensor_type
    if not _fits(value, shape):
        raise InputError(
            f"{path}: --shape {value.name}={','.join(map(str, shape))} doesn't fit the input, "
            f"which is {dims(value)}; only its symbolic dimensions can be chosen"
        )
    tensor.shape.CopyFrom(onnx.TensorShapeProto())  # there, even without dimensions
    for size in shape:
        tensor.shape.dim.add().dim_value = size


def _require_static(path: Path, value: onnx.ValueInfoProto) -> None:
    declared = dims(value)
    if not value.type.tensor_type.HasField("shape"):
        raise InputError(
            f"{path}: input '{value.name}' has no shape; give one, e.g. "
            f"--shape {value.name}=1,3,224,224"
        )
    if any(isinstance(d, str) for d in declared):
        example = [
            d if isinstance(d, int) else (1 if i == 0 else _FLOAT_DIMS_HINT)
            for i, d in enumerate(declared)
        ]
        raise InputError(
            f"{path}: input '{value.name}' has symbolic dimensions {declared}; compiled models "
            f"have fixed shapes: give one, e.g. --shape {value.name}={','.join(map(str, example))}"
        )


def _constant(path: Path, value: onnx.ValueInfoProto, data: Array) -> onnx.TensorProto:
    """The initializer that takes the input's place."""
    elem = value.type.tensor_type.elem_type
    dtype = helper.tensor_dtype_to_np_dtype(elem)
    shape = _shape_of(value, data)
    typed = _cast(data, dtype)
    if shape is None or typed is None:
        declared = dims(value) if value.type.tensor_type.HasField("shape") else "of any shape"
        told = ",".join(map(str, data.ravel()[:_MOST_TOLD].tolist()))
        more = ",..." if data.size > _MOST_TOLD else ""
        raise InputError(
            f"{path}: --value {value.name}={told}{more} doesn't fit the input, which is "
            f"{onnx.TensorProto.DataType.Name(elem).lower()} {declared}; give a number that its "
            "type holds for each of its elements"
        )
    return numpy_helper.from_array(np.ascontiguousarray(typed).reshape(shape), value.name)


def _shape_of(value: onnx.ValueInfoProto, data: Array) -> Shape | None:
    """The shape that the input takes for these numbers; None where they don't fit."""
    if _fits(value, data.shape):
        return data.shape
    if _fits(value, (data.size,)):
        return (data.size,)
    sizes = [d for d in dims(value) if isinstance(d, int)]
    static = len(sizes) == len(dims(value)) and math.prod(sizes) == data.size
    return tuple(sizes) if static else None


def _cast(data: Array, dtype: np.dtype[Any]) -> Array | None:
    """The numbers in another type; None where it can't hold them, but for a float's rounding."""
    if data.dtype == dtype:
        return data
    if "O" in (dtype.kind, data.dtype.kind):  # strings, integers beyond 64 bits
        return None
    with np.errstate(all="ignore"):
        cast = data.astype(dtype)
    if dtype.kind in "biu":
        return cast if np.array_equal(cast.astype(data.dtype), data) else None
    overflowed = np.isfinite(data) & ~np.isfinite(cast.astype(np.float64))
    return None if overflowed.any() else cast
