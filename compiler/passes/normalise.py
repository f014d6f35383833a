"""Brings operations to the few normal forms that the expert kernels know.

What has no normal form stays as a `Default` operation, which the Relax importer lowers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from veltair.compiler.graph import EpilogueStep, Graph, Op
from veltair.compiler.passes.rewrite import (
    Rewriter,
    Rule,
    binary,
    default_reads,
    emit_default,
    is_float,
)
from veltair.compiler.passes.token_rules import divide, gather, layer_norm, subtract

ACTIVATIONS = {
    "Relu": ("relu", ()),
    "Sigmoid": ("sigmoid", ()),
    "Tanh": ("tanh", ()),
    "Softplus": ("softplus", ()),
    "HardSwish": ("hardswish", ()),
    "LeakyRelu": ("leaky_relu", (("alpha", 0.01),)),
    "Elu": ("elu", (("alpha", 1.0),)),
    "HardSigmoid": ("hardsigmoid", (("alpha", 0.2), ("beta", 0.5))),
}
RESHAPES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout")


def normalise(graph: Graph) -> Graph:
    """Applies each operation's rule; drops operations that nothing reads."""
    rewriter = Rewriter(graph)
    for op in graph.ops:
        RULES.get(op.kind, emit_default)(rewriter, op)
    return drop_unused(rewriter.finish())


def drop_unused(graph: Graph) -> Graph:
    """Removes operations whose outputs nothing reads."""
    needed = set(graph.outputs)
    kept = []
    for op in reversed(graph.ops):
        if needed.intersection(op.outputs):
            needed.update(op.reads)
            kept.append(op)
    return graph.with_ops(reversed(kept))


def _is_image(rewriter: Rewriter, name: str) -> bool:
    tensor = rewriter.tensors[name]
    return len(tensor.shape) == 4 and tensor.dtype == "float32" and 0 not in tensor.shape


def _ints(op: Op, name: str, default: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(v) for v in op.attrs.get(name, default))


