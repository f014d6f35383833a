"""Direct 2-D convolution with register tiles, dense and grouped, packed output.

The whole reduction of a tile of pixels by channel vectors runs in registers. A task is one chunk of
output channels by some rows; the larger of weights and activations is walked by the outer part of
the task index, so that the smaller stays in cache while the larger streams once.
"""

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
from veltair.compiler.kernels.spec import LANES, ConvSpec, Kernel, View
from veltair.compiler.kernels.tasks import per_task, split_index
from veltair.compiler.kernels.tiling import (
    WEIGHT_BYTES_PER_CYCLE,
    Span,
    Tile,
    choose_tile,
    chunks,
    divisors,
    spans,
    total_cycles,
)


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """The loop structure of one convolution."""

    lanes: int
    inner: int  # channels within an input block: lanes, or 1 where the data is plain
    in_blocks: int  # of one group
    out_blocks: int  # of one group
    rows: int  # output rows, several merged into one where the image is contiguous
    columns: int
    flat: bool
    tile: Tile
    row_tiles_per_task: int
    weights_outer: bool

    @property
    def row_tiles(self) -> int:
        return math.ceil(self.rows / self.tile.rows)

    @property
    def chunk_count(self) -> int:
        return math.ceil(self.out_blocks / self.tile.blocks)

    @property
    def row_tasks(self) -> int:
        return self.row_tiles // self.row_tiles_per_task


def build_direct(spec: ConvSpec, isa: str) -> Kernel:
    """A direct convolution whose output is vectorised over channels."""
    plan = _plan(spec, isa)
    emitter = _Emitter(spec, plan)
    kh, kw = spec.kernel
    tile = plan.tile
    shape = f"{tile.rows}x{tile.columns}" if tile.rows > 1 else f"{tile.columns}"
    extent = spec.batch * spec.groups * plan.chunk_count * plan.row_tasks
    steps = plan.in_blocks * plan.inner * kh * kw
    data_bytes = 4 * spec.in_channels // spec.groups * tile.rows * tile.columns * kh * kw
    return Kernel(
        func=emitter.function(),
        variant_id=f"conv{kh}x{kw}_direct_oc{tile.blocks}x{plan.lanes}_px{shape}_p{extent}"
        + suffix(spec.epilogue),
        algorithm="direct" if spec.groups == 1 else "grouped",
        parallel_extent=extent,
        tile_bytes=4 * steps * tile.blocks * plan.lanes + data_bytes,
        pack_weight=emitter.pack_weight,
        pack_channel=pad_channels(spec.groups * plan.out_blocks * plan.lanes),
    )


def direct_cycles(spec: ConvSpec, isa: str) -> float:
    """Estimated cycles of the direct convolution on one core."""
    plan = _plan(spec, isa)
    steps = plan.in_blocks * plan.inner * math.prod(spec.kernel)
    compute = total_cycles(plan.rows, plan.columns, plan.out_blocks, steps, plan.tile, isa)
    weights = 4 * spec.groups * plan.out_blocks * plan.lanes * steps
    return spec.batch * spec.groups * compute + weights / WEIGHT_BYTES_PER_CYCLE


