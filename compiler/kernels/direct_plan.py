"""The loop structure of a direct convolution."""

from __future__ import annotations

import math
from dataclasses import dataclass

from veltair.compiler.kernels.choices import DirectChoice, require
from veltair.compiler.kernels.spec import ConvSpec
from veltair.compiler.kernels.tasks import per_task
from veltair.compiler.kernels.tiling import (
    WEIGHT_BYTES_PER_CYCLE,
    Tile,
    choose_tile,
    divisors,
    fits,
    pass_count,
    spans,
    total_cycles,
)
from veltair.runtime.manifest import LANES

# Where the weights stream, a task has them all to itself as far as this many tasks remain.
_STREAMING_TASKS = 16
# With more tiles than this a chunk of weights is in use long enough that fetching it first is
# cheaper than keeping partial sums.
_MOST_STREAMING_TILES = 24


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What a convolution fixes before anything is chosen: its vectors.

    Attributes:
        lanes: of a vector.
        inner: channels within an input block: lanes, or 1 where the data is plain.
        in_blocks: of one group.
        out_blocks: of one group.
        steps: length of the whole reduction.
        flat: whether neighbouring output rows continue each other.
    """

    lanes: int
    inner: int
    in_blocks: int
    out_blocks: int
    steps: int
    flat: bool


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The loop structure of one convolution."""

    frame: Frame
    rows: int  # output rows, several merged into one where the image is contiguous
    columns: int
    tile: Tile
    row_tiles_per_task: int
    chunks_per_task: int
    weights_outer: bool
    passes: int  # over the input blocks; more than one keeps partial sums between them
    unroll: int
    prefetch: int  # steps of the reduction that weights are fetched ahead, in one pass

    @property
    def lanes(self) -> int:
        """Of a vector."""
        return self.frame.lanes

    @property
    def inner(self) -> int:
        """Channels within an input block."""
        return self.frame.inner

    @property
    def in_blocks(self) -> int:
        """Input blocks of one group."""
        return self.frame.in_blocks

    @property
    def out_blocks(self) -> int:
        """Output blocks of one group."""
        return self.frame.out_blocks

    @property
    def row_tiles(self) -> int:
        """Tiles of rows in the output."""
        return math.ceil(self.rows / self.tile.rows)

    @property
    def chunk_count(self) -> int:
        """Chunks of output channels in a group."""
        return math.ceil(self.out_blocks / self.tile.blocks)

    @property
    def chunk_tasks(self) -> int:
        """Tasks that share rows."""
        return self.chunk_count // self.chunks_per_task

    @property
    def row_tasks(self) -> int:
        """Tasks that share chunks."""
        return self.row_tiles // self.row_tiles_per_task

    @property
    def tiles_per_row(self) -> int:
        """Tiles side by side in a tile of rows."""
        return sum(span.count for span in spans(self.columns, self.tile.columns))

    @property
    def tiles_per_task(self) -> int:
        """Tiles that meet a chunk's weights in one task."""
        return self.row_tiles_per_task * self.tiles_per_row


