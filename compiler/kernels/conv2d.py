"""Direct 2-D convolution with register tiles, dense and grouped, packed output.

The whole reduction of a tile of pixels by channel vectors runs in registers. A task is some chunks
of output channels by some rows. By default the larger of weights and activations is walked by the
outer part of the task index, so that the smaller stays in cache while the larger streams once.

Where few tiles share a chunk of weights, reading it from memory takes as long as computing. The
reduction then runs in passes: all tiles meet a block of weights that fits in L1, while the next
block is being fetched, and keep partial sums in between.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from tvm import tirx
from tvm.tirx import PrimFunc

from veltair.compiler.kernels.choices import UNROLL, DirectChoice
from veltair.compiler.kernels.direct_plan import Plan, make_plan
from veltair.compiler.kernels.epilogue import Epilogue, pad_channels, suffix
from veltair.compiler.kernels.loops import Expr, Loops, load
from veltair.compiler.kernels.microkernel import (
    Ahead,
    Passes,
    Registers,
    Stream,
    accumulate,
    reduce_tiles,
)
from veltair.compiler.kernels.spec import ConvSpec, Kernel, View
from veltair.compiler.kernels.tasks import split_index
from veltair.compiler.kernels.tiling import Span, chunks, spans


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where a chunk of output channels is: sample, group and first output block."""

    n: Expr
    group: Expr
    first: Expr
    blocks: int


@dataclass(frozen=True, kw_only=True)
class _Piece:
    """One tile of pixels: its first row and column, its size, and its number in the task."""

    row: Expr
    column: Expr
    rows: int
    columns: int
    index: Expr

    @property
    def pixels(self) -> list[tuple[int, int]]:
        """Row and column of each pixel, from the tile's first."""
        return [(i, j) for i in range(self.rows) for j in range(self.columns)]

    @property
    def size(self) -> int:
        """Pixels of the tile."""
        return self.rows * self.columns


def build_direct(spec: ConvSpec, isa: str, choice: DirectChoice | None = None) -> Kernel:
    """A direct convolution whose output is vectorised over channels.

    Raises:
        ValueError: the choice doesn't fit the convolution.
    """
    plan = make_plan(spec, isa, choice)
    emitter = _Emitter(spec, plan)
    extent = spec.batch * spec.groups * plan.chunk_tasks * plan.row_tasks
    return Kernel(
        func=emitter.function(),
        variant_id=f"{_stem(spec, plan)}_p{extent}" + suffix(spec.epilogue),
        algorithm="direct" if spec.groups == 1 else "grouped",
        parallel_extent=extent,
        tile_bytes=_block_bytes(spec, plan),
        unroll=plan.tile.pixels * plan.tile.blocks,
        pack_weight=emitter.pack_weight,
        pack_channel=pad_channels(spec.groups * plan.out_blocks * plan.lanes),
    )


def _stem(spec: ConvSpec, plan: Plan) -> str:
    """The decisions as the variant's id says them; what is usual stays unsaid."""
    kh, kw = spec.kernel
    tile = plan.tile
    shape = f"{tile.rows}x{tile.columns}" if tile.rows > 1 else f"{tile.columns}"
    merged = spec.out_hw[0] // plan.rows
    unusual = [
        f"_m{merged}" if merged > 1 else "",
        f"_r{plan.row_tiles_per_task}" if plan.row_tiles_per_task > 1 else "",
        f"_c{plan.chunks_per_task}" if plan.chunks_per_task > 1 else "",
        f"_k{plan.passes}" if plan.passes > 1 else "",
        f"_u{plan.unroll}" if plan.unroll != UNROLL else "",
        f"_f{plan.prefetch}" if plan.prefetch else "",
        "_wo" if plan.weights_outer else "",
    ]
    return f"conv{kh}x{kw}_direct_oc{tile.blocks}x{plan.lanes}_px{shape}" + "".join(unusual)


def _block_bytes(spec: ConvSpec, plan: Plan) -> int:
    """What a task uses again and again: its weights and data of one pass, and partial sums."""
    (kh, kw), (sh, sw), (dh, dw) = spec.kernel, spec.strides, spec.dilations
    rows = min(plan.row_tiles_per_task * plan.tile.rows, plan.rows)
    data_rows = (rows - 1) * sh + (kh - 1) * dh + 1
    data_columns = (plan.columns - 1) * sw + (kw - 1) * dw + 1
    channels = plan.in_blocks * plan.inner // plan.passes
    width = plan.chunks_per_task * plan.tile.blocks * plan.lanes
    weights = plan.frame.steps // plan.passes * width
    sums = plan.tiles_per_task * plan.tile.pixels * width if plan.passes > 1 else 0
    return 4 * (weights + channels * data_rows * data_columns + sums)


