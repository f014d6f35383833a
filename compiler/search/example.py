"""An example of a layer to measure and check its candidates on: operands, expected output.

The expected output comes from ONNX Runtime's operators and NumPy's arithmetic, not from a kernel of
ours, so that candidates that are wrong alike are found too.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import onnxruntime
import tvm
from onnx import TensorProto, helper
from scipy.special import erf, expit

from veltair.compiler import codegen
from veltair.compiler.binding import Array
from veltair.compiler.kernels.default import buffers_of, outputs_of
from veltair.compiler.kernels.spec import (
    BatchMatmulSpec,
    ConvSpec,
    GatherSpec,
    LayerNormSpec,
    LrnSpec,
    MatmulSpec,
    PoolSpec,
    RelayoutSpec,
    SoftmaxSpec,
    Step,
    TirSpec,
    View,
)
from veltair.compiler.search.key import Spec
from veltair.runtime.manifest import compact_strides

_OPSET = 17
_IR_VERSION = 9
_REFERENCE_ISA = "x86-64-v3"  # what every machine here has

Packing = Literal["weight", "channel", "none"]


@dataclass(frozen=True, kw_only=True)
class Operand:
    """What a kernel reads.

    Attributes:
        values: as ONNX has them where the kernel packs them, else of the view's shape.
        packing: how the kernel packs them.
        view: through which it reads them; None where it packs them.
    """

    values: Array
    packing: Packing = "none"
    view: View | None = None


@dataclass(frozen=True, kw_only=True)
class Output:
    """What a kernel must write.

    Attributes:
        expected: of the view's shape; NaN where nothing is compared, as beyond the last channel.
        view: where the kernel writes.
    """

    expected: Array
    view: View

    @property
    def is_compared(self) -> npt.NDArray[np.bool_]:
        """bool, of the expected values' shape."""
        if np.issubdtype(self.expected.dtype, np.floating):
            return cast("npt.NDArray[np.bool_]", ~np.isnan(self.expected))
        return np.ones(self.expected.shape, np.bool_)


@dataclass(frozen=True, kw_only=True)
class Example:
    """A layer's operands and what it must compute, each in the kernel's order."""

    operands: tuple[Operand, ...]
    outputs: tuple[Output, ...]


def make_example(spec: Spec, key: str) -> Example:
    """Draws an example; the same one for the same key."""
    makers: dict[type, Callable[[Any, str], Example]] = {
        ConvSpec: _convolution,
        MatmulSpec: _product,
        BatchMatmulSpec: _batch_product,
        PoolSpec: _pooling,
        LrnSpec: _local_norm,
        SoftmaxSpec: _softmax,
        LayerNormSpec: _layer_norm,
        GatherSpec: _gather,
        RelayoutSpec: _relayout,
        TirSpec: _function,
    }
    return makers[type(spec)](spec, key)


def can_check(spec: Spec) -> bool:
    """Whether a layer has a reference here: every step of its epilogue has one."""
    return all(step.kind in _STEPS for step in getattr(spec, "epilogue", ()))


# --- products -------------------------------------------------------------------------------------


