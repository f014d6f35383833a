"""The inner kernel that convolution and matrix product share: an outer product in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from veltair.compiler.kernels.loops import Expr, Loops, Register, splat
from veltair.compiler.kernels.tiling import divisor_at_most

# Steps of the reduction emitted one after another: hides the loop's own cost, and stays small
# enough that LLVM keeps the order and spills nothing.
_UNROLL = 4


def accumulators(
    b: Loops, pixels: int, initial: Sequence[Expr], lanes: int
) -> list[list[Register]]:
    """Registers [pixel][block], each set to its block's initial value."""
    values = [b.let("start", value) for value in initial]
    registers = [[b.register("acc", lanes) for _ in values] for _ in range(pixels)]
    for row in registers:
        for register, value in zip(row, values, strict=True):
            b.set(register, value)
    return registers


def accumulate(
    b: Loops,
    registers: Sequence[Sequence[Register]],
    reduction: Sequence[tuple[str, int]],
    data: Callable[..., Expr],
    weight: Callable[..., Expr],
) -> None:
    """Adds data times weight over the reduction to every register.

    Args:
        b: emitter.
        registers: [pixel][block].
        reduction: name and extent of each reduction loop, outermost first; the last is unrolled.
        data: pixel and the reduction's indices to a scalar.
        weight: block and the reduction's indices to a vector.
    """
    *outer, (name, extent) = reduction
    unroll = divisor_at_most(extent, _UNROLL)
    with ExitStack() as stack:
        indices = [stack.enter_context(b.loop(size, each)) for each, size in outer]
        last = stack.enter_context(b.loop(extent // unroll, name))
        for u in range(unroll):
            _step(b, registers, data, weight, [*indices, last * unroll + u])


def _step(
    b: Loops,
    registers: Sequence[Sequence[Register]],
    data: Callable[..., Expr],
    weight: Callable[..., Expr],
    indices: Sequence[Expr],
) -> None:
    vectors = [b.let("w", weight(o, *indices)) for o in range(len(registers[0]))]
    for p, row in enumerate(registers):
        value = splat(data(p, *indices), b.lanes)
        for register, vector in zip(row, vectors, strict=True):
            b.set(register, register.get() + value * vector)
