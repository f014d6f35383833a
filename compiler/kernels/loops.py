"""A small emitter of TIR loops.

Expert kernels are written as plain loops over strided buffers, not as a tensor expression plus a
schedule: the register tile, the loop order and the views' strides are the kernel, and are stated
once. Vector values are explicit, so LLVM only allocates registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tvm import tirx
from tvm.tirx import (
    AllocBuffer,
    Bind,
    Broadcast,
    BufferLoad,
    BufferStore,
    For,
    ForKind,
    IfThenElse,
    PrimFunc,
    Ramp,
    SeqStmt,
    Shuffle,
    Var,
)

from veltair.compiler.kernels.spec import View
from veltair.runtime.manifest import compact_strides

Expr = Any
Buffer = Any
Statement = Any

_FLOAT_BYTES = 4
_READ, _INTO_L2, _DATA = 0, 2, 1  # of LLVM's prefetch
_KINDS = {"serial": ForKind.SERIAL, "parallel": ForKind.PARALLEL, "unroll": ForKind.UNROLLED}


class Register:
    """A vector variable that LLVM keeps in a register: read with `get`, written with `set`."""

    def __init__(self, buffer: Buffer, lanes: int) -> None:
        self._buffer, self._lanes = buffer, lanes

    def get(self) -> Expr:
        """The value."""
        return load(self._buffer, [0], self._lanes)

    def store(self, value: Expr) -> Statement:
        """The statement that sets the value."""
        return BufferStore(self._buffer, value, _span([0], self._lanes))


class Loops:
    """Emits statements in order; loops and branches are context managers.

    Args:
        lanes: float32 lanes of a full vector.
    """

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self._blocks: list[list[Any]] = [[]]
        self._names = 0

    def buffer(self, name: str, view: View, *, aligned: bool = True) -> Buffer:
        """Declares an argument; `aligned` when it starts at a multiple of the vector."""
        alignment = self.lanes * _FLOAT_BYTES if aligned else _FLOAT_BYTES
        if view.dtype != "float32":
            alignment = 1
        strides = None if view.strides == compact_strides(view.shape) else list(view.strides)
        return tirx.decl_buffer(
            list(view.shape), view.dtype, name, strides=strides, data_alignment=alignment
        )

    def flat(self, name: str, size: int) -> Buffer:
        """Declares a dense one-dimensional float32 argument, aligned to the vector."""
        return self.buffer(name, View(shape=(size,), strides=(1,)))

    @contextmanager
    def loop(self, extent: int | Expr, name: str, kind: str = "serial") -> Iterator[Expr]:
        """A loop from 0; of one iteration it emits only the body."""
        if isinstance(extent, int) and extent == 1 and kind != "parallel":
            yield tirx.const(0, "int32")
            return
        var = Var(name, "int32")
        self._blocks.append([])
        yield var
        body = self._sequence(self._blocks.pop())
        self._emit(For(var, tirx.const(0, "int32"), extent, _KINDS[kind], body))

    @contextmanager
    def branch(self, condition: Expr) -> Iterator[None]:
        """Emits the body under `if condition`."""
        self._blocks.append([])
        yield
        self._emit(IfThenElse(condition, self._sequence(self._blocks.pop()), None))

    def let(self, name: str, value: Expr) -> Expr:
        """Names a value; it is computed once."""
        if isinstance(value, int):
            return tirx.const(value, "int32")
        variable = let_variable(name, value)
        self._emit(Bind(variable, value))
        return variable

    def register(self, name: str, lanes: int) -> Register:
        """Allocates a float32 register of some lanes."""
        self._names += 1
        # Of the default scope, which TVM puts on the stack (and LLVM in a register) while small;
        # "local" it would ask the runtime for, on every iteration.
        buffer = tirx.decl_buffer((lanes,), "float32", f"{name}_{self._names}")
        self._emit(AllocBuffer(buffer))
        return Register(buffer, lanes)

    def scratch(self, name: str, size: int) -> Buffer:
        """Allocates float32 working memory for the enclosing block."""
        self._names += 1
        alignment = self.lanes * _FLOAT_BYTES
        buffer = tirx.decl_buffer(
            (size,), "float32", f"{name}_{self._names}", data_alignment=alignment
        )
        self._emit(AllocBuffer(buffer))
        return buffer

    def set(self, register: Register, value: Expr) -> None:
        """Assigns to a register."""
        self._emit(register.store(value))

    def store(self, buffer: Buffer, indices: Sequence[Expr], value: Expr) -> None:
        """Stores a scalar, or a vector of the value's lanes from the last index on."""
        lanes = lanes_of(value)
        self._emit(BufferStore(buffer, value, _span(indices, lanes)))

    def pieces(self, value: Expr, count: int) -> Iterator[tuple[int, Expr]]:
        """The first `count` lanes of a vector as vectors of powers of two, each with its start."""
        if count == lanes_of(value):
            yield 0, value
            return
        whole = self.let("whole", value)
        start = 0
        while start < count:
            width = 1 << ((count - start).bit_length() - 1)
            yield start, Shuffle([whole], list(range(start, start + width)))
            start += width

    def prefetch(self, buffer: Buffer, index: Expr) -> None:
        """Asks for the cache line of an element in L2; the index may lie past the end."""
        arguments = [tirx.const(value, "int32") for value in (_READ, _INTO_L2, _DATA)]
        address = tirx.address_of(BufferLoad(buffer, [index]))
        self._emit(
            tirx.Evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch", address, *arguments))
        )

    def elements(self, value: Expr, count: int) -> Iterator[tuple[int, Expr]]:
        """The first `count` lanes of a vector as scalars, each with its lane."""
        whole = self.let("whole", value)
        for lane in range(count):
            yield lane, Shuffle([whole], [lane])

    def store_part(self, buffer: Buffer, indices: Sequence[Expr], value: Expr, count: int) -> None:
        """Stores the first `count` lanes of a vector."""
        for start, piece in self.pieces(value, count):
            self.store(buffer, [*indices[:-1], indices[-1] + start], piece)

    def function(self, arguments: Sequence[Buffer]) -> PrimFunc:
        """The finished PrimFunc; the emitter must not be used after it."""
        (statements,) = self._blocks
        func = PrimFunc(list(arguments), self._sequence(statements))
        return func.with_attr("tirx.noalias", True).with_attr("global_symbol", "main")

    def _emit(self, statement: Statement) -> None:
        self._blocks[-1].append(statement)

    @staticmethod
    def _sequence(statements: Sequence[Statement]) -> Statement:
        if not statements:
            return tirx.Evaluate(tirx.const(0, "int32"))
        return statements[0] if len(statements) == 1 else SeqStmt(list(statements))


