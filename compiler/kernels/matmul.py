"""Matrix product with a constant weight, packed at compile time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from tvm import tirx
from tvm.tirx import PrimFunc

from veltair.compiler.kernels.epilogue import Epilogue, pad_channels, suffix
from veltair.compiler.kernels.loops import Expr, Loops, load
from veltair.compiler.kernels.microkernel import accumulate, accumulators
from veltair.compiler.kernels.spec import LANES, Kernel, MatmulSpec
from veltair.compiler.kernels.tasks import per_task, split_index
from veltair.compiler.kernels.tiling import Tile, choose_tile, spans


@dataclass(frozen=True, kw_only=True)
class _Chunk:
    """`count` chunks of `blocks` column vectors, of which the last stores `lanes` lanes."""

    first: int
    count: int
    blocks: int
    last_lanes: int


def build_matmul(spec: MatmulSpec, isa: str) -> Kernel:
    """A product whose weight is constant; one row is a stream of the weights."""
    lanes = LANES[isa]
    blocks = math.ceil(spec.n / lanes)
    tile = choose_tile(1, spec.m, blocks, spec.k, isa)
    pieces = sum(span.count for span in spans(spec.m, tile.columns))
    chunk_count = math.ceil(blocks / tile.blocks)
    taken = per_task(pieces, chunk_count, tile.columns * tile.blocks * spec.k)
    emitter = _Emitter(spec, lanes, tile)
    extents = {"chunk": chunk_count, "rows": pieces // taken}
    if spec.m > spec.n:
        extents = dict(reversed(extents.items()))
    extent = chunk_count * (pieces // taken)
    b = emitter.b
    with b.loop(extent, "task", "parallel") as task:
        at = split_index(b, task, extents)
        with b.loop(taken, "i") as i:
            emitter.cases(at["chunk"], at["rows"] * taken + i)
    return Kernel(
        func=emitter.function(),
        variant_id=f"matmul_n{tile.blocks}x{lanes}_m{tile.columns}_p{extent}"
        + suffix(spec.epilogue),
        algorithm="matmul",
        parallel_extent=extent,
        tile_bytes=4 * spec.k * (tile.columns + tile.blocks * lanes),
        pack_weight=emitter.pack_weight,
        pack_channel=pad_channels(blocks * lanes),
    )


class _Emitter:
    """Emits one matrix product."""

    def __init__(self, spec: MatmulSpec, lanes: int, tile: Tile) -> None:
        self.b = b = Loops(lanes)
        self._spec, self._lanes, self._tile_shape = spec, lanes, tile
        self._blocks = math.ceil(spec.n / lanes)
        self._data = b.buffer("data", spec.data, aligned=False)
        self._weight = b.flat("weight", spec.k * self._blocks * lanes)
        self._epilogue = Epilogue(b, spec.epilogue, self._blocks * lanes, aligned=False)
        self._output = b.buffer("output", spec.output, aligned=False)

    def function(self) -> PrimFunc:
        """The PrimFunc."""
        return self.b.function([self._data, self._weight, *self._epilogue.buffers, self._output])

    def pack_weight(self, weight: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """float32[K, N] to chunks of [K, column block, column]."""
        n = weight.shape[1]
        w = np.pad(np.asarray(weight, np.float32), ((0, 0), (0, self._blocks * self._lanes - n)))
        size = self._tile_shape.blocks * self._lanes
        return np.concatenate([w[:, i : i + size].reshape(-1) for i in range(0, w.shape[1], size)])

    def cases(self, chunk: Expr, piece: Expr) -> None:
        """One body a size of tile, in rows and in columns."""
        b = self.b
        row_cases = spans(self._spec.m, self._tile_shape.columns)
        chunk_cases = self._chunks()
        done = 0
        for rows in row_cases:
            for case in chunk_cases:
                conditions = []
                if len(row_cases) > 1:
                    conditions += [piece >= done, piece < done + rows.count]
                if len(chunk_cases) > 1:
                    conditions += [chunk >= case.first, chunk < case.first + case.count]
                if not conditions:
                    self._tile(chunk, piece * rows.size, rows.size, case)
                    continue
                with b.branch(tirx.all(*conditions)):
                    row = (piece - done) * rows.size + rows.start
                    self._tile(chunk, row, rows.size, case)
            done += rows.count

    def _chunks(self) -> list[_Chunk]:
        """Chunk sizes; the last column's vector may be partial, which is a case of its own."""
        size, lanes = self._tile_shape.blocks, self._lanes
        total = math.ceil(self._blocks / size)
        last = self._blocks - (total - 1) * size
        last_lanes = self._spec.n - (self._blocks - 1) * lanes
        if last == size and last_lanes == lanes:
            return [_Chunk(first=0, count=total, blocks=size, last_lanes=lanes)]
        cut = [_Chunk(first=total - 1, count=1, blocks=last, last_lanes=last_lanes)]
        if total > 1:
            cut.insert(0, _Chunk(first=0, count=total - 1, blocks=size, last_lanes=lanes))
        return cut

    def _tile(self, chunk: Expr, row: Expr, rows: int, case: _Chunk) -> None:
        b, lanes, k = self.b, self._lanes, self._spec.k
        row = b.let("row", row)
        first = b.let("first", chunk * self._tile_shape.blocks)
        columns = [b.let("column", (first + o) * lanes) for o in range(case.blocks)]
        initial = [b.let("bias", self._epilogue.initial(column, lanes)) for column in columns]
        registers = accumulators(b, [initial] * rows, lanes)
        weights = b.let("weights", first * (k * lanes))

        def data(p: int, step: Expr) -> Expr:
            return load(self._data, [row + p, step])

        def weight(o: int, step: Expr) -> Expr:
            return load(self._weight, [weights + (step * case.blocks + o) * lanes], lanes)

        accumulate(b, registers, [("k", k)], data, weight)
        for p, of_row in enumerate(registers):
            for o, register in enumerate(of_row):
                stored = case.last_lanes if o == case.blocks - 1 else lanes
                self._store(register.get(), row + p, columns[o], stored)

    def _store(self, value: Expr, row: Expr, column: Expr, lanes: int) -> None:
        b, where = self.b, [row, column]
        if lanes == self._lanes or not self._epilogue.tensor_operand:
            value = self._epilogue.apply(value, column, where)
            b.store_part(self._output, where, value, lanes)
            return
        for start, piece in b.pieces(value, lanes):
            at = [row, column + start]
            b.store(self._output, at, self._epilogue.apply(piece, column + start, at))