class _Emitter:
    """Emits one convolution."""

    def __init__(self, spec: ConvSpec, plan: Plan) -> None:
        self._spec, self._plan = spec, plan
        self._b = Loops(plan.lanes)
        self._data = self._b.buffer("data", spec.data, aligned=not spec.data_plain)
        self._weight = self._b.flat("weight", self._weight_size())
        channels = spec.groups * plan.out_blocks * plan.lanes
        aligned = not spec.output_plain
        self._epilogue = Epilogue(self._b, spec.epilogue, channels, aligned=aligned)
        self._output = self._b.buffer("output", spec.output, aligned=aligned)

    def function(self) -> PrimFunc:
        """The PrimFunc."""
        b, plan, spec = self._b, self._plan, self._spec
        extent = spec.batch * spec.groups * plan.chunk_tasks * plan.row_tasks
        with b.loop(extent, "task", "parallel") as task:
            n, group, chunks_at, rows = self._coordinates(task)
            with b.loop(plan.chunks_per_task, "chunk") as i:
                chunk = b.let("chunk", chunks_at * plan.chunks_per_task + i)
                self._cases(n, group, chunk, rows)
        return b.function([self._data, self._weight, *self._epilogue.buffers, self._output])

    def _cases(self, n: Expr, group: Expr, chunk: Expr, rows: Expr) -> None:
        """A chunk of either size: the last may be smaller."""
        b, plan = self._b, self._plan
        cases = chunks(plan.out_blocks, plan.tile.blocks)
        first = b.let("first", group * plan.out_blocks + chunk * plan.tile.blocks)
        for case in cases:
            place = _Place(n=n, group=group, first=first, blocks=case.size)
            if len(cases) == 1:
                self._chunk(place, rows)
                continue
            with b.branch(_within(chunk, case, plan.tile.blocks)):
                self._chunk(place, rows)

    def pack_weight(self, weight: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """float32[OC, IC/groups, KH, KW] to chunks of [IC block, KH, KW, IC, OC block, OC]."""
        plan, groups = self._plan, self._spec.groups
        oc, ic, kh, kw = weight.shape
        pad_out = plan.out_blocks * plan.lanes - oc // groups
        pad_in = plan.in_blocks * plan.inner - ic
        w = np.asarray(weight, np.float32).reshape(groups, oc // groups, ic, kh, kw)
        w = np.pad(w, ((0, 0), (0, pad_out), (0, pad_in), (0, 0), (0, 0)))
        w = w.reshape(groups, plan.out_blocks, plan.lanes, plan.in_blocks, plan.inner, kh, kw)
        w = w.transpose(0, 3, 5, 6, 4, 1, 2)
        packed = [
            w[g, ..., start : start + plan.tile.blocks, :].reshape(-1)
            for g in range(groups)
            for start in range(0, plan.out_blocks, plan.tile.blocks)
        ]
        return np.concatenate(packed)

    def _weight_size(self) -> int:
        plan = self._plan
        return self._spec.groups * plan.out_blocks * plan.lanes * self._steps()

    def _coordinates(self, task: Expr) -> tuple[Expr, Expr, Expr, Expr]:
        """Sample, group, chunk task and row task of a task index."""
        b, plan, spec = self._b, self._plan, self._spec
        extents = {"n": spec.batch, "group": spec.groups}
        if plan.weights_outer:
            extents = {**extents, "chunk": plan.chunk_tasks, "rows": plan.row_tasks}
        else:
            extents = {**extents, "rows": plan.row_tasks, "chunk": plan.chunk_tasks}
        found = split_index(b, task, extents)
        return found["n"], found["group"], found["chunk"], found["rows"]

    def _chunk(self, place: _Place, rows: Expr) -> None:
        """A chunk of output channels by a task's rows."""
        b, plan = self._b, self._plan
        lanes = plan.lanes
        channels = [b.let("channel", (place.first + o) * lanes) for o in range(place.blocks)]
        bias = [b.let("bias", self._epilogue.initial(channel, lanes)) for channel in channels]
        steps = self._steps()
        passes = Passes(
            count=plan.passes,
            tiles=plan.tiles_per_task,
            pixels=plan.tile.pixels,
            weight=self._weight,
            start=b.let("weights", place.first * (steps * lanes)),
            block=steps // plan.passes * place.blocks * lanes,
        )

        def add(registers: Registers, piece: _Piece, i: Expr, ahead: Ahead | None) -> None:
            self._accumulate(registers, place, piece, i, ahead)

        def finish(registers: Registers, piece: _Piece) -> None:
            self._finish(registers, place, piece)

        def walk(body: Callable[[_Piece], None]) -> None:
            self._walk(rows, body)

        reduce_tiles(b, passes, bias, walk, add, finish)

    def _walk(self, rows: Expr, body: Callable[[_Piece], None]) -> None:
        """Calls `body` for the tiles of a task; it is emitted once a size of tile."""
        b, plan = self._b, self._plan
        cases = chunks(plan.rows, plan.tile.rows)
        with b.loop(plan.row_tiles_per_task, "row_tile") as i:
            row_tile = b.let("row_tile", rows * plan.row_tiles_per_task + i)
            for case in cases:
                if len(cases) == 1:
                    self._walk_row(row_tile, i, case.size, body)
                    continue
                with b.branch(_within(row_tile, case, plan.tile.rows)):
                    self._walk_row(row_tile, i, case.size, body)

    def _walk_row(
        self, row_tile: Expr, local: Expr, rows: int, body: Callable[[_Piece], None]
    ) -> None:
        b, plan = self._b, self._plan
        row = b.let("row", row_tile * plan.tile.rows)
        done = 0
        for span in spans(plan.columns, plan.tile.columns):
            with b.loop(span.count, "col_tile") as i:
                body(
                    _Piece(
                        row=row,
                        column=b.let("column", i * span.size + span.start),
                        rows=rows,
                        columns=span.size,
                        index=b.let("index", local * plan.tiles_per_row + i + done),
                    )
                )
            done += span.count

    def _accumulate(
        self,
        registers: Registers,
        place: _Place,
        piece: _Piece,
        part: Expr,
        ahead: Ahead | None,
    ) -> None:
        """Adds one pass over the input blocks to a tile's registers."""
        b, plan, spec = self._b, self._plan, self._spec
        lanes, pixels = plan.lanes, piece.pixels
        weights = b.let("weights", place.first * (self._steps() * lanes))
        (kh, kw), (sh, sw), (dh, dw) = spec.kernel, spec.strides, spec.dilations
        count = plan.in_blocks // plan.passes
        first = part * count

        def data(p: int, cb: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
            i, j = pixels[p]
            where = [(piece.row + i) * sh + y * dh, (piece.column + j) * sw + x * dw]
            block = place.group * plan.in_blocks + first + cb
            return self._load_data(place.n, block, where, c)

        width = place.blocks * lanes

        def at(cb: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
            step = (((first + cb) * kh + y) * kw + x) * plan.inner + c
            return weights + step * width

        def weight(o: int, cb: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
            return load(self._weight, [at(cb, y, x, c) + o * lanes], lanes)

        stream = Stream(weight=self._weight, at=at, width=width, steps=plan.prefetch)
        reduction = [("cb", count), ("y", kh), ("x", kw), ("c", plan.inner)]
        accumulate(
            b,
            registers,
            reduction,
            data,
            weight,
            ahead or (stream if plan.prefetch else None),
            plan.unroll,
        )

    def _finish(self, registers: Registers, place: _Place, piece: _Piece) -> None:
        """Applies the epilogue to a tile and stores it."""
        for (i, j), of_pixel in zip(piece.pixels, registers, strict=True):
            for o, register in enumerate(of_pixel):
                where = [place.n, place.first + o, piece.row + i, piece.column + j]
                self._store(register.get(), (place.first + o) * self._plan.lanes, where)

    def _steps(self) -> int:
        """Length of the whole reduction."""
        return self._plan.frame.steps

    def _load_data(self, n: Expr, block: Expr, where: list[Expr], lane: Expr) -> Expr:
        if self._plan.frame.flat:
            where = self._unmerge(where, self._spec.data)
        if self._spec.data_plain:
            return load(self._data, [n, block, *where])
        return load(self._data, [n, block, *where, lane])

    def _store(self, value: Expr, channel: Expr, where: list[Expr]) -> None:
        n, block, *pixel = where
        if self._plan.frame.flat:
            pixel = self._unmerge(pixel, self._spec.output)
        if self._spec.output_plain:
            self._scatter(value, channel, n, pixel)
            return
        where = [n, block, *pixel, 0]
        self._b.store(self._output, where, self._epilogue.apply(value, channel, where))

    def _scatter(self, value: Expr, channel: Expr, n: Expr, pixel: list[Expr]) -> None:
        """Stores a vector of channels into plain output, one by one."""
        b = self._b
        for lane, element in b.elements(value, self._plan.lanes):
            with b.branch(channel + lane < self._spec.out_channels):
                where = [n, channel + lane, *pixel]
                b.store(self._output, where, self._epilogue.apply(element, channel + lane, where))

    def _unmerge(self, where: list[Expr], view: View) -> list[Expr]:
        """A merged row and column to indices of the view with the same offset."""
        merged = self._plan.columns // view.shape[3]
        return [where[0] * merged, where[1]]


def _within(index: Expr, case: Span, size: int) -> Expr:
    first = case.start // size
    return tirx.all(index >= first, index < first + case.count)
