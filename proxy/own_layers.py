"""The layers that calibration measures where it is given no artifacts.

Twelve layers of the shapes that image networks and a transformer's first and last have: arithmetic
on little memory, weights from half a megabyte to sixteen, and the two that read all of it once.
They are compiled on the spot, by the rules that choose tiles, without a search.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from veltair.compiler.pipeline import CompileOptions, compile_model
from veltair.compiler.progress import Progress
from veltair.compiler.target_options import choose_isa
from veltair.runtime.machine import usable_cores

NAME = "calibration"
_OPSET, _IR_VERSION = 17, 8
_SIDE, _CHANNELS = 56, 64
# Channels written, size of the window, stride, groups: each reads what the one before it wrote.
_CONVOLUTIONS = (
    (64, 3, 1, 1),
    (256, 1, 1, 1),
    (128, 1, 2, 1),
    (128, 3, 1, 1),
    (512, 1, 1, 1),
    (512, 3, 2, 512),
    (1024, 1, 1, 1),
    (512, 1, 2, 1),
    (512, 3, 1, 1),
)
_DENSE = (2048, 2048, 1000)  # columns


def compile_own_layers(folder: Path, progress: Progress) -> Path:
    """Writes and compiles the layers.

    Args:
        folder: that gets the ONNX file and the artifact.
        progress: hears what is done.

    Returns:
        The artifact's folder.
    """
    path = folder / f"{NAME}.onnx"
    onnx.save(_network(), path)
    options = CompileOptions(
        model=path,
        repository=folder,
        name=NAME,
        version=1,
        qos_ns=0,
        shapes={},
        isa=choose_isa("auto"),
        jobs=usable_cores(),
        force=False,
        profiled=False,
    )
    compile_model(options, progress)
    return options.target


def _network() -> onnx.ModelProto:
    draw = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def add(name: str, op: str, read: str, shape: tuple[int, ...], **attributes: object) -> str:
        fan_in = int(np.prod(shape[1:])) if op == "Conv" else shape[0]
        values = draw.standard_normal(shape, np.float32) / np.float32(np.sqrt(fan_in))
        weights.append(numpy_helper.from_array(values, f"{name}.weight"))
        nodes.append(
            helper.make_node(op, [read, f"{name}.weight"], [name], name=name, **attributes)
        )
        return name

    last, channels = "image", _CHANNELS
    for index, (wide, window, stride, groups) in enumerate(_CONVOLUTIONS):
        shape = (wide, channels // groups, window, window)
        padding = [window // 2] * 4
        last = add(
            f"conv{index}", "Conv", last, shape, strides=[stride] * 2, pads=padding, group=groups
        )
        channels = wide
    nodes.append(helper.make_node("GlobalAveragePool", [last], ["mean"], name="mean"))
    nodes.append(helper.make_node("Flatten", ["mean"], ["flat"], name="flat"))
    last = "flat"
    for index, wide in enumerate(_DENSE):
        last = add(f"dense{index}", "MatMul", last, (channels, wide))
        channels = wide
    graph = helper.make_graph(
        nodes,
        NAME,
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, _CHANNELS, _SIDE, _SIDE])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, [1, channels])],
        weights,
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION
    )
