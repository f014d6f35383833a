"""What an operator of our own sees of its node, and how it emits its kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from veltair.compiler.binding import Array

Expr = Any  # of Relax
Tensor = Any  # of TVM's tensor expressions
_LONGEST_TABLE = 1 << 24  # entries: more would fill the memory of whoever compiles


def check_table(what: str, length: int) -> None:
    """Accepts the length of an axis of which a table says where each element comes from.

    Raises:
        NotImplementedError: it is too long for one.
    """
    if length > _LONGEST_TABLE:
        raise NotImplementedError(f"{what} to {length} elements")


@dataclass(frozen=True, kw_only=True)
class Call:
    """One node while its region is imported.

    Attributes:
        builder: of the region.
        inputs: None where an optional one is left out.
        attrs: as ONNX has them, by name.
        outputs: how many the node has.
        opset: of the model.
    """

    builder: relax.BlockBuilder
    inputs: tuple[Expr | None, ...]
    attrs: Mapping[str, Any]
    outputs: int
    opset: int

    def has(self, index: int) -> bool:
        """Whether the node has this input."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def value(self, index: int) -> Array | None:
        """The value of a constant input; None where it is left out.

        Raises:
            NotImplementedError: it is no constant.
        """
        if not self.has(index):
            return None
        expr = self.inputs[index]
        if not isinstance(expr, tvm.ir.GenericConst):
            raise NotImplementedError(f"input {index} is no constant; --value can make it one")
        return np.array(expr.value.numpy())

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """The shape of an input."""
        expr = self.inputs[index]
        assert expr is not None
        return tuple(int(size) for size in expr.ty.shape)

    def dtype(self, index: int = 0) -> str:
        """The element type of an input."""
        expr = self.inputs[index]
        assert expr is not None
        return str(expr.ty.dtype)

    def text(self, name: str, default: str) -> str:
        """An attribute that is a word."""
        return bytes(self.attrs.get(name, default.encode())).decode()

    def axis(self, default: int | None = None) -> int:
        """The attribute `axis`, counted from the front."""
        given = self.attrs["axis"] if default is None else self.attrs.get("axis", default)
        return int(given) % max(len(self.shape()), 1)

    def emit(self, make: Callable[..., Any], *operands: Expr | Array) -> Expr:
        """Emits what `make` computes of tensors; arrays become constants."""
        # With its type: otherwise Relax makes float32 of float64.
        exprs = [relax.const(o, o.dtype.name) if isinstance(o, np.ndarray) else o for o in operands]
        name = make.__name__.strip("_")
        return self.builder.emit_te(make, *exprs, primfunc_name_hint=name)


Operator = Callable[[Call], Expr]
