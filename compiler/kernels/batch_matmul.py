"""Batched matrix product of two activations, any strides."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tvm import tirx
from tvm.tirx import PrimFunc

from veltair.compiler.kernels import matmul
from veltair.compiler.kernels.choices import UNROLL, MatmulChoice, require
from veltair.compiler.kernels.epilogue import Epilogue, suffix
from veltair.compiler.kernels.loops import Buffer, Expr, Loops, load, splat
from veltair.compiler.kernels.matmul import Plan
from veltair.compiler.kernels.microkernel import accumulate, accumulators
from veltair.compiler.kernels.spec import BatchMatmulSpec, Kernel, MatmulSpec
from veltair.compiler.kernels.tasks import split_index
from veltair.compiler.kernels.tiling import choose_tile, chunks, spans
from veltair.runtime.manifest import LANES


def product_of(spec: BatchMatmulSpec) -> MatmulSpec:
    """One product of the batch."""
    (m, k), n = spec.a.shape[-2:], spec.b.shape[-1]
    return MatmulSpec(m=m, k=k, n=n, data=spec.a, output=spec.output)


def choice_of(spec: BatchMatmulSpec, isa: str) -> MatmulChoice:
    """The tile by estimate; a task takes all rows."""
    one = product_of(spec)
    tile = choose_tile(1, one.m, math.ceil(one.n / LANES[isa]), one.k, isa)
    pieces = sum(span.count for span in spans(one.m, tile.columns))
    return MatmulChoice(rows=tile.columns, blocks=tile.blocks, pieces=pieces)


def plan_of(spec: BatchMatmulSpec, isa: str, choice: MatmulChoice) -> Plan:
    """The loop structure of a choice, of one product.

    Raises:
        ValueError: the choice doesn't fit the product.
    """
    require(choice.passes == 1, "a batched product has one pass")
    return matmul.plan_of(product_of(spec), isa, choice)


def build_batch_matmul(
    spec: BatchMatmulSpec, isa: str, choice: MatmulChoice | None = None
) -> Kernel:
    """A product of which a task copies some columns of `b` into tile order, then meets its rows.

    The copy makes transposed and partial columns the common case; it costs one element a row.

    Raises:
        ValueError: the choice doesn't fit the product.
    """
    plan = plan_of(spec, isa, choice_of(spec, isa) if choice is None else choice)
    *batch, _, steps = spec.a.shape
    emitter = _Emitter(spec, plan)
    extents = {f"n{i}": size for i, size in enumerate(batch)}
    extents["chunks"] = plan.chunk_tasks
    extents["rows"] = plan.pieces // plan.pieces_per_task
    extent = math.prod(extents.values())
    b, tile = emitter.b, plan.tile
    with b.loop(extent, "task", "parallel") as task:
        at = split_index(b, task, extents)
        n = [at[f"n{i}"] for i in range(len(batch))]
        with b.loop(plan.chunks_per_task, "chunk") as i:
            emitter.chunk(n, b.let("chunk", at["chunks"] * plan.chunks_per_task + i), at["rows"])
    unusual = [
        f"_r{plan.pieces_per_task}" if plan.pieces_per_task < plan.pieces else "",
        f"_c{plan.chunks_per_task}" if plan.chunks_per_task > 1 else "",
        f"_u{plan.unroll}" if plan.unroll != UNROLL else "",
    ]
    rows = min(plan.pieces_per_task * tile.columns, spec.a.shape[-2])
    return Kernel(
        func=emitter.function(),
        variant_id=f"batch_matmul_n{tile.blocks}x{plan.lanes}_m{tile.columns}"
        + "".join(unusual)
        + f"_p{extent}"
        + suffix(spec.epilogue),
        algorithm="batch_matmul",
        parallel_extent=extent,
        tile_bytes=4 * steps * (rows + tile.blocks * plan.lanes),
        unroll=tile.pixels * tile.blocks,
    )


class _Emitter:
    """Emits one batched product."""

    def __init__(self, spec: BatchMatmulSpec, plan: Plan) -> None:
        self.b = b = Loops(plan.lanes)
        self._spec, self._lanes, self._plan = spec, plan.lanes, plan
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

    def chunk(self, n: Sequence[Expr], chunk: Expr, rows: Expr) -> None:
        """A task's rows of one chunk of columns; the last chunk may be narrower."""
        size = self._plan.tile.blocks * self._lanes
        cases = chunks(self._columns, size)
        if len(cases) == 1:
            self._columns_of(n, chunk * size, cases[0].size, rows)
            return
        full, rest = cases
        with self.b.branch(chunk < full.count):
            self._columns_of(n, chunk * size, size, rows)
        with self.b.branch(chunk >= full.count):
            self._columns_of(n, tirx.const(rest.start, "int32"), rest.size, rows)

    def _columns_of(self, n: Sequence[Expr], first: Expr, count: int, rows: Expr) -> None:
        b = self.b
        blocks = math.ceil(count / self._lanes)
        panel = b.scratch("panel", self._steps * blocks * self._lanes)
        self._copy(panel, n, first, count, blocks)
        for row, size in self._walk(rows):
            self._tile(panel, n, row, size, first, count)

    def _walk(self, rows: Expr) -> Iterator[tuple[Expr, int]]:
        """First row and size of a task's tiles; each is emitted once a size of tile."""
        b, plan = self.b, self._plan
        cases = spans(self._rows, plan.tile.columns)
        if plan.pieces_per_task == plan.pieces:
            for span in cases:
                with b.loop(span.count, "i") as i:
                    yield b.let("row", i * span.size + span.start), span.size
            return
        with b.loop(plan.pieces_per_task, "i") as i:
            number = b.let("number", rows * plan.pieces_per_task + i)
            done = 0
            for span in cases:
                row = (number - done) * span.size + span.start
                inside = tirx.all(number >= done, number < done + span.count)
                done += span.count
                with b.branch(inside):
                    yield b.let("row", row), span.size

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

        reduction = [("k", self._steps)]
        accumulate(b, registers, reduction, data, weight, most=self._plan.unroll)
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