def _convolution(spec: ConvSpec, key: str) -> Example:
    shape = (spec.batch, spec.in_channels, *spec.data.shape[2:4])
    data = _normal(key, shape)
    kernel = (spec.out_channels, spec.in_channels // spec.groups, *spec.kernel)
    weight = _normal(f"{key} weight", kernel) / np.float32(np.sqrt(np.prod(kernel[1:])))
    attributes = {"strides": spec.strides, "dilations": spec.dilations, "group": spec.groups}
    result = run_onnx("Conv", [data, weight], **attributes)
    lanes = None if spec.output_plain else spec.output.shape[4]
    result, operands = _finished(spec.epilogue, result, key, trailing=2, lanes=lanes)
    physical = data if spec.data_plain else to_packed(data, spec.data.shape[4], 0.0)
    inputs = (Operand(values=physical, view=spec.data), Operand(values=weight, packing="weight"))
    expected = result if lanes is None else to_packed(result, lanes, np.nan)
    return _example([*inputs, *operands], expected, spec.output)


def _product(spec: MatmulSpec, key: str) -> Example:
    data = _normal(key, (spec.m, spec.k))
    weight = _normal(f"{key} weight", (spec.k, spec.n)) / np.float32(np.sqrt(spec.k))
    result, operands = _finished(spec.epilogue, data @ weight, key)
    inputs = (Operand(values=data, view=spec.data), Operand(values=weight, packing="weight"))
    return _example([*inputs, *operands], result, spec.output)


def _batch_product(spec: BatchMatmulSpec, key: str) -> Example:
    a = _normal(key, spec.a.shape)
    b = _normal(f"{key} b", spec.b.shape) / np.float32(np.sqrt(spec.a.shape[-1]))
    result, operands = _finished(spec.epilogue, a @ b, key)
    inputs = (Operand(values=a, view=spec.a), Operand(values=b, view=spec.b))
    return _example([*inputs, *operands], result, spec.output)


def _finished(
    steps: Sequence[Step], result: Array, key: str, *, trailing: int = 0, lanes: int | None = None
) -> tuple[Array, list[Operand]]:
    """The result after an epilogue, and the epilogue's operands.

    Args:
        steps: of the epilogue.
        result: before it.
        key: to draw by.
        trailing: dimensions behind the channels.
        lanes: of a vector where the kernel writes packed.
    """
    operands = []
    for number, step in enumerate(steps):
        operand = None
        if step.operand == "channel":
            operand = _normal(f"{key} {step.kind}", (result.shape[-1 - trailing],))
            operands.append(Operand(values=operand, packing="channel"))
            operand = operand.reshape(-1, *(1,) * trailing)
        elif step.operand == "tensor":
            assert step.view is not None
            operand = _normal(f"{key} {number}", _distinct(step.view, result.shape, lanes))
            physical = operand if lanes is None else to_packed(operand, lanes, 0.0)
            shown = np.broadcast_to(physical, step.view.shape)
            operands.append(Operand(values=shown, view=step.view))
        result = _STEPS[step.kind](result, operand, step.params)
    return result, operands


def _distinct(view: View, shape: Sequence[int], lanes: int | None) -> tuple[int, ...]:
    """The shape without the repetitions that a view makes of some dimensions."""
    if lanes is not None:
        return tuple(shape)
    pairs = zip(shape, view.strides, strict=True)
    return tuple(1 if stride == 0 else size for size, stride in pairs)


# --- others ---------------------------------------------------------------------------------------


def _pooling(spec: PoolSpec, key: str) -> Example:
    data = _normal(key, spec.data.shape)
    lowest = -np.inf if spec.kind == "max" else 0.0
    result = _windows(to_plain(data), spec, lowest)
    if spec.kind == "max":
        pooled = result.max((-2, -1))
    else:
        ones = np.ones_like(data[:1, :1, :, :, 0])
        counts = _windows(ones, spec, float(spec.count_include_pad)).sum((-2, -1))
        pooled = result.sum((-2, -1)) / counts
    packed = to_packed(pooled, spec.output.shape[4], np.nan)
    return _example([Operand(values=data, view=spec.data)], packed, spec.output)


def _windows(plain: Array, spec: PoolSpec, around: float) -> Array:
    """What each window of a pooling sees: (N, C, OH, OW, KH, KW), `around` beyond the image."""
    pads, axes = [(0, 0), (0, 0)], (2, 3)
    for axis, before in zip(axes, spec.pads[:2], strict=True):
        reach = (spec.kernel[axis - 2] - 1) * spec.dilations[axis - 2] + 1
        whole = (spec.output.shape[axis] - 1) * spec.strides[axis - 2] + reach
        pads.append((before, max(whole - before - plain.shape[axis], 0)))
    padded = np.pad(plain, pads, constant_values=around)
    (sh, sw), (dh, dw) = spec.strides, spec.dilations
    spans = tuple((k - 1) * d + 1 for k, d in zip(spec.kernel, spec.dilations, strict=True))
    windows = np.lib.stride_tricks.sliding_window_view(padded, spans, axis=axes)
    height, width = spec.output.shape[2:4]
    return windows[:, :, ::sh, ::sw, ::dh, ::dw][:, :, :height, :width]


def _local_norm(spec: LrnSpec, key: str) -> Example:
    plain = _normal(key, (spec.data.shape[0], spec.channels, *spec.data.shape[2:4]))
    attributes = {"size": spec.size, "alpha": spec.alpha, "beta": spec.beta, "bias": spec.bias}
    result = run_onnx("LRN", [plain], **attributes)
    lanes = spec.output.shape[4]
    data = Operand(values=to_packed(plain, lanes, 0.0), view=spec.data)
    return _example([data], to_packed(result, lanes, np.nan), spec.output)


def _softmax(spec: SoftmaxSpec, key: str) -> Example:
    data = _normal(key, spec.data.shape)
    result = run_onnx("LogSoftmax" if spec.log else "Softmax", [data], axis=-1)
    return _example([Operand(values=data, view=spec.data)], result, spec.output)


def _layer_norm(spec: LayerNormSpec, key: str) -> Example:
    data = _normal(key, spec.data.shape)
    names = ("scale", "bias") if spec.has_bias else ("scale",)
    constants = [_normal(f"{key} {name}", spec.data.shape[-1:]) for name in names]
    result = run_onnx(
        "LayerNormalization", [data, *constants], axis=-1, epsilon=float(spec.epsilon)
    )
    packed = [Operand(values=values, packing="channel") for values in constants]
    return _example([Operand(values=data, view=spec.data), *packed], result, spec.output)


def _gather(spec: GatherSpec, key: str) -> Example:
    data = _normal(key, spec.data.shape)
    rows = spec.data.shape[1]
    index = _draw(f"{key} index").integers(-rows, rows, spec.index.shape, spec.index.dtype)
    operands = [Operand(values=data, view=spec.data), Operand(values=index, view=spec.index)]
    return _example(operands, np.take(data, index, axis=1), spec.output)


def _relayout(spec: RelayoutSpec, key: str) -> Example:
    data = _normal(key, spec.data.shape)
    plain = (data if data.ndim == 4 else to_plain(data))[:, : spec.channels]
    expected = plain
    if len(spec.output.shape) == 5:
        expected = to_packed(plain, spec.output.shape[4], 0.0)
    return _example([Operand(values=data, view=spec.data)], expected, spec.output)


def _function(spec: TirSpec, key: str) -> Example:
    """What the function computes as it is written, without a schedule."""
    views = [
        View(shape=shape, strides=compact_strides(shape), dtype=str(buffer.dtype))
        for buffer in buffers_of(spec.func)
        for shape in [tuple(map(int, buffer.shape))]
    ]
    read = len(views) - outputs_of(spec.func)
    values = [_values(f"{key} {i}", view) for i, view in enumerate(views[:read])]
    zeros = [np.zeros(view.shape, view.dtype) for view in views[read:]]
    module = codegen.lower("reference", spec.func, _REFERENCE_ISA)
    # Of TVM's own memory: it takes its buffers for aligned, which NumPy's may not be.
    tensors = [tvm.runtime.tensor(array) for array in (*values, *zeros)]
    module["reference"](*tensors)
    computed = zip(tensors[read:], views[read:], strict=True)
    return Example(
        operands=tuple(Operand(values=v, view=w) for v, w in zip(values, views, strict=False)),
        outputs=tuple(Output(expected=tensor.numpy(), view=view) for tensor, view in computed),
    )


def _example(operands: Sequence[Operand], expected: Array, output: View) -> Example:
    written = np.ascontiguousarray(expected, np.float32).reshape(output.shape)
    return Example(operands=tuple(operands), outputs=(Output(expected=written, view=output),))


def _draw(key: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(key.encode()))


def _normal(key: str, shape: Sequence[int]) -> Array:
    return _draw(key).standard_normal(shape, dtype=np.float32)


def _values(key: str, view: View) -> Array:
    """What an operator reads: numbers, or, of integers, what is a mask and an index alike."""
    dtype = np.dtype(view.dtype)
    if np.issubdtype(dtype, np.floating):
        return _normal(key, view.shape).astype(dtype)
    return _draw(key).integers(0, 2, view.shape).astype(dtype)


def to_packed(values: Array, lanes: int, beyond: float) -> Array:
    """NCHW to (N, ceil(C / lanes), H, W, lanes); channels past C are `beyond`."""
    n, channels, height, width = values.shape
    blocks = -(-channels // lanes)
    padding = ((0, 0), (0, blocks * lanes - channels), (0, 0), (0, 0))
    padded = np.pad(values, padding, constant_values=beyond)
    packed = padded.reshape(n, blocks, lanes, height, width).transpose(0, 1, 3, 4, 2)
    return np.ascontiguousarray(packed, np.float32)


def to_plain(values: Array) -> Array:
    """(N, CB, H, W, lanes) to NCHW, all lanes of the last block included."""
    n, blocks, height, width, lanes = values.shape
    plain = values.transpose(0, 1, 4, 2, 3).reshape(n, blocks * lanes, height, width)
    return np.ascontiguousarray(plain)


def run_onnx(kind: str, inputs: Sequence[Array], **attributes: Any) -> Array:  # noqa: ANN401
    """The output of one ONNX operator on ONNX Runtime."""
    names = [f"x{i}" for i in range(len(inputs))]
    node = helper.make_node(kind, names, ["y"], **attributes)
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, values.shape)
        for name, values in zip(names, inputs, strict=True)
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "layer", infos, [output])
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION
    )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1  # threads of its own would spin while we measure
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return cast("Array", session.run(None, dict(zip(names, inputs, strict=True)))[0])


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
