"""The inner kernel that convolution and matrix product share: an outer product in registers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tvm import tirx

from veltair.compiler.kernels.choices import UNROLL
from veltair.compiler.kernels.loops import Buffer, Expr, Loops, Register, load, splat
from veltair.compiler.kernels.tiling import divisor_at_most

Registers = Sequence[Sequence[Register]]

_LINE_FLOATS = 16


@dataclass(frozen=True, kw_only=True)
class Ahead:
    """Prefetches the weights that follow those in use, spread over the tiles that use them.

    The tiles of a block of weights meet it one after another. The first would wait for memory and
    the others would not use it; so each tile fetches its share of the next block meanwhile.

    Attributes:
        weight: the weights, flat.
        start: index of the next block.
        size: its floats.
        tile: which of the tiles runs.
        tiles: how many there are.
    """

    weight: Buffer
    start: Expr
    size: int
    tile: Expr
    tiles: int


@dataclass(frozen=True, kw_only=True)
class Stream:
    """Prefetches the weights of some steps later, which the processor may not expect.

    Attributes:
        weight: the weights, flat.
        at: the reduction's indices to the index of a step's first weight.
        width: floats of a step, one step after another.
        steps: how many later.
    """

    weight: Buffer
    at: Callable[..., Expr]
    width: int
    steps: int


class Partials:
    """Partial sums of a task's tiles between the passes of a reduction.

    Args:
        b: emitter.
        tiles: how many tiles.
        pixels: most pixels of one.
        initial: each block's initial value.
    """

    def __init__(self, b: Loops, tiles: int, pixels: int, initial: Sequence[Expr]) -> None:
        self._b, self._pixels, self._blocks = b, pixels, len(initial)
        self._sums = b.scratch("sums", tiles * pixels * len(initial) * b.lanes)
        with b.loop(tiles * pixels, "pixel") as pixel:
            for o, value in enumerate(initial):
                b.store(self._sums, [(pixel * self._blocks + o) * b.lanes], value)

    def load(self, tile: Expr, pixels: int) -> list[list[Register]]:
        """A tile's sums in registers."""
        b, blocks = self._b, range(self._blocks)
        sums = [
            [load(self._sums, self._at(tile, p, o), b.lanes) for o in blocks] for p in range(pixels)
        ]
        return accumulators(b, sums, b.lanes)

    def store(self, tile: Expr, registers: Registers) -> None:
        """Keeps a tile's sums."""
        for p, of_pixel in enumerate(registers):
            for o, register in enumerate(of_pixel):
                self._b.store(self._sums, self._at(tile, p, o), register.get())

    def _at(self, tile: Expr, pixel: int, block: int) -> list[Expr]:
        return [((tile * self._pixels + pixel) * self._blocks + block) * self._b.lanes]


class Piece(Protocol):
    """A tile of pixels in a task."""

    @property
    def index(self) -> Expr:
        """Its number in the task."""

    @property
    def size(self) -> int:
        """Its pixels."""


@dataclass(frozen=True, kw_only=True)
class Passes:
    """How the tiles of a task share a chunk of weights.

    Attributes:
        count: passes over the reduction.
        tiles: tiles of the task.
        pixels: most pixels of a tile.
        weight: the weights, flat.
        start: index of the chunk's first.
        block: floats of one pass.
    """

    count: int
    tiles: int
    pixels: int
    weight: Buffer
    start: Expr
    block: int


PieceT = TypeVar("PieceT", bound=Piece)


