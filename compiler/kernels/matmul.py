"""Matrix product with a constant weight, packed at compile time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from tvm import tirx
from tvm.tirx import PrimFunc

from veltair.compiler.kernels.choices import UNROLL, MatmulChoice, require
from veltair.compiler.kernels.epilogue import Epilogue, pad_channels, suffix
from veltair.compiler.kernels.loops import Expr, Loops, load
from veltair.compiler.kernels.microkernel import (
    Ahead,
    Passes,
    Registers,
    accumulate,
    reduce_tiles,
)
from veltair.compiler.kernels.spec import Kernel, MatmulSpec
from veltair.compiler.kernels.tasks import per_task, split_index
from veltair.compiler.kernels.tiling import (
    WEIGHT_BYTES_PER_CYCLE,
    Tile,
    choose_tile,
    fits,
    pass_count,
    spans,
    total_cycles,
)
from veltair.runtime.manifest import LANES

# A chunk of weights is read by one task as far as this many tasks remain.
_STREAMING_TASKS = 16
# With more tiles than this, fetching a chunk first is cheaper than keeping partial sums.
_MOST_STREAMING_TILES = 24
_PAST_A_PAGE = 1024  # floats; a processor's own prefetcher stops at the end of a page


@dataclass(frozen=True, kw_only=True)
class _Chunk:
    """`count` chunks of `blocks` column vectors, of which the last stores `lanes` lanes."""

    first: int
    count: int
    blocks: int
    last_lanes: int


@dataclass(frozen=True, kw_only=True)
class _Piece:
    """One tile of rows, and its number in the task."""

    row: Expr
    size: int
    index: Expr


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Tile, tasks and passes of one product."""

    lanes: int
    blocks: int
    tile: Tile
    pieces: int
    pieces_per_task: int
    chunks_per_task: int
    passes: int
    unroll: int

    @property
    def chunk_count(self) -> int:
        """Chunks of columns."""
        return math.ceil(self.blocks / self.tile.blocks)

    @property
    def chunk_tasks(self) -> int:
        """Tasks that share rows."""
        return self.chunk_count // self.chunks_per_task

    @property
    def extent(self) -> int:
        """Tasks."""
        return self.chunk_tasks * (self.pieces // self.pieces_per_task)


def build_matmul(spec: MatmulSpec, isa: str, choice: MatmulChoice | None = None) -> Kernel:
    """A product whose weight is constant; one row is a stream of the weights.

    Raises:
        ValueError: the choice doesn't fit the product.
    """
    plan = plan_of(spec, isa, choice_of(spec, isa) if choice is None else choice)
    emitter = _Emitter(spec, plan)
    return Kernel(
        func=emitter.function(),
        variant_id=f"{_stem(plan)}_p{plan.extent}" + suffix(spec.epilogue),
        algorithm="matmul",
        parallel_extent=plan.extent,
        tile_bytes=_block_bytes(spec, plan),
        unroll=plan.tile.pixels * plan.tile.blocks,
        pack_weight=emitter.pack_weight,
        pack_channel=pad_channels(plan.blocks * plan.lanes),
    )


def matmul_cycles(spec: MatmulSpec, isa: str, choice: MatmulChoice) -> float:
    """Estimated cycles on one core."""
    plan = plan_of(spec, isa, choice)
    compute = total_cycles(1, spec.m, plan.blocks, spec.k, plan.tile, isa)
    return compute + 4 * spec.k * plan.blocks * plan.lanes / WEIGHT_BYTES_PER_CYCLE


def choice_of(spec: MatmulSpec, isa: str) -> MatmulChoice:
    """Tile, tasks and passes by estimate."""
    lanes = LANES[isa]
    blocks = math.ceil(spec.n / lanes)
    tile = choose_tile(1, spec.m, blocks, spec.k, isa)
    pieces = sum(span.count for span in spans(spec.m, tile.columns))
    chunk_count = math.ceil(blocks / tile.blocks)
    unit_ops = tile.columns * tile.blocks * spec.k
    together = per_task(pieces, chunk_count, unit_ops, tasks=_STREAMING_TASKS)
    passes = 1
    if 1 < together <= _MOST_STREAMING_TILES:
        passes = pass_count(spec.k, 1, tile.blocks * lanes)
    else:
        together = per_task(pieces, chunk_count, unit_ops)
    return MatmulChoice(rows=tile.columns, blocks=tile.blocks, pieces=together, passes=passes)


def plan_of(spec: MatmulSpec, isa: str, choice: MatmulChoice) -> Plan:
    """The loop structure of a choice.

    Raises:
        ValueError: the choice doesn't fit the product.
    """
    tile = Tile(rows=1, columns=choice.rows, blocks=choice.blocks)
    blocks = math.ceil(spec.n / LANES[isa])
    require(0 < tile.columns <= spec.m and 0 < tile.blocks <= blocks, "a tile beyond the product")
    require(fits(tile, isa), f"no registers for {tile.columns} rows by {tile.blocks} vectors")
    plan = Plan(
        lanes=LANES[isa],
        blocks=blocks,
        tile=tile,
        pieces=sum(span.count for span in spans(spec.m, tile.columns)),
        pieces_per_task=choice.pieces,
        chunks_per_task=choice.chunks,
        passes=choice.passes,
        unroll=choice.unroll,
    )
    parts = [
        (plan.pieces, choice.pieces, "tiles of rows"),
        (plan.chunk_count, choice.chunks, "chunks"),
        (spec.k, choice.passes, "steps"),
    ]
    for whole, part, what in parts:
        require(part > 0 and whole % part == 0, f"{whole} {what} don't divide by {part}")
    require(choice.unroll > 0, "nothing unrolled")
    return plan


def _stem(plan: Plan) -> str:
    """The decisions as the variant's id says them; what is usual stays unsaid."""
    unusual = [
        f"_r{plan.pieces_per_task}" if plan.pieces_per_task > 1 else "",
        f"_c{plan.chunks_per_task}" if plan.chunks_per_task > 1 else "",
        f"_k{plan.passes}" if plan.passes > 1 else "",
        f"_u{plan.unroll}" if plan.unroll != UNROLL else "",
    ]
    return f"matmul_n{plan.tile.blocks}x{plan.lanes}_m{plan.tile.columns}" + "".join(unusual)


def _block_bytes(spec: MatmulSpec, plan: Plan) -> int:
    """What a task uses again and again: its weights and data of one pass, and partial sums."""
    rows = min(plan.pieces_per_task * plan.tile.columns, spec.m)
    width = plan.chunks_per_task * plan.tile.blocks * plan.lanes
    sums = rows * width if plan.passes > 1 else 0
    return 4 * (spec.k // plan.passes * (rows + width) + sums)


class _Emitter:
    """Emits one matrix product."""

    def __init__(self, spec: MatmulSpec, plan: Plan) -> None:
        self._b = b = Loops(plan.lanes)
        self._spec, self._plan = spec, plan
        self._data = b.buffer("data", spec.data, aligned=False)
        self._weight = b.flat("weight", spec.k * plan.blocks * plan.lanes)
        self._epilogue = Epilogue(b, spec.epilogue, plan.blocks * plan.lanes, aligned=False)
        self._output = b.buffer("output", spec.output, aligned=False)

    def function(self) -> PrimFunc:
        """The PrimFunc."""
        b, plan = self._b, self._plan
        extents = {"chunks": plan.chunk_tasks, "rows": plan.pieces // plan.pieces_per_task}
        if self._spec.m > self._spec.n:
            extents = dict(reversed(extents.items()))
        with b.loop(plan.extent, "task", "parallel") as task:
            at = split_index(b, task, extents)
            with b.loop(plan.chunks_per_task, "chunk") as i:
                chunk = b.let("chunk", at["chunks"] * plan.chunks_per_task + i)
                self._cases(chunk, at["rows"])
        return b.function([self._data, self._weight, *self._epilogue.buffers, self._output])

    def _cases(self, chunk: Expr, rows: Expr) -> None:
        """A chunk of either size: the last may be smaller."""
        cases = self._chunks()
        for case in cases:
            if len(cases) == 1:
                self._chunk(chunk, rows, case)
                continue
            inside = [chunk >= case.first, chunk < case.first + case.count]
            with self._b.branch(tirx.all(*inside)):
                self._chunk(chunk, rows, case)

    def pack_weight(self, weight: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """float32[K, N] to chunks of [K, column block, column]."""
        plan = self._plan
        width = plan.blocks * plan.lanes
        w = np.pad(np.asarray(weight, np.float32), ((0, 0), (0, width - weight.shape[1])))
        size = plan.tile.blocks * plan.lanes
        return np.concatenate([w[:, i : i + size].reshape(-1) for i in range(0, width, size)])

    def _chunks(self) -> list[_Chunk]:
        """Chunk sizes; the last column's vector may be partial, which is a case of its own."""
        size, lanes, blocks = self._plan.tile.blocks, self._plan.lanes, self._plan.blocks
        total = self._plan.chunk_count
        last = blocks - (total - 1) * size
        last_lanes = self._spec.n - (blocks - 1) * lanes
        if last == size and last_lanes == lanes:
            return [_Chunk(first=0, count=total, blocks=size, last_lanes=lanes)]
        cut = [_Chunk(first=total - 1, count=1, blocks=last, last_lanes=last_lanes)]
        if total > 1:
            cut.insert(0, _Chunk(first=0, count=total - 1, blocks=size, last_lanes=lanes))
        return cut

    def _chunk(self, chunk: Expr, rows: Expr, case: _Chunk) -> None:
        """A chunk of columns by a task's rows."""
        b, plan, k = self._b, self._plan, self._spec.k
        lanes = plan.lanes
        first = b.let("first", chunk * plan.tile.blocks)
        columns = [b.let("column", (first + o) * lanes) for o in range(case.blocks)]
        bias = [b.let("bias", self._epilogue.initial(column, lanes)) for column in columns]
        passes = Passes(
            count=plan.passes,
            tiles=plan.pieces_per_task,
            pixels=plan.tile.columns,
            weight=self._weight,
            start=b.let("weights", first * (k * lanes)),
            block=k // plan.passes * case.blocks * lanes,
        )

        def add(registers: Registers, piece: _Piece, i: Expr, ahead: Ahead | None) -> None:
            self._accumulate(registers, piece, i, passes, ahead)

        def finish(registers: Registers, piece: _Piece) -> None:
            for p, of_row in enumerate(registers):
                for o, register in enumerate(of_row):
                    stored = case.last_lanes if o == case.blocks - 1 else lanes
                    self._store(register.get(), piece.row + p, columns[o], stored)

        def walk(body: Callable[[_Piece], None]) -> None:
            self._walk(rows, body)

        reduce_tiles(b, passes, bias, walk, add, finish)

    def _walk(self, rows: Expr, body: Callable[[_Piece], None]) -> None:
        """Calls `body` for the tiles of a task; it is emitted once a size of tile."""
        b, plan = self._b, self._plan
        cases = spans(self._spec.m, plan.tile.columns)
        with b.loop(plan.pieces_per_task, "i") as i:
            number = b.let("number", rows * plan.pieces_per_task + i)
            done = 0
            for case in cases:
                row = (number - done) * case.size + case.start
                done += case.count
                if len(cases) == 1:
                    body(_Piece(row=b.let("row", row), size=case.size, index=i))
                    continue
                inside = tirx.all(number >= done - case.count, number < done)
                with b.branch(inside):
                    body(_Piece(row=b.let("row", row), size=case.size, index=i))

    def _accumulate(
        self, registers: Registers, piece: _Piece, part: Expr, passes: Passes, ahead: Ahead | None
    ) -> None:
        """Adds one pass over the reduction to a tile's registers."""
        b, lanes, count = self._b, self._plan.lanes, self._spec.k // passes.count
        blocks = len(registers[0])
        source = b.let("source", part * count)
        weights = b.let("source", passes.start + part * passes.block)
        if self._spec.m == 1:
            ahead = Ahead(
                weight=self._weight,
                start=weights + _PAST_A_PAGE,
                size=passes.block,
                tile=tirx.const(0, "int32"),
                tiles=1,
            )

        def data(p: int, step: Expr) -> Expr:
            return load(self._data, [piece.row + p, source + step])

        def weight(o: int, step: Expr) -> Expr:
            return load(self._weight, [weights + (step * blocks + o) * lanes], lanes)

        reduction = [("k", count)]
        accumulate(b, registers, reduction, data, weight, ahead, self._plan.unroll)

    def _store(self, value: Expr, row: Expr, column: Expr, lanes: int) -> None:
        b, where = self._b, [row, column]
        if lanes == self._plan.lanes or not self._epilogue.tensor_operand:
            value = self._epilogue.apply(value, column, where)
            b.store_part(self._output, where, value, lanes)
            return
        for start, piece in b.pieces(value, lanes):
            at = [row, column + start]
            b.store(self._output, at, self._epilogue.apply(piece, column + start, at))
