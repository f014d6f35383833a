"""A repository of small models for tests that serve: compiled once a session."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from veltair.eval.null_model import NULL_MODEL, compile_quietly, null_model
from veltair.runtime.manifest import WEIGHTS_FILE

PAIR_SHAPES = {"a": (2, 3), "b": (4,)}
TYPES = {
    "f64": TensorProto.DOUBLE,
    "f16": TensorProto.FLOAT16,
    "i64": TensorProto.INT64,
    "i32": TensorProto.INT32,
    "i16": TensorProto.INT16,
    "i8": TensorProto.INT8,
    "u64": TensorProto.UINT64,
    "u32": TensorProto.UINT32,
    "u16": TensorProto.UINT16,
    "u8": TensorProto.UINT8,
    "b": TensorProto.BOOL,
}


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def pair(factor: float) -> onnx.ModelProto:
    """Two inputs, two outputs: `x` is `a` plus 1, `y` is `b` times `factor`."""
    value = helper.make_tensor_value_info
    return _model(
        helper.make_graph(
            [
                helper.make_node("Add", ["a", "one"], ["x"], name="plus"),
                helper.make_node("Mul", ["b", "factor"], ["y"], name="times"),
            ],
            "pair",
            [value(name, TensorProto.FLOAT, shape) for name, shape in PAIR_SHAPES.items()],
            [value(o, TensorProto.FLOAT, PAIR_SHAPES[i]) for i, o in ("ax", "by")],
            [
                numpy_helper.from_array(np.ones((1,), np.float32), "one"),
                numpy_helper.from_array(np.full((1,), factor, np.float32), "factor"),
            ],
        )
    )


def types() -> onnx.ModelProto:
    """One input of each type: numbers come back added to themselves, truth values negated."""
    nodes = [
        helper.make_node("Not", [n], [f"{n}_out"], name=n)
        if n == "b"
        else helper.make_node("Add", [n, n], [f"{n}_out"], name=n)
        for n in TYPES
    ]
    return _model(
        helper.make_graph(
            nodes,
            "types",
            [helper.make_tensor_value_info(n, t, (3,)) for n, t in TYPES.items()],
            [helper.make_tensor_value_info(f"{n}_out", t, (3,)) for n, t in TYPES.items()],
        )
    )


def write_repository(repository: Path) -> Path:
    """Writes `photo`, `pair` in versions 1 and 2, `types`, and `damaged` with a changed byte."""
    repository.mkdir()
    compile_quietly(repository, NULL_MODEL, null_model(), qos_ms=50)
    compile_quietly(repository, "pair", pair(2.0))
    compile_quietly(repository, "pair", pair(3.0), version=2)
    compile_quietly(repository, "types", types())
    shutil.copytree(repository / "pair" / "2", repository / "damaged" / "1")
    manifest = repository / "damaged" / "1" / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"pair"', b'"damaged"'))
    weights = repository / "damaged" / "1" / WEIGHTS_FILE
    data = bytearray(weights.read_bytes())
    data[0] ^= 1
    weights.write_bytes(data)
    return repository
