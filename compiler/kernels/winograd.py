"""3x3 convolution of unit stride by Winograd's minimal filtering.

Tiles of the input are transformed, multiplied channel by channel for each of the transform's points
as one matrix product a point, and transformed back. The weights are transformed at compile time; in
exchange for fewer multiplications there are more of them to read.

Reference: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2016.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from tvm import tirx
from tvm.tirx import PrimFunc

from veltair.compiler.kernels.choices import UNROLL, WinogradChoice, require
from veltair.compiler.kernels.epilogue import Epilogue, pad_channels, suffix
from veltair.compiler.kernels.loops import Expr, Loops, load, splat
from veltair.compiler.kernels.microkernel import Ahead, accumulate, accumulators
from veltair.compiler.kernels.spec import ConvSpec, Kernel
from veltair.compiler.kernels.tasks import split_index
from veltair.compiler.kernels.tiling import (
    WEIGHT_BYTES_PER_CYCLE,
    Tile,
    choose_tile,
    chunks,
    divisors,
    fits,
    spans,
    total_cycles,
)
from veltair.compiler.kernels.winograd_transform import TRANSFORMS, Transform, combine
from veltair.runtime.manifest import LANES

# The least gain in estimated time that is worth the transforms' rounding.
_MIN_GAIN = 1.15
# What stays in a core's L2, for the estimate, and at how many bytes a cycle the transformed tiles
# are written and read back where they don't.
_L2_BYTES = 1 << 20
_TILE_BYTES_PER_CYCLE = 12.0
# Between the stages, by all cores together; half of it by each core that has its own.
MOST_SCRATCH_BYTES = 16 << 20


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The loop structure of one convolution: blocks of tile rows, each in three stages.

    A block is of rows of one sample, or of all rows of several. Where a sample's rows are no
    multiple of a block's, its last block begins earlier and computes some of them again.
    """

    transform: Transform
    lanes: int
    in_blocks: int
    out_blocks: int
    samples: int
    tile_rows: int
    tile_columns: int
    rows_per_block: int
    tile: Tile
    whole: bool = False
    unroll: int = UNROLL

    @property
    def blocks(self) -> int:
        """Blocks of tile rows in all samples."""
        if self.rows_per_block >= self.tile_rows:
            return self.samples * self.tile_rows // self.rows_per_block
        return self.samples * self.blocks_per_sample

    @property
    def blocks_per_sample(self) -> int:
        """Blocks of tile rows, where a block has no more than a sample."""
        return math.ceil(self.tile_rows / self.rows_per_block)

    @property
    def block_tiles(self) -> int:
        """Tiles of one block."""
        return self.rows_per_block * self.tile_columns

    @property
    def steps(self) -> int:
        """Length of the products' reduction."""
        return self.in_blocks * self.lanes

    @property
    def tile_bytes(self) -> int:
        """Size of one block's transformed data and products."""
        vectors = self.block_tiles * (self.in_blocks + self.out_blocks)
        return 4 * self.transform.points**2 * vectors * self.lanes

    @property
    def scratch_fits(self) -> bool:
        """Whether the memory between the stages is no more than a server's worker has to spare."""
        return self.tile_bytes <= MOST_SCRATCH_BYTES // (2 if self.whole else 1)

    @property
    def weight_elements(self) -> int:
        """Size of the transformed weights."""
        return self.transform.points**2 * self.steps * self.out_blocks * self.lanes


def applies(spec: ConvSpec) -> bool:
    """Whether the convolution is one that these kernels compute."""
    shape = (spec.kernel, spec.strides, spec.dilations, spec.groups)
    packed = not (spec.data_plain or spec.output_plain)
    return packed and shape == ((3, 3), (1, 1), (1, 1), 1)