def _window(rewriter: Rewriter, op: Op, kernel: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Kernel, strides, dilations and pads (top, left, bottom, right) of a spatial operator."""
    strides, dilations = _ints(op, "strides", (1, 1)), _ints(op, "dilations", (1, 1))
    pads = _ints(op, "pads", (0, 0, 0, 0))
    auto = op.attrs.get("auto_pad", b"NOTSET")
    if auto in (b"SAME_UPPER", b"SAME_LOWER"):
        shape = rewriter.tensors[op.inputs[0]].shape[2:]
        low, high = [], []
        for size, k, s, d in zip(shape, kernel, strides, dilations, strict=True):
            total = max((math.ceil(size / s) - 1) * s + (k - 1) * d + 1 - size, 0)
            small, large = total // 2, total - total // 2
            low.append(small if auto == b"SAME_UPPER" else large)
            high.append(large if auto == b"SAME_UPPER" else small)
        pads = (*low, *high)
    elif auto == b"VALID":
        pads = (0, 0, 0, 0)
    return {"kernel": kernel, "strides": strides, "dilations": dilations, "pads": pads}


def _conv(rewriter: Rewriter, op: Op) -> None:
    weight = rewriter.data(op.inputs[1])
    if weight is None or weight.ndim != 4 or not _is_image(rewriter, op.inputs[0]):
        return emit_default(rewriter, op)
    if not is_float(rewriter, op.inputs[1]):
        return emit_default(rewriter, op)
    epilogue: tuple[EpilogueStep, ...] = ()
    if len(op.inputs) > 2 and op.inputs[2]:
        if rewriter.data(op.inputs[2]) is None:
            return emit_default(rewriter, op)
        epilogue = (EpilogueStep(kind="add", operand="channel", tensor=op.inputs[2]),)
    attrs = {**_window(rewriter, op, weight.shape[2:]), "groups": int(op.attrs.get("group", 1))}
    return rewriter.emit(op.replaced(inputs=op.inputs[:2], attrs=attrs, epilogue=epilogue))


def _gemm(rewriter: Rewriter, op: Op) -> None:
    weight = rewriter.data(op.inputs[1])
    bias = rewriter.data(op.inputs[2]) if len(op.inputs) > 2 and op.inputs[2] else np.float32(0)
    columns = rewriter.tensors[op.outputs[0]].shape[-1]
    simple = (
        weight is not None
        and weight.dtype == np.float32
        and not op.attrs.get("transA", 0)
        and bias is not None
        and bias.size in (1, columns)
        and (bias.size == 1 or bias.shape[-1] == columns)
        and 0 not in rewriter.tensors[op.inputs[0]].shape
    )
    if not simple or weight is None or bias is None:
        return emit_default(rewriter, op)
    scaled = weight.T if op.attrs.get("transB", 0) else weight
    scaled = np.ascontiguousarray(scaled * np.float32(op.attrs.get("alpha", 1.0)))
    inputs = (op.inputs[0], rewriter.constant(f"{op.inputs[1]}.kn", scaled))
    epilogue: tuple[EpilogueStep, ...] = ()
    if np.any(bias):
        row = np.broadcast_to(bias * np.float32(op.attrs.get("beta", 1.0)), (1, columns))[0]
        name = rewriter.constant(f"{op.outputs[0]}.bias", np.ascontiguousarray(row))
        epilogue = (EpilogueStep(kind="add", operand="channel", tensor=name),)
    return rewriter.emit(op.replaced(kind="MatMul", inputs=inputs, attrs={}, epilogue=epilogue))


def _matmul(rewriter: Rewriter, op: Op) -> None:
    a, b = (rewriter.tensors[n] for n in op.inputs)
    if not is_float(rewriter, *op.inputs) or 0 in a.shape or 0 in b.shape:
        return emit_default(rewriter, op)
    if b.data is not None and a.data is None and b.data.ndim == 2 and len(a.shape) >= 2:
        return rewriter.emit(op.replaced(kind="MatMul", attrs={}))
    same_batch = len(a.shape) == len(b.shape) >= 3 and a.shape[:-2] == b.shape[:-2]
    if same_batch and a.data is None and b.data is None:
        return rewriter.emit(op.replaced(kind="BatchMatMul", attrs={}))
    return emit_default(rewriter, op)


def _activation(rewriter: Rewriter, op: Op) -> None:
    kind, constants = ACTIVATIONS[op.kind]
    params = tuple(float(op.attrs.get(name, default)) for name, default in constants)
    _elementwise(rewriter, op, EpilogueStep(kind=kind, params=params))


def _clip(rewriter: Rewriter, op: Op) -> None:
    bounds = [float(op.attrs.get("min", -math.inf)), float(op.attrs.get("max", math.inf))]
    for i, name in enumerate(op.inputs[1:3]):
        if name:
            data = rewriter.data(name)
            if data is None or data.size != 1:  # what ONNX doesn't allow, TVM may say
                return emit_default(rewriter, op)
            bounds[i] = float(data.item())
    lo, hi = bounds
    # A bound beyond float32 would overflow to infinity, and NaN bounds never hold: both are absent.
    limit = float(np.finfo(np.float32).max)
    params = (max(lo, -limit), min(hi, limit))
    return _elementwise(rewriter, op, EpilogueStep(kind="clip", params=params))


def _gelu(rewriter: Rewriter, op: Op) -> None:
    if op.attrs.get("approximate", b"none") != b"none":
        return emit_default(rewriter, op)
    return _elementwise(rewriter, op, EpilogueStep(kind="gelu"))


def _elementwise(rewriter: Rewriter, op: Op, step: EpilogueStep) -> None:
    """An activation: a `Default` operation that also says which epilogue step it would be."""
    outputs = tuple(o for o in op.outputs if o)
    if not is_float(rewriter, op.inputs[0]):
        return emit_default(rewriter, op)
    reads = default_reads(op)
    return rewriter.emit(
        op.replaced(kind="Default", inputs=reads, outputs=outputs, attrs={"step": step})
    )


def _sum(rewriter: Rewriter, op: Op) -> None:
    """`Sum` of n tensors as n - 1 `Add`s, which the epilogues know."""
    if len(op.inputs) == 1:
        return _reshape(rewriter, op)
    left = op.inputs[0]
    for i, right in enumerate(op.inputs[1:], start=1):
        last = i == len(op.inputs) - 1
        shape = np.broadcast_shapes(rewriter.tensors[left].shape, rewriter.tensors[right].shape)
        out = op.outputs[0] if last else rewriter.fresh(f"{op.outputs[0]}.sum{i}")
        if not last:
            like = rewriter.tensors[op.outputs[0]]
            rewriter.tensors[out] = type(like)(name=out, shape=shape, dtype=like.dtype)
        rewriter.emit(binary(op, "Add", (left, right), out))
        left = out
    return None


def _pool(rewriter: Rewriter, op: Op) -> None:
    if not _is_image(rewriter, op.inputs[0]) or len([o for o in op.outputs if o]) != 1:
        return emit_default(rewriter, op)
    include = bool(op.attrs.get("count_include_pad", 0))
    if op.attrs.get("storage_order", 0) or (include and op.attrs.get("ceil_mode", 0)):
        return emit_default(rewriter, op)
    window = _window(rewriter, op, _ints(op, "kernel_shape", ()))
    if not _every_window_has_data(rewriter, op, window):
        return emit_default(rewriter, op)
    attrs = {
        **window,
        "kind": "max" if op.kind == "MaxPool" else "avg",
        "count_include_pad": include,
    }
    return rewriter.emit(op.replaced(kind="Pool", attrs=attrs, outputs=(op.outputs[0],)))


def _every_window_has_data(rewriter: Rewriter, op: Op, window: dict[str, tuple[int, ...]]) -> bool:
    """Whether no pooling window lies in the padding alone, where a mean has no meaning."""
    sizes = rewriter.tensors[op.inputs[0]].shape[2:]
    outputs = rewriter.tensors[op.outputs[0]].shape[2:]
    for axis, (size, count) in enumerate(zip(sizes, outputs, strict=True)):
        kernel, stride, dilation, pad = (
            window[name][axis] for name in ("kernel", "strides", "dilations", "pads")
        )
        for start in range(-pad, count * stride - pad, stride):
            if not any(0 <= start + i * dilation < size for i in range(kernel)):
                return False
    return True


def _global_pool(rewriter: Rewriter, op: Op) -> None:
    if not _is_image(rewriter, op.inputs[0]):
        return emit_default(rewriter, op)
    attrs = {
        "kernel": rewriter.tensors[op.inputs[0]].shape[2:],
        "strides": (1, 1),
        "dilations": (1, 1),
        "pads": (0, 0, 0, 0),
        "kind": "max" if op.kind == "GlobalMaxPool" else "avg",
        "count_include_pad": False,
    }
    return rewriter.emit(op.replaced(kind="Pool", attrs=attrs))


def _reduce_mean(rewriter: Rewriter, op: Op) -> None:
    axes = op.attrs.get("axes")
    if axes is None and len(op.inputs) > 1 and op.inputs[1]:
        axes = rewriter.data(op.inputs[1])
    image = _is_image(rewriter, op.inputs[0])
    spatial = axes is not None and sorted(int(a) % 4 for a in axes) == [2, 3]
    if image and spatial and op.attrs.get("keepdims", 1):
        return _global_pool(rewriter, op.replaced(inputs=op.inputs[:1]))
    return emit_default(rewriter, op)


def _lrn(rewriter: Rewriter, op: Op) -> None:
    if not _is_image(rewriter, op.inputs[0]):
        return emit_default(rewriter, op)
    attrs = {
        "size": int(op.attrs["size"]),
        "alpha": float(op.attrs.get("alpha", 1e-4)),
        "beta": float(op.attrs.get("beta", 0.75)),
        "bias": float(op.attrs.get("bias", 1.0)),
    }
    return rewriter.emit(op.replaced(attrs=attrs))


def _softmax(rewriter: Rewriter, op: Op) -> None:
    tensor = rewriter.tensors[op.inputs[0]]
    rank = len(tensor.shape)
    coerced = rewriter.graph.opset < 13  # then the axis and all behind it are one dimension
    axis = int(op.attrs.get("axis", 1 if coerced else -1)) % max(rank, 1)
    behind = tensor.shape[axis + 1 :]
    simple = tensor.dtype == "float32" and rank >= 1 and 0 not in tensor.shape
    if not simple or (not coerced and axis != rank - 1) or (coerced and math.prod(behind) != 1):
        return emit_default(rewriter, op)
    columns = tensor.shape[axis]
    attrs = {"columns": columns, "log": op.kind == "LogSoftmax"}
    return rewriter.emit(op.replaced(kind="Softmax", attrs=attrs))


def _concat(rewriter: Rewriter, op: Op) -> None:
    axis = int(op.attrs["axis"])
    images = all(_is_image(rewriter, n) and rewriter.data(n) is None for n in op.inputs)
    if images and axis % 4 == 1:
        return rewriter.emit(op.replaced(attrs={"axis": 1}))
    return emit_default(rewriter, op)


def _batch_norm(rewriter: Rewriter, op: Op) -> None:
    """What cleaning could not fold into a convolution: a multiplication and an addition."""
    x = rewriter.tensors[op.inputs[0]]
    scale, bias, mean, variance = (rewriter.data(n) for n in op.inputs[1:5])
    known = scale is not None and bias is not None and mean is not None and variance is not None
    if not known or x.dtype != "float32" or op.attrs.get("training_mode", 0):
        return emit_default(rewriter, op)
    assert scale is not None
    assert bias is not None
    assert mean is not None
    assert variance is not None
    epsilon = float(op.attrs.get("epsilon", 1e-5))
    factor = scale / np.sqrt(variance.astype(np.float64) + epsilon)
    shape = (-1,) + (1,) * (len(x.shape) - 2)
    gain = factor.astype(np.float32).reshape(shape)
    shift = (bias - mean * factor).astype(np.float32).reshape(shape)
    middle = rewriter.activation(op.outputs[0], ".scaled")
    name = rewriter.constant(f"{op.outputs[0]}.gain", gain)
    rewriter.emit(binary(op, "Mul", (op.inputs[0], name), middle))
    name = rewriter.constant(f"{op.outputs[0]}.shift", shift)
    return rewriter.emit(binary(op, "Add", (middle, name), op.outputs[0]))


def _reshape(rewriter: Rewriter, op: Op) -> None:
    if rewriter.data(op.inputs[0]) is not None or len([o for o in op.outputs if o]) != 1:
        return emit_default(rewriter, op)
    return rewriter.emit(
        op.replaced(kind="Reshape", inputs=op.inputs[:1], outputs=op.outputs[:1], attrs={})
    )


def _as_it_is(rewriter: Rewriter, op: Op) -> None:
    rewriter.emit(op)


RULES: dict[str, Rule] = {
    "Fallback": _as_it_is,
    "Conv": _conv,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Clip": _clip,
    "Gelu": _gelu,
    "Sum": _sum,
    "MaxPool": _pool,
    "AveragePool": _pool,
    "GlobalAveragePool": _global_pool,
    "GlobalMaxPool": _global_pool,
    "ReduceMean": _reduce_mean,
    "LRN": _lrn,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "LayerNormalization": layer_norm,
    "Gather": gather,
    "Div": divide,
    "Sub": subtract,
    "Concat": _concat,
    "BatchNormalization": _batch_norm,
    **dict.fromkeys(ACTIVATIONS, _activation),
    **dict.fromkeys(RESHAPES, _reshape),
}
