"""A model's constants: whether type, shape and data fit, and whether they are numbers."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from veltair.compiler.checks.sizes import MOST_RANK, is_countable
from veltair.compiler.nodes import AnyGraph, describe, sparse_tensors, subgraphs
from veltair.runtime.errors import InputError

_BITS = {
    **dict.fromkeys((TensorProto.UINT4, TensorProto.INT4, TensorProto.FLOAT4E2M1), 4),
    **{value: 2 for name, value in TensorProto.DataType.items() if name in ("UINT2", "INT2")},
    **{value: 6 for name, value in TensorProto.DataType.items() if name.startswith("FLOAT6")},
}
_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
_COMPLEX = (TensorProto.COMPLEX64, TensorProto.COMPLEX128)


@dataclass(frozen=True, kw_only=True)
class Constant:
    """A constant of a model, and who it belongs to.

    Attributes:
        name: an initializer's, or of what a `Constant` node makes.
        tensor: itself.
        owner: for a message: the node that has it or reads it.
        reader: the first node that reads it; None where none does.
    """

    name: str
    tensor: onnx.TensorProto
    owner: str
    reader: onnx.NodeProto | None

    @property
    def title(self) -> str:
        """Names it for a message."""
        return f"weight '{self.name}' of {self.owner}"


def constants_of(model: onnx.ModelProto, unread_by: Collection[str] = ()) -> Iterator[Constant]:
    """All constants of a model: initializers, and tensors that are attributes.

    Args:
        model: with its functions and subgraphs.
        unread_by: operators that don't count as readers.
    """
    for graph in (model.graph, *model.functions):
        yield from _constants_of(graph, {}, unread_by)


def _constants_of(
    graph: AnyGraph, outer: dict[str, onnx.NodeProto], unread_by: Collection[str]
) -> Iterator[Constant]:
    readers = outer | _readers(graph, unread_by)
    if isinstance(graph, onnx.GraphProto):
        for tensor in graph.initializer:
            yield _constant(tensor.name, tensor, readers, None)
        for sparse in graph.sparse_initializer:
            for part in (sparse.values, sparse.indices):
                yield _constant(sparse.values.name, part, readers, None)
    for node in graph.node:
        name = node.output[0] if len(node.output) else node.name
        for attribute in node.attribute:
            for tensor in _held(attribute):
                yield _constant(name, tensor, readers, node)
        for inner in subgraphs(node):
            yield from _constants_of(inner, readers, unread_by)


def _held(attribute: onnx.AttributeProto) -> list[onnx.TensorProto]:
    """The tensors of an attribute; numbers that are a constant's are one."""
    held = [*attribute.tensors, *([attribute.t] if attribute.HasField("t") else [])]
    for sparse in sparse_tensors(attribute):
        held += [sparse.values, sparse.indices]
    if attribute.name in ("value_float", "value_floats"):
        numbers = [*attribute.floats, *([attribute.f] if attribute.HasField("f") else [])]
        held.append(numpy_helper.from_array(np.array(numbers, np.float32)))
    return held


def _readers(graph: AnyGraph, unread_by: Collection[str]) -> dict[str, onnx.NodeProto]:
    """The first node that reads each name, in the graph or within its subgraphs."""
    readers: dict[str, onnx.NodeProto] = {}
    for node in graph.node:
        for name in node.input if node.op_type not in unread_by else ():
            readers.setdefault(name, node)
        for inner in subgraphs(node):
            for name, reader in _readers(inner, unread_by).items():
                readers.setdefault(name, reader)
    return readers


def _constant(
    name: str,
    tensor: onnx.TensorProto,
    readers: dict[str, onnx.NodeProto],
    node: onnx.NodeProto | None,
) -> Constant:
    reader = readers.get(name)
    named = node or reader
    owner = describe(named) if named else "no node"
    return Constant(name=name, tensor=tensor, owner=owner, reader=reader)


