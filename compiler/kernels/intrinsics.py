"""How TVM lowers transcendental functions that remain in default-scheduled kernels.

TVM's own rules call the C library once an element, which also keeps LLVM from vectorising the loop.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from tvm import tirx

from veltair.compiler.kernels import vector_math as vm
from veltair.compiler.kernels.loops import Expr, let_variable

_PREFERRED = 100  # above TVM's own rules

Function = Callable[[vm.Binder, Expr], Expr]


@functools.cache  # TVM refuses a second registration
def prefer_polynomials() -> None:
    """Makes TVM, in this process, lower exp, tanh and erf of float32 to polynomials."""
    functions: dict[str, Function] = {"exp": vm.exp, "tanh": vm.tanh, "erf": vm.erf}
    for name, function in functions.items():
        rule = _rule(function)
        tirx.op.register_intrin_lowering(f"tirx.{name}", target="llvm", f=rule, level=_PREFERRED)


def _rule(function: Function) -> Callable[[Expr], Expr]:
    def lower(call: Expr) -> Expr:
        if not str(call.ty.dtype).startswith("float32"):
            return call  # TVM goes on to its next rule
        lets = _Lets()
        return lets.around(function(lets, call.args[0]))

    return lower


class _Lets:
    """Names values within one expression, where there are no statements to bind them."""

    def __init__(self) -> None:
        self._bound: list[tuple[Expr, Expr]] = []

    def let(self, name: str, value: Expr) -> Expr:
        """Names a value; it is computed once."""
        variable = let_variable(name, value)
        self._bound.append((variable, value))
        return variable

    def around(self, body: Expr) -> Expr:
        """The expression with all names bound before it."""
        for variable, value in reversed(self._bound):
            body = tirx.Let(variable, value, body)
        return body