def let_variable(name: str, value: Expr) -> Expr:
    """A variable of a value's type."""
    return Var(name, value.ty)


def load(buffer: Buffer, indices: Sequence[Expr], lanes: int = 1) -> Expr:
    """Loads `lanes` elements from the last index on."""
    return BufferLoad(buffer, _span(indices, lanes))


def strided_load(buffer: Buffer, indices: Sequence[Expr], stride: int, lanes: int) -> Expr:
    """Loads `lanes` elements, `stride` apart in the last dimension."""
    if lanes == 1:
        return BufferLoad(buffer, list(indices))
    return BufferLoad(buffer, [*indices[:-1], Ramp(indices[-1], stride, lanes)])


def splat(value: Expr | float, lanes: int) -> Expr:
    """A vector with one value in all lanes."""
    scalar = tirx.const(value, "float32") if isinstance(value, (int, float)) else value
    return scalar if lanes == 1 else Broadcast(scalar, lanes)


def lanes_of(value: Expr) -> int:
    """Lanes of a value."""
    _, _, lanes = str(value.ty.dtype).partition("x")
    return int(lanes) if lanes else 1


def fold_lanes(b: Loops, combine: Callable[[Expr, Expr], Expr], value: Expr) -> Expr:
    """Combines the lanes of a vector, of a power of two, to a scalar by halves."""
    lanes = lanes_of(value)
    while lanes > 1:
        lanes //= 2
        value = b.let("half", value)
        low, high = list(range(lanes)), list(range(lanes, 2 * lanes))
        value = combine(Shuffle([value], low), Shuffle([value], high))
    return value


def _span(indices: Sequence[Expr], lanes: int) -> list[Expr]:
    if lanes == 1:
        return list(indices)
    return [*indices[:-1], Ramp(indices[-1], 1, lanes)]
