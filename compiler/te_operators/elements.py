"""Element-wise operators: divisions of integers, `Pow` of any types, `IsInf` of one sign, bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tvm
from onnx import helper
from tvm import te, tirx, topi

from veltair.compiler.te_operators.call import Call, Expr, Tensor


def is_inf(call: Call) -> Expr:
    """`IsInf` of either sign or both."""
    wanted = [
        sign * np.inf
        for name, sign in (("detect_positive", 1), ("detect_negative", -1))
        if call.attrs.get(name, 1)
    ]

    def is_inf(data: Tensor) -> Tensor:
        def element(*at: Tensor) -> Tensor:
            tests = [data(*at) == tirx.const(value, data.dtype) for value in wanted]
            return tirx.any(*tests) if tests else tirx.const(0, "bool")

        return te.compute(data.shape, element, name="is_inf")

    return call.emit(is_inf, call.inputs[0])


def bit_cast(call: Call) -> Expr:
    """`BitCast`: the same bits as another type."""
    target = str(helper.tensor_dtype_to_np_dtype(int(call.attrs["to"])).name)
    if "bool" in (target, call.dtype()):
        raise NotImplementedError("the bits of truth values")

    def bit_cast(data: Tensor) -> Tensor:
        return te.compute(
            data.shape, lambda *at: tirx.reinterpret(target, data(*at)), name="bit_cast"
        )

    return call.emit(bit_cast, call.inputs[0])


def power(call: Call) -> Expr | None:
    """`Pow` where a type is an integer; of floats of one type it is TVM's."""
    kinds = (call.dtype(0), call.dtype(1))
    if kinds[0] == kinds[1] and kinds[0].startswith("float"):
        return None

    def power(base: Tensor, exponent: Tensor) -> Tensor:
        wide = [topi.cast(each, "float64") for each in (base, exponent)]
        return topi.cast(topi.power(*wide), kinds[0])

    return call.emit(power, call.inputs[0], call.inputs[1])


def bit_shift(call: Call) -> Expr:
    """`BitShift`: by less than none, or by the whole width, all bits are shifted out."""
    dtype, left = call.dtype(), call.text("direction", "") == "LEFT"
    bits = np.iinfo(dtype).bits

    def shift(data: Tensor, by: Tensor) -> Tensor:
        within = topi.logical_and(
            topi.greater_equal(by, tirx.const(0, dtype)), topi.less(by, tirx.const(bits, dtype))
        )
        steps = topi.where(within, by, topi.full_like(by, 0))
        if left:
            return topi.where(within, topi.left_shift(data, steps), topi.full_like(data, 0))
        most = topi.where(within, steps, topi.full_like(by, bits - 1))
        shifted = topi.right_shift(data, most)  # keeps the sign, of which all bits are then
        if dtype.startswith("int"):
            return shifted
        return topi.where(within, shifted, topi.full_like(data, 0))

    return call.emit(shift, call.inputs[0], call.inputs[1])


def divide(call: Call) -> Expr | None:
    """`Div` of integers by what comes with the data; the others are TVM's."""
    if _divides_safely(call):
        return None

    def divide(left: Tensor, right: Tensor) -> Tensor:
        return _binary(left, right, lambda x, y: _guarded(tirx.truncdiv, x, y, lambda x: -x))

    return call.emit(divide, call.inputs[0], call.inputs[1])


def modulo(call: Call) -> Expr | None:
    """`Mod` of floats with the divisor's sign, and of integers by what comes with the data.

    The others are TVM's.
    """
    dtype, is_truncated = call.dtype(), bool(call.attrs.get("fmod", 0))
    if not dtype.startswith("float"):
        if _divides_safely(call):
            return None
        kind = tirx.truncmod if is_truncated else tirx.floormod

        def modulo_of_integers(left: Tensor, right: Tensor) -> Tensor:
            return _binary(left, right, lambda x, y: _guarded(kind, x, y, lambda x: x - x))

        return call.emit(modulo_of_integers, call.inputs[0], call.inputs[1])
    if is_truncated:
        return None

    def modulo(left: Tensor, right: Tensor) -> Tensor:
        wide = "float64" if dtype == "float64" else "float32"
        a, b = (topi.cast(each, wide) for each in (left, right))

        def rest(x: Tensor, y: Tensor) -> Tensor:
            zero = tirx.const(0, wide)
            whole = x - tirx.floor(x / y) * y
            apart = tirx.any(tirx.all(x < zero, y > zero), tirx.all(x > zero, y < zero))
            aside = tirx.if_then_else(apart, y, x)
            most = tirx.max_value(wide)
            endless = tirx.all(tirx.abs(y) > most, tirx.abs(x) <= most)
            return tirx.if_then_else(endless, aside, whole).astype(dtype)

        return _binary(a, b, rest)

    return call.emit(modulo, call.inputs[0], call.inputs[1])


def _divides_safely(call: Call) -> bool:
    """Whether no division ends the process: of floats, or by integers that are neither 0 nor -1."""
    if call.dtype().startswith(("float", "bfloat")):
        return True
    divisor = call.inputs[1]
    if not isinstance(divisor, tvm.ir.GenericConst):
        return False
    known = divisor.value.numpy()
    return bool(((known != 0) & (known + 1 != 0)).all())


def _guarded(
    divide: Callable[[Expr, Expr], Expr], x: Expr, y: Expr, by_less: Callable[[Expr], Expr]
) -> Expr:
    """A division of integers, which processors trap by 0, and of the least integer by -1.

    By 0 it is 0, as NumPy has it; by -1 what `by_less` makes of the dividend.
    """
    dtype = str(x.ty.dtype)
    zero, one = tirx.const(0, dtype), tirx.const(1, dtype)
    if dtype.startswith("uint"):
        return tirx.Select(y == zero, zero, divide(x, tirx.Select(y == zero, one, y)))
    less = tirx.const(-1, dtype)
    safe = tirx.Select(tirx.any(y == zero, y == less), one, y)
    return tirx.Select(y == zero, zero, tirx.Select(y == less, by_less(x), divide(x, safe)))


def _binary(a: Tensor, b: Tensor, combine: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """An element-wise function of two tensors that are broadcast."""
    shape = np.broadcast_shapes(*(tuple(int(s) for s in each.shape) for each in (a, b)))
    wide = [topi.broadcast_to(each, shape) for each in (a, b)]
    return te.compute(shape, lambda *at: combine(wide[0](*at), wide[1](*at)), name="binary")