def size_bytes(tensor: onnx.TensorProto) -> int:
    """Of a tensor's elements, as raw data has them."""
    bits = _BITS.get(tensor.data_type)
    if bits is None:
        bits = 8 * int(helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
    return -(-int(math.prod(tensor.dims)) * bits // 8)


def check_tensors(path: Path, model: onnx.ModelProto) -> None:
    """Checks what each constant says of itself; of data in other files, nothing.

    Raises:
        InputError: a type or a size that there isn't, or data that doesn't fit it.
    """
    for constant in constants_of(model):
        if problem := _problem(constant.tensor):
            raise InputError(f"{path}: {constant.title}: {problem}; export the model again")


def _problem(tensor: onnx.TensorProto) -> str:
    """What is wrong with a tensor; empty where nothing is."""
    elem, dims = tensor.data_type, list(tensor.dims)
    if elem == TensorProto.UNDEFINED or elem not in TensorProto.DataType.values():
        return f"it is of type {elem}, which ONNX {onnx.__version__} doesn't have"
    if min(dims, default=0) < 0:
        return f"its shape is {dims}; no size is negative"
    if len(dims) > MOST_RANK:
        return f"it has {len(dims)} dimensions; NumPy has {MOST_RANK} at most"
    if not is_countable(dims):
        return f"its shape {dims} has more elements than 64 bits count"
    return _data_problem(tensor)


def _data_problem(tensor: onnx.TensorProto) -> str:
    shape = f"{TensorProto.DataType.Name(tensor.data_type).lower()}{list(tensor.dims)}"
    is_external = tensor.data_location == TensorProto.EXTERNAL
    if tensor.data_type == TensorProto.STRING and (is_external or tensor.HasField("raw_data")):
        return "strings can't be raw data, nor lie in another file"
    if tensor.HasField("segment"):
        return "it is one segment of a tensor, which nothing reads"
    if is_external:
        return ""
    if tensor.HasField("raw_data"):
        wanted, found = size_bytes(tensor), len(tensor.raw_data)
        return "" if found == wanted else f"it has {found} bytes of data; {shape} takes {wanted}"
    wanted = _field_entries(tensor)
    used = helper.tensor_dtype_to_field(tensor.data_type)
    found = len(getattr(tensor, used))
    if found != wanted:
        return f"it has {found} elements in {used}; {shape} takes {wanted}"
    other = next((name for name in _FIELDS if name != used and len(getattr(tensor, name))), None)
    return f"it has elements in {other}, where {shape} has them in {used}" if other else ""


def _field_entries(tensor: onnx.TensorProto) -> int:
    """How many entries a tensor has in its typed field, where it has no raw data."""
    bits = _BITS.get(tensor.data_type, 8)
    if bits < 8:
        return size_bytes(tensor)
    return int(math.prod(tensor.dims)) * (2 if tensor.data_type in _COMPLEX else 1)


def check_numbers(path: Path, model: onnx.ModelProto) -> None:
    """Refuses weights that are NaN: whatever reads one gives NaN, whatever it is given.

    Infinities pass: a mask adds them, and a bound may be one. So does NaN that `Where` chooses, as
    what stands for a missing value, and what no node reads.

    Raises:
        InputError: a constant that a node reads has NaN among its elements.
    """
    for constant in constants_of(model, unread_by=("Where",)):
        if constant.reader is not None and (count := _nans(constant.tensor)):
            raise InputError(
                f"{path}: weight '{constant.name}' of {describe(constant.reader)}: {count} of "
                f"{math.prod(constant.tensor.dims)} elements are NaN, and so would be what the "
                "model gives; export it from weights that are numbers"
            )


def _nans(tensor: onnx.TensorProto) -> int:
    if tensor.data_type == TensorProto.STRING or not _is_floating(tensor.data_type):
        return 0
    data = numpy_helper.to_array(tensor)
    with np.errstate(invalid="ignore"):
        # The least element is NaN if any is: no array of truth values, which may be large.
        if data.size == 0 or not np.isnan(np.min(data)):
            return 0
    return int(np.count_nonzero(np.isnan(data)))


def _is_floating(elem: int) -> bool:
    return str(TensorProto.DataType.Name(elem)).startswith(("FLOAT", "DOUBLE", "BFLOAT"))
