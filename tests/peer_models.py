"""Small ONNX models for the peers, and arrivals of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from veltair.eval.capacity.system import Candidate
from veltair.runtime.simulate.arrivals import Arrivals

WIDTH = 256


def chain(folder: Path, name: str, products: int, qos_ns: int = 100_000_000) -> Candidate:
    """A row of matrix products of one matrix, so that the time goes with their number."""
    import onnx
    from onnx import helper, numpy_helper

    steps = ["data", *(f"step{i}" for i in range(1, products)), "result"]
    weight = np.eye(WIDTH, dtype=np.float32) / 2
    data, result = (
        helper.make_tensor_value_info(end, onnx.TensorProto.FLOAT, (WIDTH, WIDTH))
        for end in ("data", "result")
    )
    nodes = [
        helper.make_node("MatMul", [before, "weight"], [after]) for before, after in pairwise(steps)
    ]
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
        shapes={"data": (WIDTH, WIDTH)},
        dtypes={"data": "float32"},
        qos_ns=qos_ns,
    )


def arrivals(times_ns: Sequence[int], models: Sequence[int]) -> Arrivals:
    """Arrivals as given."""
    return Arrivals(time_ns=np.array(times_ns, np.int64), model=np.array(models, np.int32))