def choose_plan(spec: ConvSpec, isa: str, direct_cycles: float) -> Plan | None:
    """The transform of least estimated time, if it clearly beats the direct kernel's."""
    if not applies(spec):
        return None
    plans = [
        make_plan(spec, isa, transform, rows)
        for transform in TRANSFORMS.values()
        for rows in block_rows(spec, transform.size)
    ]
    fitting = [plan for plan in plans if plan.scratch_fits]
    if not fitting:
        return None
    cycles, plan = min(
        ((winograd_cycles(plan, isa), plan) for plan in fitting), key=lambda pair: pair[0]
    )
    return plan if cycles * _MIN_GAIN < direct_cycles else None


def block_rows(spec: ConvSpec, size: int) -> list[int]:
    """How many rows of tiles a block can have: a sample's in equal parts, or those of samples."""
    rows = math.ceil(spec.out_hw[0] / size)
    parts = {math.ceil(rows / count) for count in range(1, rows + 1)}
    return sorted({*parts, *(rows * samples for samples in divisors(spec.batch))})


def build_winograd(spec: ConvSpec, plan: Plan) -> Kernel:
    """A 3x3 convolution through the plan's transform."""
    emitter = _Emitter(spec, plan)
    extent = parallel_extent(plan)
    tile = f"oc{plan.tile.blocks}x{plan.lanes}_t{plan.tile.columns}_r{plan.rows_per_block}"
    unusual = ("_w" if plan.whole else "") + (f"_u{plan.unroll}" if plan.unroll != UNROLL else "")
    # Between its stages a block's transformed tiles wait in the cache; so do the weights where
    # several blocks read them.
    panel = plan.steps * plan.tile.blocks * plan.lanes
    weights = plan.weight_elements if plan.blocks > 1 else panel
    return Kernel(
        func=emitter.function(),
        variant_id=f"conv3x3_winograd{plan.transform.size}_{tile}{unusual}_p{extent}"
        + suffix(spec.epilogue),
        algorithm="winograd",
        parallel_extent=extent,
        tile_bytes=4 * weights + plan.tile_bytes,
        unroll=plan.tile.columns * plan.tile.blocks,
        pack_weight=emitter.pack_weight,
        pack_channel=pad_channels(plan.out_blocks * plan.lanes),
    )


def parallel_extent(plan: Plan) -> int:
    """Tasks of the parallel loop; of the products', where each stage has its own."""
    if plan.whole:
        return plan.blocks
    return plan.transform.points**2 * math.ceil(plan.out_blocks / plan.tile.blocks)


def make_plan(
    spec: ConvSpec, isa: str, transform: Transform, rows_per_block: int, tile: Tile | None = None
) -> Plan:
    """The loop structure with so many tile rows a block; None: the tile of least estimated time."""
    lanes = LANES[isa]
    in_blocks, out_blocks = (
        math.ceil(channels / lanes) for channels in (spec.in_channels, spec.out_channels)
    )
    rows, columns = (math.ceil(size / transform.size) for size in spec.out_hw)
    tiles = rows_per_block * columns
    return Plan(
        transform=transform,
        lanes=lanes,
        in_blocks=in_blocks,
        out_blocks=out_blocks,
        samples=spec.batch,
        tile_rows=rows,
        tile_columns=columns,
        rows_per_block=rows_per_block,
        tile=tile or choose_tile(1, tiles, out_blocks, in_blocks * lanes, isa),
    )


def plan_of(spec: ConvSpec, isa: str, choice: WinogradChoice) -> Plan:
    """The loop structure of a choice.

    Raises:
        ValueError: the choice doesn't fit the convolution.
    """
    require(applies(spec), "not a dense 3x3 convolution of stride 1 on packed data")
    require(choice.size in TRANSFORMS, f"no transform of size {choice.size}")
    tile = Tile(rows=1, columns=choice.columns, blocks=choice.blocks)
    plan = make_plan(spec, isa, TRANSFORMS[choice.size], choice.tile_rows, tile)
    possible = block_rows(spec, choice.size)
    require(choice.tile_rows in possible, f"{choice.tile_rows} rows of tiles: any of {possible}")
    require(0 < tile.columns <= plan.block_tiles and fits(tile, isa), f"tiles {tile.columns}")
    require(0 < tile.blocks <= plan.out_blocks and choice.unroll > 0, f"blocks {tile.blocks}")
    plan = replace(plan, whole=choice.whole, unroll=choice.unroll)
    require(plan.scratch_fits, f"{plan.tile_bytes} bytes between the stages")
    return plan


