"""A network that does next to nothing to an input of a photograph's size.

What is measured with it is all that surrounds a model: the network protocol, the queue, waking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
from onnx import TensorProto, helper

from veltair.compiler.pipeline import CompileOptions, compile_model
from veltair.compiler.progress import Silent
from veltair.compiler.target_options import choose_isa

if TYPE_CHECKING:
    from pathlib import Path

NULL_MODEL = "photo"
PHOTO_SHAPE = (1, 3, 224, 224)


def null_model() -> onnx.ModelProto:
    """Returns the network: the mean of each channel of `data`, float32[1, 3], as `scores`."""
    graph = helper.make_graph(
        [
            helper.make_node("GlobalAveragePool", ["data"], ["means"], name="pool"),
            helper.make_node("Flatten", ["means"], ["scores"], name="flat"),
        ],
        NULL_MODEL,
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, PHOTO_SHAPE)],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, (1, 3))],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def compile_quietly(
    repository: Path, name: str, model: onnx.ModelProto, version: int = 1, qos_ms: int = 0
) -> None:
    """Compiles a small model into a repository, for this CPU."""
    isa = choose_isa("auto")
    path = repository.parent / f"{name}-{version}.onnx"
    onnx.save(model, path)
    options = CompileOptions(
        model=path,
        repository=repository,
        name=name,
        version=version,
        qos_ns=qos_ms * 1_000_000,
        shapes={},
        isa=isa,
        jobs=2,
        force=False,
    )
    compile_model(options, Silent())
