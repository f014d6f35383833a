"""An example of a layer to measure and check its candidates on: data, weights, expected output.

The expected output comes from ONNX Runtime's convolution and matrix product and NumPy's arithmetic,
not from a kernel of ours, so that candidates that are wrong alike are found too.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from scipy.special import erf, expit

from veltair.compiler.graph import Array
from veltair.compiler.kernels.spec import ConvSpec, Step, View
from veltair.compiler.search.key import Spec

_OPSET = 17
_IR_VERSION = 9


@dataclass(frozen=True, kw_only=True)
class Example:
    """A layer's operands as the graph has them, and what it must compute.

    Attributes:
        data: as the kernel reads it, of the shape of its view.
        weight: as ONNX has it.
        operands: of the epilogue's steps that have one, in order: float32[C] for a channel's,
            of the shape of its view for a tensor's.
        expected: of the shape of the output's view; what lies beyond the last channel is NaN, and
            not compared.
    """

    data: Array
    weight: Array
    operands: tuple[Array, ...]
    expected: Array


def make_example(spec: Spec, key: str) -> Example:
    """Draws an example; the same one for the same key."""
    rng = np.random.default_rng(zlib.crc32(key.encode()))
    weight = draw_weight(spec, key)
    if isinstance(spec, ConvSpec):
        shape = (spec.batch, spec.in_channels, *spec.data.shape[2:4])
        data = rng.standard_normal(shape, dtype=np.float32)
        result = _convolve(data, weight, spec)
        physical = data if spec.data_plain else to_packed(data, spec.data.shape[4], 0.0)
        channels, plain = spec.out_channels, spec.output_plain
    else:
        physical = data = rng.standard_normal((spec.m, spec.k), dtype=np.float32)
        result = data @ weight
        channels, plain = spec.n, True
    operands = []
    for step in spec.epilogue:
        operand = None
        if step.operand == "channel":
            operand = draw_channel(channels, step.kind, key)
            operands.append(operand)
            operand = operand.reshape(-1, *(1,) * (result.ndim - 2))
        elif step.operand == "tensor":
            assert step.view is not None
            operand = rng.standard_normal(result.shape, dtype=np.float32)
            operands.append(operand if plain else to_packed(operand, _lanes(step.view), 0.0))
        result = _STEPS[step.kind](result, operand, step.params)
    expected = result if plain else to_packed(result, _lanes(spec.output), np.nan)
    return Example(
        data=physical,
        weight=weight,
        operands=tuple(operands),
        expected=np.ascontiguousarray(expected, np.float32),
    )


def draw_weight(spec: Spec, key: str) -> Array:
    """The example's weight: as ONNX has it, scaled so that sums stay near one."""
    rng = np.random.default_rng(zlib.crc32(f"{key} weight".encode()))
    if isinstance(spec, ConvSpec):
        shape: tuple[int, ...] = (
            spec.out_channels,
            spec.in_channels // spec.groups,
            *spec.kernel,
        )
        steps = int(np.prod(shape[1:]))
    else:
        shape, steps = (spec.k, spec.n), spec.k
    return rng.standard_normal(shape, dtype=np.float32) / np.float32(np.sqrt(steps))


def draw_channel(channels: int, kind: str, key: str) -> Array:
    """A per-channel operand."""
    rng = np.random.default_rng(zlib.crc32(f"{key} {kind}".encode()))
    return rng.standard_normal(channels, dtype=np.float32)


def to_packed(values: Array, lanes: int, beyond: float) -> Array:
    """NCHW to (N, ceil(C / lanes), H, W, lanes); channels past C are `beyond`."""
    n, channels, height, width = values.shape
    blocks = -(-channels // lanes)
    padding = ((0, 0), (0, blocks * lanes - channels), (0, 0), (0, 0))
    padded = np.pad(values, padding, constant_values=beyond)
    packed = padded.reshape(n, blocks, lanes, height, width).transpose(0, 1, 3, 4, 2)
    return np.ascontiguousarray(packed, np.float32)


def _lanes(view: View) -> int:
    return view.shape[4]


def _convolve(data: Array, weight: Array, spec: ConvSpec) -> Array:
    node = helper.make_node(
        "Conv",
        ["x", "w"],
        ["y"],
        strides=spec.strides,
        dilations=spec.dilations,
        group=spec.groups,
    )
    out = (spec.batch, spec.out_channels, *spec.out_hw)
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", data.shape), ("w", weight.shape), ("y", out))
    ]
    graph = helper.make_graph([node], "layer", infos[:2], infos[2:])
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION
    )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1  # threads of its own would spin while we measure
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return cast("Array", session.run(None, {"x": data, "w": weight})[0])


def _elu(x: Array, alpha: float) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


# Each step of an epilogue: value, operand, params.
_STEPS: dict[str, Any] = {
    "add": lambda x, o, _: x + o,
    "mul": lambda x, o, _: x * o,
    "relu": lambda x, _, __: np.maximum(x, 0),
    "clip": lambda x, _, p: np.clip(x, p[0], p[1]),
    "sigmoid": lambda x, _, __: expit(x),
    "silu": lambda x, _, __: x * expit(x),
    "hardsigmoid": lambda x, _, p: np.clip(p[0] * x + p[1], 0, 1),
    "hardswish": lambda x, _, __: x * np.clip(x / 6 + 0.5, 0, 1),
    "leaky_relu": lambda x, _, p: np.where(x > 0, x, p[0] * x),
    "tanh": lambda x, _, __: np.tanh(x),
    "gelu": lambda x, _, __: 0.5 * x * (1 + erf(x / np.sqrt(2))),
    "elu": lambda x, _, p: _elu(x, p[0]),
    "softplus": lambda x, _, __: np.logaddexp(x, 0),
}


def can_check(steps: tuple[Step, ...]) -> bool:
    """Whether every step of an epilogue has a reference here."""
    return all(step.kind in _STEPS for step in steps)