def reduce_tiles(
    b: Loops,
    passes: Passes,
    bias: Sequence[Expr],
    walk: Callable[[Callable[[PieceT], None]], None],
    add: Callable[[Registers, PieceT, Expr, Ahead | None], None],
    finish: Callable[[Registers, PieceT], None],
) -> None:
    """Reduces all tiles of a task, in one pass or in several with the next weights on their way.

    Args:
        b: emitter.
        passes: how many, over what.
        bias: what each block's sums start from.
        walk: emits a body for each tile of the task.
        add: adds one pass to a tile's registers.
        finish: stores a tile.
    """
    if passes.count == 1:

        def whole(piece: PieceT) -> None:
            registers = accumulators(b, [bias] * piece.size, b.lanes)
            add(registers, piece, tirx.const(0, "int32"), None)
            finish(registers, piece)

        walk(whole)
        return
    partials = Partials(b, passes.tiles, passes.pixels, bias)
    with b.loop(passes.count, "pass") as i:
        start = b.let("next", passes.start + (i + 1) * passes.block)

        def part(piece: PieceT) -> None:
            registers = partials.load(piece.index, piece.size)
            ahead = Ahead(
                weight=passes.weight,
                start=start,
                size=passes.block,
                tile=piece.index,
                tiles=passes.tiles,
            )
            add(registers, piece, i, ahead)
            partials.store(piece.index, registers)

        walk(part)
    walk(lambda piece: finish(partials.load(piece.index, piece.size), piece))


def accumulators(b: Loops, initial: Sequence[Sequence[Expr]], lanes: int) -> list[list[Register]]:
    """Registers [pixel][block], each set to its initial value."""
    registers = [[b.register("acc", lanes) for _ in values] for values in initial]
    for row, values in zip(registers, initial, strict=True):
        for register, value in zip(row, values, strict=True):
            b.set(register, value)
    return registers


def accumulate(
    b: Loops,
    registers: Registers,
    reduction: Sequence[tuple[str, int]],
    data: Callable[..., Expr],
    weight: Callable[..., Expr],
    ahead: Ahead | Stream | None = None,
    most: int = UNROLL,
) -> None:
    """Adds data times weight over the reduction to every register.

    Args:
        b: emitter.
        registers: [pixel][block].
        reduction: name and extent of each reduction loop, outermost first; the last is unrolled.
        data: pixel and the reduction's indices to a scalar.
        weight: block and the reduction's indices to a vector.
        ahead: what to prefetch meanwhile.
        most: steps emitted one after another: hides the loop's own cost, and is best kept small
            enough that LLVM keeps the order and spills nothing.
    """
    *outer, (name, extent) = reduction
    unroll = divisor_at_most(extent, most)
    sizes = [size for _, size in outer] + [extent // unroll]
    with ExitStack() as stack:
        indices = [stack.enter_context(b.loop(size, each)) for each, size in outer]
        last = stack.enter_context(b.loop(extent // unroll, name))
        if isinstance(ahead, Ahead):
            _prefetch(b, ahead, [*indices, last], sizes)
        if isinstance(ahead, Stream):
            start = ahead.at(*indices, last * unroll) + ahead.steps * ahead.width
            for i in range(math.ceil(unroll * ahead.width / _LINE_FLOATS)):
                b.prefetch(ahead.weight, start + i * _LINE_FLOATS)
        for u in range(unroll):
            _step(b, registers, data, weight, [*indices, last * unroll + u])


def _prefetch(b: Loops, ahead: Ahead, indices: Sequence[Expr], sizes: Sequence[int]) -> None:
    """One iteration's share of the next block's cache lines."""
    iterations = math.prod(sizes)
    lines = math.ceil(ahead.size / (_LINE_FLOATS * iterations * ahead.tiles))
    iteration = ahead.tile
    for index, size in zip(indices, sizes, strict=True):
        iteration = iteration * size + index
    for i in range(lines):
        b.prefetch(ahead.weight, ahead.start + (iteration * lines + i) * _LINE_FLOATS)


def _step(
    b: Loops,
    registers: Registers,
    data: Callable[..., Expr],
    weight: Callable[..., Expr],
    indices: Sequence[Expr],
) -> None:
    vectors = [b.let("w", weight(o, *indices)) for o in range(len(registers[0]))]
    for p, row in enumerate(registers):
        value = splat(data(p, *indices), b.lanes)
        for register, vector in zip(row, vectors, strict=True):
            b.set(register, register.get() + value * vector)
