"""Batched matrix product of two activations, any strides."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm import tirx
from tvm.tirx import PrimFunc

from veltair.compiler.kernels.epilogue import Epilogue, suffix
from veltair.compiler.kernels.loops import Buffer, Expr, Loops, load, splat
from veltair.compiler.kernels.microkernel import accumulate, accumulators
from veltair.compiler.kernels.spec import LANES, BatchMatmulSpec, Kernel
from veltair.compiler.kernels.tasks import split_index
from veltair.compiler.kernels.tiling import Tile, choose_tile, chunks, spans


def build_batch_matmul(spec: BatchMatmulSpec, isa: str) -> Kernel:
    """A product of which a task copies some columns of `b` into tile order, then meets all rows.

    The copy makes transposed and partial columns the common case; it costs one element a row.
    """
    lanes = LANES[isa]
    *batch, rows, steps = spec.a.shape
    columns = spec.b.shape[-1]
    blocks = math.ceil(columns / lanes)
    tile = choose_tile(1, rows, blocks, steps, isa)
    emitter = _Emitter(spec, lanes, tile)
    extents = {f"n{i}": size for i, size in enumerate(batch)}
    extents["chunk"] = math.ceil(blocks / tile.blocks)
    extent = math.prod(extents.values())
    b = emitter.b
    with b.loop(extent, "task", "parallel") as task:
        at = split_index(b, task, extents)
        emitter.chunk([at[f"n{i}"] for i in range(len(batch))], at["chunk"])
    return Kernel(
        func=emitter.function(),
        variant_id=f"batch_matmul_n{tile.blocks}x{lanes}_m{tile.columns}_p{extent}"
        + suffix(spec.epilogue),
        algorithm="batch_matmul",
        parallel_extent=extent,
        tile_bytes=4 * steps * (tile.columns + tile.blocks * lanes),
    )


class _Emitter:
    """Emits one batched product."""

    def __init__(self, spec: BatchMatmulSpec, lanes: int, tile: Tile) -> None:
        self.b = b = Loops(lanes)
        self._spec, self._lanes, self._shape = spec, lanes, tile
        self._rows, self._steps = spec.a.shape[-2:]
        self._columns = spec.b.shape[-1]
        self._left = b.buffer("a", spec.a, aligned=False)
        self._right = b.buffer("b", spec.b, aligned=False)
        self._epilogue = Epilogue(b, spec.epilogue, self._columns, aligned=False)
        self._output = b.buffer("output", spec.output, aligned=False)

    def function(self) -> PrimFunc:
        """The PrimFunc."""
        operands = self._epilogue.buffers
        return self.b.function([self._left, self._right, *operands, self._output])

    def chunk(self, n: Sequence[Expr], chunk: Expr) -> None:
        """All rows of one chunk of columns; the last chunk may be narrower."""
        size = self._shape.blocks * self._lanes
        cases = chunks(self._columns, size)
        if len(cases) == 1:
            self._columns_of(n, chunk * size, cases[0].size)
            return
        full, rest = cases
        with self.b.branch(chunk < full.count):
            self._columns_of(n, chunk * size, size)
        with self.b.branch(chunk >= full.count):
            self._columns_of(n, tirx.const(rest.start, "int32"), rest.size)

    def _columns_of(self, n: Sequence[Expr], first: Expr, count: int) -> None:
        b = self.b
        blocks = math.ceil(count / self._lanes)
        panel = b.scratch("panel", self._steps * blocks * self._lanes)
        self._copy(panel, n, first, count, blocks)
        for span in spans(self._rows, self._shape.columns):
            with b.loop(span.count, "i") as i:
                row = b.let("row", i * span.size + span.start)
                self._tile(panel, n, row, span.size, first, count)

    def _copy(self, panel: Buffer, n: Sequence[Expr], first: Expr, count: int, blocks: int) -> None:
        """Fills the panel: [step][column], zeros past the last column."""
        b, width = self.b, blocks * self._lanes
        with b.loop(self._steps, "k") as k:
            start = k * width
            if self._spec.b.strides[-1] == 1:
                for offset in range(0, count, self._lanes):
                    self._copy_vector(panel, n, k, first, start, offset, count)
                return
            with b.loop(count, "j") as j:
                b.store(panel, [start + j], load(self._right, [*n, k, first + j]))
            for offset in range(count, width):
                b.store(panel, [start + offset], splat(0.0, 1))

    def _copy_vector(
        self,
        panel: Buffer,
        n: Sequence[Expr],
        k: Expr,
        first: Expr,
        start: Expr,
        offset: int,
        count: int,
    ) -> None:
        b, taken = self.b, min(self._lanes, count - offset)
        done = 0
        while done < taken:
            width = 1 << ((taken - done).bit_length() - 1)
            at = offset + done
            b.store(panel, [start + at], load(self._right, [*n, k, first + at], width))
            done += width
        for rest in range(taken, self._lanes):
            b.store(panel, [start + offset + rest], splat(0.0, 1))

    def _tile(
        self, panel: Buffer, n: Sequence[Expr], row: Expr, rows: int, first: Expr, count: int
    ) -> None:
        b, lanes = self.b, self._lanes
        blocks = math.ceil(count / lanes)
        registers = accumulators(b, [[splat(0.0, lanes)] * blocks] * rows, lanes)

        def data(p: int, k: Expr) -> Expr:
            return load(self._left, [*n, row + p, k])

        def weight(o: int, k: Expr) -> Expr:
            return load(panel, [(k * blocks + o) * lanes], lanes)

        accumulate(b, registers, [("k", self._steps)], data, weight)
        for p, of_row in enumerate(registers):
            for o, register in enumerate(of_row):
                valid = min(lanes, count - o * lanes)
                self._store(register.get(), [*n, row + p, first + o * lanes], valid)

    def _store(self, value: Expr, where: list[Expr], count: int) -> None:
        b = self.b
        unit = self._spec.output.strides[-1] == 1
        for start, piece in b.pieces(value, count) if unit else b.elements(value, count):
            at = [*where[:-1], where[-1] + start]
            b.store(self._output, at, self._epilogue.apply_all(piece, at[-1], at))