def choice_of(plan: Plan) -> WinogradChoice:
    """The choice that makes this plan."""
    return WinogradChoice(
        size=plan.transform.size,
        tile_rows=plan.rows_per_block,
        columns=plan.tile.columns,
        blocks=plan.tile.blocks,
        whole=plan.whole,
        unroll=plan.unroll,
    )


def winograd_cycles(plan: Plan, isa: str) -> float:
    """Estimated cycles on one core."""
    points = plan.transform.points**2
    blocks = plan.blocks
    product = total_cycles(1, plan.block_tiles, plan.out_blocks, plan.steps, plan.tile, isa)
    # A transform loads and stores each point and combines it twice, by rows and by columns.
    channels = plan.in_blocks + plan.out_blocks
    transforms = 3 * points * plan.block_tiles * channels
    cycles = blocks * (points * product + transforms)
    weight_bytes, tile_bytes = 4 * plan.weight_elements, plan.tile_bytes
    # Weights come from beyond L2 once, or once a block where they don't stay.
    stays = weight_bytes + tile_bytes <= _L2_BYTES
    cycles += weight_bytes * (1 if stays else blocks) / WEIGHT_BYTES_PER_CYCLE
    if tile_bytes > _L2_BYTES:
        cycles += 2 * blocks * tile_bytes / _TILE_BYTES_PER_CYCLE
    return cycles


