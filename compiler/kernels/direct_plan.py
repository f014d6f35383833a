"""The loop structure of a direct convolution."""

from __future__ import annotations

import math
from dataclasses import dataclass

from veltair.compiler.kernels.spec import LANES, ConvSpec
from veltair.compiler.kernels.tasks import per_task
from veltair.compiler.kernels.tiling import (
    WEIGHT_BYTES_PER_CYCLE,
    Tile,
    choose_tile,
    divisors,
    pass_count,
    spans,
    total_cycles,
)

# Where the weights stream, a task has them all to itself as far as this many tasks remain.
_STREAMING_TASKS = 16
# With more tiles than this a chunk of weights is in use long enough that fetching it first is
# cheaper than keeping partial sums.
_MOST_STREAMING_TILES = 24


@dataclass(frozen=True, kw_only=True)
class Plan:
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
    passes: int  # over the input blocks; more than one keeps partial sums between them

    @property
    def row_tiles(self) -> int:
        """Tiles of rows in the output."""
        return math.ceil(self.rows / self.tile.rows)

    @property
    def chunk_count(self) -> int:
        """Chunks of output channels in a group."""
        return math.ceil(self.out_blocks / self.tile.blocks)

    @property
    def row_tasks(self) -> int:
        """Tasks that share a chunk."""
        return self.row_tiles // self.row_tiles_per_task

    @property
    def tiles_per_row(self) -> int:
        """Tiles side by side in a tile of rows."""
        return sum(span.count for span in spans(self.columns, self.tile.columns))

    @property
    def tiles_per_task(self) -> int:
        """Tiles that meet a chunk's weights in one task."""
        return self.row_tiles_per_task * self.tiles_per_row


def direct_cycles(spec: ConvSpec, isa: str) -> float:
    """Estimated cycles of the direct convolution on one core."""
    plan = make_plan(spec, isa)
    steps = plan.in_blocks * plan.inner * math.prod(spec.kernel)
    compute = total_cycles(plan.rows, plan.columns, plan.out_blocks, steps, plan.tile, isa)
    weights = 4 * spec.groups * plan.out_blocks * plan.lanes * steps
    return spec.batch * spec.groups * compute + weights / WEIGHT_BYTES_PER_CYCLE


def make_plan(spec: ConvSpec, isa: str) -> Plan:
    """Chooses tile, tasks and passes."""
    lanes = LANES[isa]
    inner = 1 if spec.data_plain else lanes
    in_blocks = math.ceil(spec.in_channels // spec.groups / inner)
    out_blocks = math.ceil(spec.out_channels // spec.groups / lanes)
    taps = math.prod(spec.kernel)
    steps = in_blocks * inner * taps
    flat = _is_flat(spec)
    rows, columns = _merge_rows(spec, out_blocks, steps, isa) if flat else spec.out_hw
    tile = choose_tile(rows, columns, out_blocks, steps, isa)
    row_tiles = math.ceil(rows / tile.rows)
    others = spec.batch * spec.groups * math.ceil(out_blocks / tile.blocks)
    unit_ops = columns * tile.rows * steps * tile.blocks
    weights_outer = spec.groups * out_blocks * lanes * steps >= math.prod(spec.data.shape)
    row_tiles_per_task, passes = per_task(row_tiles, others, unit_ops), 1
    if weights_outer and not spec.data_plain:
        together = per_task(row_tiles, others, unit_ops, tasks=_STREAMING_TASKS)
        tiles = together * sum(span.count for span in spans(columns, tile.columns))
        if 1 < tiles <= _MOST_STREAMING_TILES:
            row_tiles_per_task = together
            passes = pass_count(in_blocks, inner * taps, tile.blocks * lanes)
    return Plan(
        lanes=lanes,
        inner=inner,
        in_blocks=in_blocks,
        out_blocks=out_blocks,
        rows=rows,
        columns=columns,
        flat=flat,
        tile=tile,
        row_tiles_per_task=row_tiles_per_task,
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
