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
_ERF_POLYNOMIAL = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
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
    one = splat(1.0, lanes_of(x))
    return one / (one + exp(b, splat(0.0, lanes_of(x)) - x))


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
    size = b.let("size", maximum(x, zero - x))
    t = b.let("t", one / (one + splat(_ERF_SCALE, lanes) * size))
    tail = _horner(t, _ERF_POLYNOMIAL) * t * exp(b, zero - size * size)
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