def _plan(spec: ConvSpec, isa: str) -> _Plan:
    lanes = LANES[isa]
    inner = 1 if spec.data_plain else lanes
    in_blocks = math.ceil(spec.in_channels // spec.groups / inner)
    out_blocks = math.ceil(spec.out_channels // spec.groups / lanes)
    steps = in_blocks * inner * math.prod(spec.kernel)
    flat = _is_flat(spec)
    rows, columns = _merge_rows(spec, out_blocks, steps, isa) if flat else spec.out_hw
    tile = choose_tile(rows, columns, out_blocks, steps, isa)
    row_tiles = math.ceil(rows / tile.rows)
    others = spec.batch * spec.groups * math.ceil(out_blocks / tile.blocks)
    unit_ops = columns * tile.rows * steps * tile.blocks
    weight_elements = spec.groups * out_blocks * lanes * steps
    return _Plan(
        lanes=lanes,
        inner=inner,
        in_blocks=in_blocks,
        out_blocks=out_blocks,
        rows=rows,
        columns=columns,
        flat=flat,
        tile=tile,
        row_tiles_per_task=per_task(row_tiles, others, unit_ops),
        weights_outer=weight_elements >= math.prod(spec.data.shape),
    )


def _is_flat(spec: ConvSpec) -> bool:
    """Whether neighbouring output rows continue each other, in the data, output and operands."""
    if spec.kernel != (1, 1) or spec.strides != (1, 1):
        return False
    views = [spec.data, spec.output, *(s.view for s in spec.epilogue if s.view is not None)]
    return all(
        view.shape[2:4] == spec.out_hw and view.strides[2] == view.shape[3] * view.strides[3]
        for view in views
    )


def _merge_rows(spec: ConvSpec, blocks: int, steps: int, isa: str) -> tuple[int, int]:
    """Rows and columns after merging rows: the fewest merged that are within 2 % of the best."""
    height, width = spec.out_hw
    cost: dict[int, float] = {}
    for k in divisors(height):
        rows, columns = height // k, width * k
        tile = choose_tile(rows, columns, blocks, steps, isa)
        cost[k] = total_cycles(rows, columns, blocks, steps, tile, isa)
    best = min(cost.values())
    k = next(k for k in cost if cost[k] <= 1.02 * best)
    return height // k, width * k


class _Emitter:
    """Emits one convolution."""

    def __init__(self, spec: ConvSpec, plan: _Plan) -> None:
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
        extent = spec.batch * spec.groups * plan.chunk_count * plan.row_tasks
        with b.loop(extent, "task", "parallel") as task:
            n, group, chunk, rows = self._coordinates(task)
            with b.loop(plan.row_tiles_per_task, "row_tile") as i:
                row_tile = rows * plan.row_tiles_per_task + i
                self._cases(n, group, chunk, row_tile)
        return b.function([self._data, self._weight, *self._epilogue.buffers, self._output])

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
        plan, spec = self._plan, self._spec
        steps = plan.in_blocks * plan.inner * math.prod(spec.kernel)
        return spec.groups * plan.out_blocks * plan.lanes * steps

    def _coordinates(self, task: Expr) -> tuple[Expr, Expr, Expr, Expr]:
        """Sample, group, channel chunk and row task of a task index."""
        b, plan, spec = self._b, self._plan, self._spec
        extents = {"n": spec.batch, "group": spec.groups}
        if plan.weights_outer:
            extents = {**extents, "chunk": plan.chunk_count, "rows": plan.row_tasks}
        else:
            extents = {**extents, "rows": plan.row_tasks, "chunk": plan.chunk_count}
        found = split_index(b, task, extents)
        return found["n"], found["group"], found["chunk"], found["rows"]

    def _cases(self, n: Expr, group: Expr, chunk: Expr, row_tile: Expr) -> None:
        """One body a size of tile: whole and last in rows and in channels."""
        b, plan = self._b, self._plan
        row_cases = chunks(plan.rows, plan.tile.rows)
        chunk_cases = chunks(plan.out_blocks, plan.tile.blocks)
        for row_case in row_cases:
            for chunk_case in chunk_cases:
                conditions = []
                if len(row_cases) > 1:
                    conditions.append(_within(row_tile, row_case, plan.tile.rows))
                if len(chunk_cases) > 1:
                    conditions.append(_within(chunk, chunk_case, plan.tile.blocks))
                if not conditions:
                    self._row(n, group, chunk, row_tile, row_case.size, chunk_case.size)
                    continue
                with b.branch(tirx.all(*conditions)):
                    self._row(n, group, chunk, row_tile, row_case.size, chunk_case.size)

    def _row(
        self, n: Expr, group: Expr, chunk: Expr, row_tile: Expr, rows: int, blocks: int
    ) -> None:
        b, plan = self._b, self._plan
        row = b.let("row", row_tile * plan.tile.rows)
        first = b.let("first", group * plan.out_blocks + chunk * plan.tile.blocks)
        for span in spans(plan.columns, plan.tile.columns):
            with b.loop(span.count, "col_tile") as i:
                column = b.let("column", i * span.size + span.start)
                tile = Tile(rows=rows, columns=span.size, blocks=blocks)
                self._tile(n, group, first, row, column, tile)

    def _tile(self, n: Expr, group: Expr, first: Expr, row: Expr, column: Expr, tile: Tile) -> None:
        """Accumulates and stores one tile; `first` is its first output channel block."""
        b, plan, spec = self._b, self._plan, self._spec
        lanes = plan.lanes
        channels = [b.let("channel", (first + o) * lanes) for o in range(tile.blocks)]
        initial = [self._epilogue.initial(channel, lanes) for channel in channels]
        registers = accumulators(b, tile.pixels, initial, lanes)
        steps = plan.in_blocks * plan.inner * math.prod(spec.kernel)
        weights = b.let("weights", first * (steps * lanes))
        (kh, kw), (sh, sw), (dh, dw) = spec.kernel, spec.strides, spec.dilations

        def data(p: int, cb: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
            i, j = divmod(p, tile.columns)
            where = [(row + i) * sh + y * dh, (column + j) * sw + x * dw]
            return self._load_data(n, group * plan.in_blocks + cb, where, c)

        def weight(o: int, cb: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
            step = ((cb * kh + y) * kw + x) * plan.inner + c
            return load(self._weight, [weights + (step * tile.blocks + o) * lanes], lanes)

        reduction = [("cb", plan.in_blocks), ("y", kh), ("x", kw), ("c", plan.inner)]
        accumulate(b, registers, reduction, data, weight)
        for p, of_pixel in enumerate(registers):
            i, j = divmod(p, tile.columns)
            for o, register in enumerate(of_pixel):
                where = [n, first + o, row + i, column + j]
                self._store(register.get(), channels[o], where)

    def _load_data(self, n: Expr, block: Expr, where: list[Expr], lane: Expr) -> Expr:
        if self._plan.flat:
            where = self._unmerge(where, self._spec.data)
        if self._spec.data_plain:
            return load(self._data, [n, block, *where])
        return load(self._data, [n, block, *where, lane])

    def _store(self, value: Expr, channel: Expr, where: list[Expr]) -> None:
        n, block, *pixel = where
        if self._plan.flat:
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