class _Emitter:
    """Emits one convolution."""

    def __init__(self, spec: ConvSpec, plan: Plan) -> None:
        self._spec, self._plan = spec, plan
        self._stage = "serial" if plan.whole else "parallel"
        self._b = b = Loops(plan.lanes)
        self._data = b.buffer("data", spec.data)
        self._weight = b.flat("weight", plan.weight_elements)
        channels = plan.out_blocks * plan.lanes
        self._epilogue = Epilogue(b, spec.epilogue, channels, aligned=True)
        self._output = b.buffer("output", spec.output)
        point = plan.block_tiles * plan.lanes
        self._point_in, self._point_out = plan.in_blocks * point, plan.out_blocks * point

    def function(self) -> PrimFunc:
        """The PrimFunc."""
        b, plan = self._b, self._plan
        if plan.whole:
            with b.loop(plan.blocks, "task", "parallel") as block:
                self._allocate()  # each task's own
                self._block(block)
        else:
            self._allocate()
            with b.loop(plan.blocks, "block") as block:
                self._block(block)
        return b.function([self._data, self._weight, *self._epilogue.buffers, self._output])

    def _allocate(self) -> None:
        points = self._plan.transform.points**2
        self._tiles_in = self._b.scratch("tiles_in", points * self._point_in)
        self._tiles_out = self._b.scratch("tiles_out", points * self._point_out)

    def _block(self, block: Expr) -> None:
        """All three stages of a block of tile rows."""
        plan = self._plan
        first_row = self._b.let("first_row", self._first_row(block))
        self._each_tile("in", plan.in_blocks, first_row, self._transform_in)
        self._multiply()
        self._each_tile("out", plan.out_blocks, first_row, self._transform_out)

    def _first_row(self, block: Expr) -> Expr:
        """Of a block, among the tile rows of all samples."""
        plan = self._plan
        if plan.rows_per_block >= plan.tile_rows or plan.tile_rows % plan.rows_per_block == 0:
            return block * plan.rows_per_block
        at = split_index(self._b, block, {"of": plan.samples, "part": plan.blocks_per_sample})
        last = tirx.const(plan.tile_rows - plan.rows_per_block, "int32")
        return at["of"] * plan.tile_rows + tirx.Min(at["part"] * plan.rows_per_block, last)

    def pack_weight(self, weight: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """float32[OC, IC, 3, 3] to chunks a point of [IC, OC block, OC], transformed."""
        plan = self._plan
        oc, ic = weight.shape[:2]
        lanes, points = plan.lanes, plan.transform.points**2
        g = np.asarray(plan.transform.weight, np.float64)
        u = np.einsum("yi,ocij,xj->yxco", g, weight.astype(np.float64), g)
        padding = (plan.steps - ic, plan.out_blocks * lanes - oc)
        u = np.pad(u, ((0, 0), (0, 0), (0, padding[0]), (0, padding[1])))
        u = u.reshape(points, plan.steps, plan.out_blocks, lanes).astype(np.float32)
        size = plan.tile.blocks
        return np.concatenate(
            [
                u[point, :, start : start + size].reshape(-1)
                for point in range(points)
                for start in range(0, plan.out_blocks, size)
            ]
        )

    def _each_tile(
        self,
        name: str,
        channel_blocks: int,
        first_row: Expr,
        body: Callable[[Expr, Expr, Expr, Expr, Expr], None],
    ) -> None:
        """Calls `body` for sample, channel block, tile row and column, and tile of the block."""
        b, plan = self._b, self._plan
        extents = {"channels": channel_blocks, "row": plan.rows_per_block}
        with b.loop(math.prod(extents.values()), f"task_{name}", self._stage) as task:
            at = split_index(b, task, extents)
            rows = {"n": plan.samples, "row": plan.tile_rows}
            of = split_index(b, b.let("row_of_all", first_row + at["row"]), rows)
            with b.loop(plan.tile_columns, "column") as column:
                tile = at["row"] * plan.tile_columns + column
                body(of["n"], at["channels"], of["row"], column, tile)

    def _transform_in(
        self, n: Expr, block: Expr, tile_row: Expr, tile_column: Expr, tile: Expr
    ) -> None:
        b, transform = self._b, self._plan.transform
        row = b.let("row", tile_row * transform.size)
        column = b.let("column", tile_column * transform.size)
        height, width = self._spec.data.shape[2:4]
        rows = [self._clamp(row, y, height, self._spec.out_hw[0]) for y in self._range()]
        columns = [self._clamp(column, x, width, self._spec.out_hw[1]) for x in self._range()]
        across = []
        for y in rows:
            line = [load(self._data, [n, block, y, x, 0], b.lanes) for x in columns]
            across.append(combine(b, transform.data, [b.let("d", value) for value in line]))
        where = b.let("where", (block * self._plan.block_tiles + tile) * b.lanes)
        for x in self._range():
            down = combine(b, transform.data, [line[x] for line in across])
            for y, value in enumerate(down):
                point = y * transform.points + x
                b.store(self._tiles_in, [where + point * self._point_in], value)

    def _transform_out(
        self, n: Expr, block: Expr, tile_row: Expr, tile_column: Expr, tile: Expr
    ) -> None:
        b, transform = self._b, self._plan.transform
        where = b.let("where", (block * self._plan.block_tiles + tile) * b.lanes)
        down = []
        for x in self._range():
            points = [(y * transform.points + x) * self._point_out for y in self._range()]
            line = [b.let("m", load(self._tiles_out, [where + p], b.lanes)) for p in points]
            down.append(combine(b, transform.output, line))
        row, column = (
            b.let(name, at * transform.size)
            for name, at in (("row", tile_row), ("column", tile_column))
        )
        for y in range(transform.size):
            values = combine(b, transform.output, [line[y] for line in down])
            for x, value in enumerate(values):
                self._store(value, [n, block, row + y, column + x, 0], y, x)

    def _store(self, value: Expr, where: list[Expr], y: int, x: int) -> None:
        """Stores one output vector, unless its tile hangs over the output's edge there."""
        b, size = self._b, self._plan.transform.size
        conditions = [
            where[axis] < extent
            for axis, offset, extent in zip((2, 3), (y, x), self._spec.out_hw, strict=True)
            if extent % size and offset >= extent % size
        ]
        channel = where[1] * b.lanes
        if not conditions:
            b.store(self._output, where, self._epilogue.apply_all(value, channel, where))
            return
        value = b.let("value", value)
        with b.branch(tirx.all(*conditions)):
            b.store(self._output, where, self._epilogue.apply_all(value, channel, where))

    def _clamp(self, start: Expr, offset: int, extent: int, out_extent: int) -> Expr:
        """An index of the data; past its end, where only unused outputs look, the last one."""
        if out_extent % self._plan.transform.size == 0:
            return start + offset
        return self._b.let("clamped", tirx.Min(start + offset, tirx.const(extent - 1, "int32")))

    def _range(self) -> range:
        return range(self._plan.transform.points)

    def _multiply(self) -> None:
        """One matrix product a point: tiles by input channels, by output channels."""
        b, plan = self._b, self._plan
        cases = chunks(plan.out_blocks, plan.tile.blocks)
        extents = {
            "point": plan.transform.points**2,
            "chunk": sum(case.count for case in cases),
        }
        with b.loop(math.prod(extents.values()), "product", self._stage) as task:
            at = split_index(b, task, extents)
            if len(cases) == 1:
                self._panel(at["point"], at["chunk"], cases[0].size)
                return
            full, rest = cases
            with b.branch(at["chunk"] < full.count):
                self._panel(at["point"], at["chunk"], full.size)
            with b.branch(at["chunk"] >= full.count):
                self._panel(at["point"], at["chunk"], rest.size)

    def _panel(self, point: Expr, chunk: Expr, blocks: int) -> None:
        b, plan = self._b, self._plan
        first = b.let("first", chunk * plan.tile.blocks)
        pieces = spans(plan.block_tiles, plan.tile.columns)
        count, done = sum(span.count for span in pieces), 0
        weights = (point * plan.out_blocks + first) * (plan.steps * b.lanes)
        weights = b.let("weights", weights)
        size = plan.steps * blocks * b.lanes
        for span in pieces:
            with b.loop(span.count, "i") as i:
                tile = b.let("tile", i * span.size + span.start)
                ahead = Ahead(
                    weight=self._weight, start=weights + size, size=size, tile=i + done, tiles=count
                )
                self._product(point, first, tile, span.size, blocks, weights, ahead)
            done += span.count

    def _product(
        self,
        point: Expr,
        first: Expr,
        tile: Expr,
        tiles: int,
        blocks: int,
        weights: Expr,
        ahead: Ahead,
    ) -> None:
        """Multiplies some tiles with one panel of weights."""
        b, plan, lanes = self._b, self._plan, self._b.lanes
        source = b.let("source", point * self._point_in + tile * lanes)
        target = b.let("target", point * self._point_out + tile * lanes)
        row = plan.block_tiles * lanes

        def data(p: int, block: Expr, channel: Expr) -> Expr:
            return load(self._tiles_in, [source + block * row + (p * lanes + channel)])

        def weight(o: int, block: Expr, channel: Expr) -> Expr:
            step = block * lanes + channel
            return load(self._weight, [weights + (step * blocks + o) * lanes], lanes)

        registers = accumulators(b, [[splat(0.0, lanes)] * blocks] * tiles, lanes)
        reduction = [("block", plan.in_blocks), ("channel", lanes)]
        accumulate(b, registers, reduction, data, weight, ahead, plan.unroll)
        for p, of_tile in enumerate(registers):
            for o, register in enumerate(of_tile):
                b.store(self._tiles_out, [target + (first + o) * row + p * lanes], register.get())
