"""Register tiles: how many pixels by how many channel vectors a kernel keeps in registers.

One step of the reduction loads one weight vector per channel block and broadcasts one value per
pixel, and multiplies each with each. The tile is chosen by the port that such a step fills first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from veltair.runtime.manifest import LANES

REGISTERS = {"x86-64-v4": 32, "x86-64-v3": 16}
_LATENCY_CYCLES = 4  # of one fused multiply-add
MAX_BLOCKS = 6
# Cycles a tile spends outside its reduction, per accumulator: initial value, epilogue, store.
_EDGE_CYCLES = 3.0
# Weights are read once a tile. Up to this size they stay in L1; beyond, they stream from L2.
_L1_WEIGHT_BYTES = 18 << 10
_L2_BYTES_PER_CYCLE = 24.0
# Bytes a cycle at which weights arrive from beyond L2.
WEIGHT_BYTES_PER_CYCLE = 6.0


@dataclass(frozen=True, kw_only=True)
class Tile:
    """Pixels, `rows` of `columns`, by channel vectors that are accumulated together."""

    rows: int
    columns: int
    blocks: int

    @property
    def pixels(self) -> int:
        """Pixels of the tile."""
        return self.rows * self.columns


@dataclass(frozen=True, kw_only=True)
class Span:
    """`count` consecutive pieces of `size`, the first at `start`."""

    start: int
    size: int
    count: int


def spans(total: int, most: int) -> tuple[Span, ...]:
    """Cuts `total` into the fewest pieces of at most `most`, as even as possible."""
    pieces = math.ceil(total / most)
    size, larger = divmod(total, pieces)
    cut = []
    if larger:
        cut.append(Span(start=0, size=size + 1, count=larger))
    cut.append(Span(start=larger * (size + 1), size=size, count=pieces - larger))
    return tuple(cut)


def chunks(total: int, size: int) -> tuple[Span, ...]:
    """Cuts `total` into pieces of `size` and a smaller last one."""
    full, rest = divmod(total, size)
    cut = [Span(start=0, size=size, count=full)] if full else []
    if rest:
        cut.append(Span(start=full * size, size=rest, count=1))
    return tuple(cut)


def choose_tile(rows: int, columns: int, blocks: int, steps: int, isa: str) -> Tile:
    """The tile of least estimated time for an output of `rows` by `columns` by `blocks` vectors.

    A tile of several rows spans all columns.

    Args:
        rows: output rows.
        columns: output columns.
        blocks: output channel vectors.
        steps: length of the reduction.
        isa: instruction set.
    """
    return min(
        tiles(rows, columns, blocks, isa),
        key=lambda tile: (
            round(total_cycles(rows, columns, blocks, steps, tile, isa)),
            -tile.pixels,
        ),
    )


def total_cycles(rows: int, columns: int, blocks: int, steps: int, tile: Tile, isa: str) -> float:
    """Estimated cycles of a whole output on one core."""
    total = 0.0
    for row in chunks(rows, tile.rows):
        for column in spans(columns, tile.columns):
            for block in chunks(blocks, tile.blocks):
                piece = Tile(rows=row.size, columns=column.size, blocks=block.size)
                cycles = steps * _step_cycles(piece, steps, isa)
                cycles += _EDGE_CYCLES * piece.pixels * piece.blocks
                total += cycles * row.count * column.count * block.count
    return total


def fits(tile: Tile, isa: str) -> bool:
    """Whether a tile's sums, weights and broadcast value have registers."""
    needed = tile.pixels * tile.blocks + min(tile.blocks, tile.pixels) + 1
    return needed <= REGISTERS[isa]


def tiles(rows: int, columns: int, blocks: int, isa: str) -> Iterator[Tile]:
    """All tiles of an output that fit the registers; one of several rows spans all columns."""
    most = REGISTERS[isa]
    for b in range(1, min(MAX_BLOCKS, blocks) + 1):
        for c in range(1, min(most, columns) + 1):
            for r in range(1, min(most // c, rows) + 1 if c == columns else 2):
                tile = Tile(rows=r, columns=c, blocks=b)
                if fits(tile, isa):
                    yield tile


def _step_cycles(tile: Tile, steps: int, isa: str) -> float:
    """One reduction step: two multiply-adds and two loads a cycle, or what bounds it otherwise."""
    vector_bytes = 4 * LANES[isa]
    loads = tile.pixels + tile.blocks
    cycles = max(tile.pixels * tile.blocks / 2, loads / 2, _LATENCY_CYCLES)
    if steps * tile.blocks * vector_bytes > _L1_WEIGHT_BYTES:
        cycles = max(cycles, tile.blocks * vector_bytes / _L2_BYTES_PER_CYCLE)
    return cycles


def pass_count(units: int, unit_steps: int, width: int) -> int:
    """Passes over a reduction whose weights shall stay in L1 while several tiles use them.

    Args:
        units: extent of the reduction's outermost loop; the result divides it.
        unit_steps: steps of one iteration of it.
        width: floats of one step's weights.
    """
    fitting = [d for d in divisors(units) if 4 * d * unit_steps * width <= _L1_WEIGHT_BYTES]
    return units // max(fitting, default=1)


def divisor_at_most(value: int, most: int) -> int:
    """The largest divisor of `value` that is at most `most`."""
    return next(d for d in range(min(value, most), 0, -1) if value % d == 0)


def divisors(value: int) -> list[int]:
    """All divisors, ascending."""
    return [d for d in range(1, value + 1) if value % d == 0]
