"""Element-wise steps fused behind a kernel's accumulators, before the store."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import tirx

from veltair.compiler.kernels import vector_math as vm
from veltair.compiler.kernels.loops import Expr, Loops, lanes_of, load, splat
from veltair.compiler.kernels.spec import Step

Activation = Callable[[Loops, Expr, Sequence[float]], Expr]


class Epilogue:
    """The steps of one kernel: declares their operands and applies them to a value.

    Args:
        b: the kernel's emitter.
        steps: in order.
        channels: values of a per-channel operand as the kernel reads it (padded).
        aligned: whether tensor operands begin at multiples of the vector.
    """

    def __init__(self, b: Loops, steps: Sequence[Step], channels: int, *, aligned: bool) -> None:
        self._b = b
        self._steps = steps
        self._operands: list[Any] = []
        for i, step in enumerate(steps):
            if step.operand == "channel":
                self._operands.append(b.flat(f"e{i}", channels))
            elif step.operand == "tensor":
                assert step.view is not None
                self._operands.append(b.buffer(f"e{i}", step.view, aligned=aligned))
            else:
                self._operands.append(None)

    @property
    def buffers(self) -> list[Any]:
        """The operands, in order, as the kernel's arguments."""
        return [operand for operand in self._operands if operand is not None]

    @property
    def tensor_operand(self) -> bool:
        """Whether any step reads a tensor."""
        return any(step.operand == "tensor" for step in self._steps)

    def initial(self, channel: Expr, lanes: int, *, splat_channel: bool = False) -> Expr:
        """What an accumulator starts from: the bias where that is the first step, or zero."""
        if self._starts_with_bias():
            return self._channel(0, channel, lanes, splat_channel)
        return splat(0.0, lanes)

    def apply(
        self, value: Expr, channel: Expr, where: Sequence[Expr], *, splat_channel: bool = False
    ) -> Expr:
        """Applies the steps to an accumulator that began from `initial`.

        Args:
            value: the accumulator.
            channel: the index of the value's first channel in a per-channel operand.
            where: the value's indices in a tensor operand.
            splat_channel: all lanes are of one channel.

        Returns:
            The value to store.
        """
        return self._run(int(self._starts_with_bias()), value, channel, where, splat_channel)

    def apply_all(
        self, value: Expr, channel: Expr, where: Sequence[Expr], *, splat_channel: bool = False
    ) -> Expr:
        """Applies every step, to an accumulator that did not begin from `initial`."""
        return self._run(0, value, channel, where, splat_channel)

    def _run(
        self, first: int, value: Expr, channel: Expr, where: Sequence[Expr], splat_channel: bool
    ) -> Expr:
        lanes = lanes_of(value)
        for i in range(first, len(self._steps)):
            step = self._steps[i]
            if step.operand == "none":
                value = activate(self._b, step, value)
                continue
            if step.operand == "channel":
                other = self._channel(i, channel, lanes, splat_channel)
            else:
                other = load(self._operands[i], where, lanes)
            value = value + other if step.kind == "add" else value * other
        return value

    def _starts_with_bias(self) -> bool:
        if not self._steps:
            return False
        return self._steps[0].kind == "add" and self._steps[0].operand == "channel"

    def _channel(self, i: int, channel: Expr, lanes: int, splat_channel: bool) -> Expr:
        if splat_channel:
            return splat(load(self._operands[i], [channel]), lanes)
        return load(self._operands[i], [channel], lanes)


def activate(b: Loops, step: Step, value: Expr) -> Expr:
    """One activation of a vector.

    Raises:
        ValueError: the step's kind is unknown.
    """
    if step.kind not in _ACTIVATIONS:
        raise ValueError(f"epilogue step {step.kind!r}: unknown; known: {sorted(_ACTIVATIONS)}")
    return _ACTIVATIONS[step.kind](b, b.let("v", value), step.params)


def pad_channels(padded: int) -> Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]:
    """A packer of a per-channel operand: zeros up to `padded` values."""

    def pack(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        flat = np.asarray(values, np.float32).reshape(-1)
        return np.pad(flat, (0, padded - flat.size))

    return pack


def suffix(steps: Sequence[Step]) -> str:
    """The part of a variant id that names the epilogue, e.g. `_add_relu`."""
    return "".join(f"_{'bias' if s.operand == 'channel' else s.kind}" for s in steps)


def _relu(b: Loops, x: Expr, params: Sequence[float]) -> Expr:
    return vm.maximum(x, splat(0.0, lanes_of(x)))


def _clip(b: Loops, x: Expr, params: Sequence[float]) -> Expr:
    low, high = params
    if not math.isinf(low):
        x = vm.maximum(x, splat(low, lanes_of(x)))
    if not math.isinf(high):
        x = vm.minimum(x, splat(high, lanes_of(x)))
    return x


def _sigmoid(b: Loops, x: Expr, params: Sequence[float]) -> Expr:
    return vm.sigmoid(b, x)


def _silu(b: Loops, x: Expr, params: Sequence[float]) -> Expr:
    return x * vm.sigmoid(b, x)


def _hardsigmoid(b: Loops, x: Expr, params: Sequence[float]) -> Expr:
    alpha, beta = params or (0.2, 0.5)
    lanes = lanes_of(x)
    return _clip(b, x * splat(alpha, lanes) + splat(beta, lanes), (0.0, 1.0))


def _hardswish(b: Loops, x: Expr, params: Sequence[float]) -> Expr:
    return x * _hardsigmoid(b, x, (1.0 / 6.0, 0.5))


def _leaky_relu(b: Loops, x: Expr, params: Sequence[float]) -> Expr:
    (alpha,) = params or (0.01,)
    zero = splat(0.0, lanes_of(x))
    return tirx.Select(tirx.LT(x, zero), x * splat(alpha, lanes_of(x)), x)


def _tanh(b: Loops, x: Expr, params: Sequence[float]) -> Expr:
    return vm.tanh(b, x)


def _gelu(b: Loops, x: Expr, params: Sequence[float]) -> Expr:
    lanes = lanes_of(x)
    cumulative = vm.erf(b, x * splat(math.sqrt(0.5), lanes)) + splat(1.0, lanes)
    return splat(0.5, lanes) * x * cumulative


def _elu(b: Loops, x: Expr, params: Sequence[float]) -> Expr:
    (alpha,) = params or (1.0,)
    lanes = lanes_of(x)
    zero = splat(0.0, lanes)
    negative = splat(alpha, lanes) * (vm.exp(b, vm.minimum(x, zero)) - splat(1.0, lanes))
    return tirx.Select(tirx.LT(x, zero), negative, x)


def _softplus(b: Loops, x: Expr, params: Sequence[float]) -> Expr:
    # max(x, 0) + log(1 + e^-|x|): nothing overflows.
    lanes = lanes_of(x)
    zero = splat(0.0, lanes)
    size = vm.maximum(x, zero - x)
    one_plus = b.let("one_plus", splat(1.0, lanes) + vm.exp(b, zero - size))
    return vm.maximum(x, zero) + vm.log(b, one_plus)


_ACTIVATIONS: dict[str, Activation] = {
    "relu": _relu,
    "clip": _clip,
    "sigmoid": _sigmoid,
    "silu": _silu,
    "hardsigmoid": _hardsigmoid,
    "hardswish": _hardswish,
    "leaky_relu": _leaky_relu,
    "tanh": _tanh,
    "gelu": _gelu,
    "elu": _elu,
    "softplus": _softplus,
}