def frame_of(spec: ConvSpec, isa: str) -> Frame:
    """The convolution's vectors."""
    lanes = LANES[isa]
    inner = 1 if spec.data_plain else lanes
    in_blocks = math.ceil(spec.in_channels // spec.groups / inner)
    return Frame(
        lanes=lanes,
        inner=inner,
        in_blocks=in_blocks,
        out_blocks=math.ceil(spec.out_channels // spec.groups / lanes),
        steps=in_blocks * inner * math.prod(spec.kernel),
        flat=_is_flat(spec),
    )


def direct_cycles(spec: ConvSpec, isa: str, choice: DirectChoice | None = None) -> float:
    """Estimated cycles of the direct convolution on one core."""
    plan = make_plan(spec, isa, choice)
    steps = plan.frame.steps
    compute = total_cycles(plan.rows, plan.columns, plan.out_blocks, steps, plan.tile, isa)
    weights = 4 * spec.groups * plan.out_blocks * plan.lanes * steps
    return spec.batch * spec.groups * compute + weights / WEIGHT_BYTES_PER_CYCLE


def make_plan(spec: ConvSpec, isa: str, choice: DirectChoice | None = None) -> Plan:
    """The loop structure of a choice; of the cost model's without one.

    Raises:
        ValueError: the choice doesn't fit the convolution.
    """
    frame = frame_of(spec, isa)
    chosen = choice_of(spec, isa) if choice is None else choice
    height, width = spec.out_hw
    require(chosen.merged == 1 or frame.flat, "its image is not contiguous")
    require(chosen.merged > 0 and height % chosen.merged == 0, f"{height} rows don't divide")
    plan = Plan(
        frame=frame,
        rows=height // chosen.merged,
        columns=width * chosen.merged,
        tile=Tile(rows=chosen.rows, columns=chosen.columns, blocks=chosen.blocks),
        row_tiles_per_task=chosen.row_tiles,
        chunks_per_task=chosen.chunks,
        weights_outer=chosen.weights_outer,
        passes=chosen.passes,
        unroll=chosen.unroll,
        prefetch=chosen.prefetch,
    )
    _check(plan, isa)
    return plan


def _check(plan: Plan, isa: str) -> None:
    tile = plan.tile
    require(min(tile.rows, tile.columns, tile.blocks) > 0, "an empty tile")
    require(fits(tile, isa), f"no registers for {tile.pixels} pixels by {tile.blocks} vectors")
    require(tile.columns <= plan.columns and tile.rows <= plan.rows, "a tile beyond the image")
    require(tile.blocks <= plan.out_blocks, "a tile beyond the channels")
    require(tile.rows == 1 or tile.columns == plan.columns, "a tile of rows spans all columns")
    parts = [
        (plan.row_tiles, plan.row_tiles_per_task, "tiles of rows"),
        (plan.chunk_count, plan.chunks_per_task, "chunks"),
        (plan.in_blocks, plan.passes, "input blocks"),
    ]
    for whole, part, what in parts:
        require(part > 0 and whole % part == 0, f"{whole} {what} don't divide by {part}")
    require(plan.unroll > 0, "nothing unrolled")
    require(plan.prefetch >= 0, "a prefetch of what was used")
    require(plan.prefetch == 0 or plan.passes == 1, "several passes fetch the next one's weights")


def choice_of(spec: ConvSpec, isa: str) -> DirectChoice:
    """Tile, tasks and passes by estimate."""
    frame = frame_of(spec, isa)
    steps, out_blocks = frame.steps, frame.out_blocks
    merged = _merge_rows(spec, out_blocks, steps, isa) if frame.flat else 1
    rows, columns = spec.out_hw[0] // merged, spec.out_hw[1] * merged
    tile = choose_tile(rows, columns, out_blocks, steps, isa)
    row_tiles = math.ceil(rows / tile.rows)
    others = spec.batch * spec.groups * math.ceil(out_blocks / tile.blocks)
    unit_ops = columns * tile.rows * steps * tile.blocks
    weights_outer = spec.groups * out_blocks * frame.lanes * steps >= math.prod(spec.data.shape)
    row_tiles_per_task, passes = per_task(row_tiles, others, unit_ops), 1
    if weights_outer and not spec.data_plain:
        together = per_task(row_tiles, others, unit_ops, tasks=_STREAMING_TASKS)
        tiles = together * sum(span.count for span in spans(columns, tile.columns))
        if 1 < tiles <= _MOST_STREAMING_TILES:
            row_tiles_per_task = together
            unit_steps = frame.inner * math.prod(spec.kernel)
            passes = pass_count(frame.in_blocks, unit_steps, tile.blocks * frame.lanes)
    return DirectChoice(
        merged=merged,
        rows=tile.rows,
        columns=tile.columns,
        blocks=tile.blocks,
        row_tiles=row_tiles_per_task,
        weights_outer=weights_outer,
        passes=passes,
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


def _merge_rows(spec: ConvSpec, blocks: int, steps: int, isa: str) -> int:
    """How many rows to merge: the fewest that are within 2 % of the best."""
    height, width = spec.out_hw
    cost: dict[int, float] = {}
    for k in divisors(height):
        rows, columns = height // k, width * k
        tile = choose_tile(rows, columns, blocks, steps, isa)
        cost[k] = total_cycles(rows, columns, blocks, steps, tile, isa)
    best = min(cost.values())
    return next(k for k in cost if cost[k] <= 1.02 * best)
