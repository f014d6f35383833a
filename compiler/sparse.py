"""Sparse weights: made dense, as nothing behind the front end knows them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from veltair.compiler.checks.sizes import MOST_RANK
from veltair.compiler.checks.tensors import size_bytes
from veltair.compiler.nodes import AnyGraph, all_graphs, describe, sparse_tensors
from veltair.runtime.errors import InputError
from veltair.runtime.machine import available_memory_bytes

_GIB = 1 << 30


def make_dense(path: Path, model: onnx.ModelProto) -> None:
    """Puts dense tensors in the place of sparse ones; those of operators but `Constant` stay.

    Raises:
        InputError: one is not what ONNX calls a sparse tensor, or dense it is larger than memory.
    """
    for graph in (model.graph, *model.functions):
        for each in all_graphs(graph):
            _make_dense(path, each)


def _make_dense(path: Path, graph: AnyGraph) -> None:
    if isinstance(graph, onnx.GraphProto):
        for sparse in graph.sparse_initializer:
            graph.initializer.append(_dense(path, sparse, f"weight '{sparse.values.name}'"))
        del graph.sparse_initializer[:]
    for node in graph.node:
        for attribute in node.attribute:
            for sparse in sparse_tensors(attribute):
                dense = _dense(path, sparse, f"the weight of {describe(node)}")
                if node.op_type == "Constant":
                    attribute.CopyFrom(onnx.helper.make_attribute("value", dense))


def _dense(path: Path, sparse: onnx.SparseTensorProto, title: str) -> onnx.TensorProto:
    if problem := _problem(sparse):
        raise InputError(f"{path}: {title}, which is sparse: {problem}; export the model again")
    values = numpy_helper.to_array(sparse.values)
    at = numpy_helper.to_array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    dense[tuple(at.T) if at.ndim == 2 else np.unravel_index(at, dense.shape)] = values
    return numpy_helper.from_array(dense, sparse.values.name)


def _problem(sparse: onnx.SparseTensorProto) -> str:
    dims, values, indices = list(sparse.dims), sparse.values, sparse.indices
    if values.data_location or indices.data_location:
        return "it lies in another file"
    if min(dims, default=0) < 1 or len(dims) > MOST_RANK:
        return f"its shape is {dims}; it has 1 to {MOST_RANK} sizes, all of at least 1"
    if values.data_type == TensorProto.STRING or len(values.dims) != 1:
        return "its values are one row of numbers"
    needed = size_bytes(TensorProto(data_type=values.data_type, dims=dims))
    if needed > available_memory_bytes():
        return f"{dims} takes {needed / _GIB:.0f} GiB, more than this machine has"
    return _index_problem(dims, values.dims[0], indices)


def _index_problem(dims: list[int], count: int, indices: onnx.TensorProto) -> str:
    if indices.data_type != TensorProto.INT64:
        return "its indices are int64"
    at = numpy_helper.to_array(indices)
    if at.shape == (count, len(dims)):
        inside = np.all((at >= 0) & (at < np.array(dims)))
    elif at.shape == (count,):
        inside = np.all((at >= 0) & (at < math.prod(dims)))
    else:
        return f"{count} values have indices of shape {list(at.shape)}"
    return "" if inside else f"an index lies outside of {dims}"
