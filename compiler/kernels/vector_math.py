"""Vector forms of transcendental functions.

LLVM lowers `exp` and its like on vectors to one library call a lane. These are polynomials on whole
vectors, within a few units in the last place of float32 over the range that networks use.
"""

from __future__ import annotations

import math
from typing import Protocol

from tvm import tirx

from veltair.compiler.kernels.loops import Expr, lanes_of, splat


class Binder(Protocol):
    """Gives an intermediate value a name, so that it is computed once."""

    def let(self, name: str, value: Expr) -> Expr:
        """The named value."""


_LOG2_E = 1.4426950408889634
_LN2_HIGH = 0.693359375
_LN2_LOW = -2.12194440e-4
_EXP_LOW, _EXP_HIGH = -87.33654, 88.37626
_EXP_POLYNOMIAL = (  # minimax of (exp(r) - 1 - r) / r^2 for |r| <= ln(2) / 2
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)
_EXP2_BOUND = 124.0  # a power of two beyond it might not be a normal number
_EXP2_POLYNOMIAL = (  # minimax of 2^r for |r| <= 1/2
    1.3276467e-3,
    9.6755413e-3,
    5.5507133e-2,
    2.40221197e-1,
    6.93146967e-1,
    1.00000007,
)
_ERF_POLYNOMIAL = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
_ERF_BOUND = 8.0
_ERF_SCALE = 0.3275911
_TANH_NEAR = 0.625
_TANH_POLYNOMIAL = (  # (tanh(x) / x - 1) / x^2 in x^2, |x| < 0.625
    -5.70498872745e-3,
    2.06390887954e-2,
    -5.37397155531e-2,
    1.33314422036e-1,
    -3.33332819422e-1,
)
_SQRT_HALF_BITS = 0x3F3504F3
_LOG_POLYNOMIAL = (  # (log(1 + m) - m + m^2 / 2) / m^3 for 1 + m in [sqrt(1/2), sqrt(2))
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)


def maximum(a: Expr, b: Expr) -> Expr:
    """Larger of two vectors; of two NaNs or one, as the hardware's max does."""
    return tirx.Max(a, b)


def minimum(a: Expr, b: Expr) -> Expr:
    """Smaller of two vectors."""
    return tirx.Min(a, b)


def add(a: Expr, b: Expr) -> Expr:
    """Sum of two vectors."""
    return a + b


def sqrt(x: Expr) -> Expr:
    """Square root, the hardware's."""
    return tirx.call_llvm_pure_intrin(x.ty.dtype, "llvm.sqrt", x)


def exp(b: Binder, x: Expr) -> Expr:
    """The exponential: 2 to the integer part in the exponent's bits, a polynomial for the rest.

    Zero below the range of normal numbers, infinity above; NaN stays NaN.
    """
    lanes = lanes_of(x)
    low, high = splat(_EXP_LOW, lanes), splat(_EXP_HIGH, lanes)
    x = b.let("x", x)
    inside = b.let("inside", maximum(minimum(x, high), low))
    whole = b.let("whole", tirx.floor(inside * splat(_LOG2_E, lanes) + splat(0.5, lanes)))
    rest = inside - whole * splat(_LN2_HIGH, lanes) - whole * splat(_LN2_LOW, lanes)
    rest = b.let("rest", rest)
    mantissa = _horner(rest, _EXP_POLYNOMIAL) * rest * rest + rest + splat(1.0, lanes)
    bits = tirx.Cast(_integer(lanes), whole) + _integers(127, lanes)
    value = mantissa * tirx.reinterpret(x.ty.dtype, bits << _integers(23, lanes))
    outside = tirx.Select(tirx.LT(x, low), splat(0.0, lanes), x * splat(math.inf, lanes))
    return tirx.Select(tirx.And(tirx.LE(low, x), tirx.LE(x, high)), value, outside)


def sigmoid(b: Binder, x: Expr) -> Expr:
    """1 / (1 + e^-x)."""
    lanes = lanes_of(x)
    power = _bounded_exp2(b, x * splat(-_LOG2_E, lanes))
    return reciprocal(b, splat(1.0, lanes) + power)


def reciprocal(b: Binder, x: Expr) -> Expr:
    """1 / x within two units in the last place, for x and 1 / x normal.

    A division holds the processor up several times as long as its estimate and a Newton step.
    """
    lanes = lanes_of(x)
    if lanes not in _ESTIMATES:
        return splat(1.0, lanes) / x
    x = b.let("x", x)
    estimate = b.let("estimate", _ESTIMATES[lanes](x))
    return estimate * (splat(2.0, lanes) - x * estimate)


