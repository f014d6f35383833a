"""Small ONNX models for the peers, and arrivals of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from veltair.eval.capacity.system import Candidate
from veltair.runtime.simulate.arrivals import Arrivals

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from onnx import NodeProto

WIDTH = 256


def chain(folder: Path, name: str, products: int, qos_ns: int = 100_000_000) -> Candidate:
    """A row of matrix products of one matrix, so that the time goes with their number."""
    from onnx import helper

    steps = ["data", *(f"step{i}" for i in range(1, products)), "result"]
    weight = np.eye(WIDTH, dtype=np.float32) / 2
    nodes = [
        helper.make_node("MatMul", [before, "weight"], [after]) for before, after in pairwise(steps)
    ]
    return _saved(folder, name, nodes, weight, (WIDTH, WIDTH), "float32", qos_ns)


def lookup(folder: Path, rows: int) -> Candidate:
    """Rows of a table, by an input of their numbers."""
    from onnx import helper

    nodes = [helper.make_node("Gather", ["weight", "data"], ["result"])]
    table = np.ones((rows, WIDTH), np.float32)
    return _saved(folder, "lookup", nodes, table, (WIDTH,), "int64", 100_000_000)


def _saved(
    folder: Path,
    name: str,
    nodes: Sequence[NodeProto],
    weight: NDArray[np.float32],
    shape: tuple[int, ...],
    dtype: str,
    qos_ns: int,
) -> Candidate:
    import onnx
    from onnx import helper, numpy_helper

    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    data = helper.make_tensor_value_info("data", kind, shape)
    result = helper.make_tensor_value_info("result", onnx.TensorProto.FLOAT, (WIDTH, WIDTH))
    graph = helper.make_graph(
        nodes, name, [data], [result], [numpy_helper.from_array(weight, "weight")]
    )
    path = folder / f"{name}.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )
    return Candidate(
        name=name,
        onnx=path,
        artifact=None,
        shapes={"data": shape},
        dtypes={"data": dtype},
        qos_ns=qos_ns,
    )


def arrivals(times_ns: Sequence[int], models: Sequence[int]) -> Arrivals:
    """Arrivals as given."""
    return Arrivals(time_ns=np.array(times_ns, np.int64), model=np.array(models, np.int32))
