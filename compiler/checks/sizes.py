"""Tensors that no memory holds, found before something tries to make them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import onnx

from veltair.compiler.nodes import describe
from veltair.runtime.errors import InputError
from veltair.runtime.machine import available_memory_bytes

_MOST_ELEMENTS = ((1 << 63) - 1) // 16  # of the longest, two double numbers
MOST_RANK = 64  # NumPy's
_GIB = 1 << 30

_Known = tuple[tuple[int, ...], int]  # shape and element type


def is_countable(shape: Iterable[int]) -> bool:
    """Whether NumPy can have this shape, of any type: it counts bytes, leaving sizes of 0 out."""
    return math.prod(size for size in shape if size) <= _MOST_ELEMENTS


def check_declared(path: Path, model: onnx.ModelProto) -> None:
    """Checks types and shapes that the model states of its inputs, outputs and values.

    Raises:
        InputError: there is no such type or no such shape.
    """
    graph = model.graph
    for kind, values in (
        ("input", graph.input),
        ("output", graph.output),
        ("value", graph.value_info),
    ):
        for value in values:
            if problem := _problem(value.type):
                raise InputError(f"{path}: {kind} '{value.name}' {problem}; export the model again")


def _problem(kind: onnx.TypeProto) -> str:
    """What is wrong with a type; empty where nothing is."""
    holder = kind.WhichOneof("value")
    if holder in ("sequence_type", "optional_type"):
        return _problem(getattr(kind, holder).elem_type)
    if holder not in ("tensor_type", "sparse_tensor_type"):
        return ""
    tensor = getattr(kind, holder)
    if tensor.elem_type not in onnx.TensorProto.DataType.values():
        return f"is of type {tensor.elem_type}, which ONNX {onnx.__version__} doesn't have"
    sizes = [d.dim_value for d in tensor.shape.dim]
    if min(sizes, default=0) < 0:
        return f"has the shape {sizes}; no size is negative"
    if len(sizes) > MOST_RANK:
        return f"has {len(sizes)} dimensions; NumPy has {MOST_RANK} at most"
    return ""


def check_sizes(path: Path, model: onnx.ModelProto, shapes: Mapping[str, _Known]) -> None:
    """Holds each tensor alone against the memory that there is.

    Args:
        path: of the model, for the message.
        model: what makes the tensors.
        shapes: static shape and ONNX element type of those that have one.

    Raises:
        InputError: one can't be held.
    """
    available = available_memory_bytes()
    makers = {name: node for node in model.graph.node for name in node.output}
    for name, (shape, elem) in shapes.items():
        if rule := _rule(shape, elem, available):
            what = f"{describe(makers[name])}: its output" if name in makers else "input or weight"
            raise InputError(
                f"{path}: {what} '{name}' has the shape {list(shape)}: {rule}; give inputs a "
                "smaller --shape, or correct the constants that the shape comes from"
            )


def _rule(shape: tuple[int, ...], elem: int, available: int) -> str:
    """What a tensor breaks; empty where it breaks nothing."""
    if elem not in onnx.TensorProto.DataType.values():
        return f"it is of type {elem}, which ONNX {onnx.__version__} doesn't have"
    if min(shape, default=0) < 0:
        return "no size is negative"
    if len(shape) > MOST_RANK:
        return f"NumPy has {MOST_RANK} dimensions at most"
    if not is_countable(shape):
        return "it has more elements than 64 bits count"
    bytes_ = math.prod(shape) * _item_bytes(elem)
    if bytes_ > available:
        return f"it takes {bytes_ / _GIB:.0f} GiB, and this machine has {available / _GIB:.1f}"
    return ""


def _item_bytes(elem: int) -> int:
    if elem in (onnx.TensorProto.STRING, onnx.TensorProto.UNDEFINED):
        return 1
    return int(onnx.helper.tensor_dtype_to_np_dtype(elem).itemsize)