def _estimate_256(x: Expr) -> Expr:
    """1 / x to 12 bits."""
    return tirx.call_llvm_pure_intrin(x.ty.dtype, "llvm.x86.avx.rcp.ps.256", x)


def _estimate_512(x: Expr) -> Expr:
    """1 / x to 14 bits, in every lane."""
    every = tirx.const(-1, "int16")
    none = splat(0.0, lanes_of(x))
    return tirx.call_llvm_pure_intrin(x.ty.dtype, "llvm.x86.avx512.rcp14.ps.512", x, none, every)


_ESTIMATES = {8: _estimate_256, 16: _estimate_512}


def _bounded_exp2(b: Binder, x: Expr) -> Expr:
    """2 to the x, held within bounds: for sums that can't tell the rest; NaN stays NaN."""
    lanes = lanes_of(x)
    # In this order the bound gives way to a NaN.
    x = minimum(splat(_EXP2_BOUND, lanes), maximum(splat(-_EXP2_BOUND, lanes), x))
    x = b.let("x", x)
    whole = b.let("whole", tirx.floor(x + splat(0.5, lanes)))
    rest = b.let("rest", x - whole)
    mantissa = tirx.reinterpret(_integer(lanes), _horner(rest, _EXP2_POLYNOMIAL))
    exponent = tirx.Cast(_integer(lanes), whole) << _integers(23, lanes)
    return tirx.reinterpret(x.ty.dtype, mantissa + exponent)


def tanh(b: Binder, x: Expr) -> Expr:
    """Hyperbolic tangent: 1 - 2 / (e^2x + 1), an odd polynomial near zero where that cancels."""
    lanes = lanes_of(x)
    one, two = splat(1.0, lanes), splat(2.0, lanes)
    x = b.let("x", x)
    far = one - two / (exp(b, x * two) + one)
    square = b.let("square", x * x)
    near = x + x * square * _horner(square, _TANH_POLYNOMIAL)
    return tirx.Select(tirx.LT(square, splat(_TANH_NEAR * _TANH_NEAR, lanes)), near, far)


def erf(b: Binder, x: Expr) -> Expr:
    """Error function, absolute error below 2e-7 (Abramowitz and Stegun 7.1.26)."""
    lanes = lanes_of(x)
    zero, one = splat(0.0, lanes), splat(1.0, lanes)
    x = b.let("x", x)
    # Beyond the bound it is one; a NaN stays, in this order.
    size = b.let("size", minimum(splat(_ERF_BOUND, lanes), maximum(zero - x, x)))
    t = b.let("t", reciprocal(b, one + splat(_ERF_SCALE, lanes) * size))
    power = _bounded_exp2(b, size * size * splat(-_LOG2_E, lanes))
    tail = _horner(t, _ERF_POLYNOMIAL) * t * power
    magnitude = b.let("magnitude", one - tail)
    return tirx.Select(tirx.LT(x, zero), zero - magnitude, magnitude)


def log(b: Binder, x: Expr) -> Expr:
    """Natural logarithm of a positive, normal x."""
    lanes = lanes_of(x)
    # x is m * 2^e with m in [sqrt(1/2), sqrt(2)).
    bits = tirx.reinterpret(_integer(lanes), x) - _integers(_SQRT_HALF_BITS, lanes)
    bits = b.let("bits", bits)
    exponent = b.let("exponent", tirx.Cast(x.ty.dtype, bits >> _integers(23, lanes)))
    mantissa = (bits & _integers(0x007FFFFF, lanes)) + _integers(_SQRT_HALF_BITS, lanes)
    m = b.let("m", tirx.reinterpret(x.ty.dtype, mantissa) - splat(1.0, lanes))
    tail = m * m * m * _horner(m, _LOG_POLYNOMIAL) - splat(0.5, lanes) * m * m
    low, high = splat(_LN2_LOW, lanes), splat(_LN2_HIGH, lanes)
    return exponent * low + tail + m + exponent * high


def _horner(x: Expr, coefficients: tuple[float, ...]) -> Expr:
    lanes = lanes_of(x)
    value = splat(coefficients[0], lanes)
    for c in coefficients[1:]:
        value = value * x + splat(c, lanes)
    return value


def _integers(value: int, lanes: int) -> Expr:
    scalar = tirx.const(value, "int32")
    return scalar if lanes == 1 else tirx.Broadcast(scalar, lanes)


def _integer(lanes: int) -> str:
    return "int32" if lanes == 1 else f"int32x{lanes}"
