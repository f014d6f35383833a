"""The candidates of a layer: every choice its kernels take, less those not worth building.

What can't fit the registers is dropped, and so is what an estimate of the loads and multiply-adds
puts well behind the best: measuring shows what caches and prefetchers do, not that a tile of two
sums waits for the latency of each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from veltair.compiler import kernels
from veltair.compiler.kernels import (
    batch_matmul,
    depthwise,
    direct_plan,
    matmul,
    pool2d,
    winograd,
)
from veltair.compiler.kernels.choices import (
    Choice,
    DefaultChoice,
    DepthwiseChoice,
    DirectChoice,
    MatmulChoice,
    WinogradChoice,
    require,
)
from veltair.compiler.kernels.spec import (
    LANES,
    BatchMatmulSpec,
    ConvSpec,
    Kernel,
    MatmulSpec,
    PoolSpec,
    TirSpec,
)
from veltair.compiler.kernels.tiling import (
    MAX_BLOCKS,
    REGISTERS,
    Tile,
    divisors,
    spans,
    tiles,
    total_cycles,
)
from veltair.compiler.kernels.winograd_transform import TRANSFORMS
from veltair.compiler.search import other_spaces
from veltair.compiler.search.key import Spec

# A register tile whose estimate is this far behind the best of its algorithm's is dropped, and an
# algorithm this far behind another.
_MOST_BEHIND = 1.35
_MOST_BEHIND_ALGORITHM = 4.0
_MOST_TILES = 16
_UNROLLS = (2, 4, 8)
_PREFETCHES = (0, 32, 128)  # steps ahead: a step takes about 15 cycles, memory some hundred
_PREFETCH_COST = 1.05  # a guess, so that it is tried where something was fast without
# Cycles to hand out a task, and the most tasks that are worth it.
_TASK_CYCLES = 200
_MOST_TASKS = 1024


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A choice and its estimated cycles on all cores."""

    choice: Choice
    cycles: float


@dataclass(frozen=True, kw_only=True)
class Space:
    """The candidates of a layer, the default first, and how many more were not worth building."""

    candidates: tuple[Candidate, ...]
    dropped: int


def build(spec: Spec, isa: str, choice: Choice) -> Kernel:
    """The kernel of a choice.

    Raises:
        ValueError: the choice doesn't fit the layer.
    """
    if isinstance(spec, ConvSpec):
        return kernels.build_conv2d(spec, isa, choice)
    if isinstance(spec, PoolSpec):
        return other_spaces.build_pool(spec, isa, choice)
    if isinstance(spec, TirSpec):
        return other_spaces.build_tir(spec, isa, choice)
    if isinstance(spec, other_spaces.RowsSpec):
        return other_spaces.build_rows(spec, isa, choice)
    require(isinstance(choice, MatmulChoice), "a matrix product has other decisions")
    assert isinstance(choice, MatmulChoice)
    if isinstance(spec, BatchMatmulSpec):
        return kernels.build_batch_matmul(spec, isa, choice)
    return kernels.build_matmul(spec, isa, choice)


def check(spec: Spec, isa: str, choice: Choice) -> None:
    """Refuses a choice that doesn't fit a layer, without building it.

    Raises:
        ValueError: it doesn't.
    """
    if isinstance(spec, ConvSpec):
        _check_convolution(spec, isa, choice)
    elif isinstance(spec, PoolSpec):
        other_spaces.check_pool(spec, isa, choice)
    elif isinstance(spec, TirSpec):
        other_spaces.check_tir(spec, choice)
    elif isinstance(spec, other_spaces.RowsSpec):
        other_spaces.check_rows(spec, choice)
    else:
        require(isinstance(choice, MatmulChoice), "a matrix product is no convolution")
        assert isinstance(choice, MatmulChoice)
        if isinstance(spec, BatchMatmulSpec):
            batch_matmul.plan_of(spec, isa, choice)
        else:
            matmul.plan_of(spec, isa, choice)


def _check_convolution(spec: ConvSpec, isa: str, choice: Choice) -> None:
    is_depthwise = kernels.is_depthwise(spec)
    require(isinstance(choice, DepthwiseChoice) == is_depthwise, "another kind of convolution")
    if isinstance(choice, DepthwiseChoice):
        depthwise.check(spec, isa, choice)
    elif isinstance(choice, WinogradChoice):
        winograd.plan_of(spec, isa, choice)
    else:
        require(isinstance(choice, DirectChoice), "a convolution is no matrix product")
        assert isinstance(choice, DirectChoice)
        direct_plan.make_plan(spec, isa, choice)


def default_choice(spec: Spec, isa: str) -> Choice | None:
    """What the cost models choose; None for a layer whose kernel has nothing to choose."""
    if isinstance(spec, ConvSpec):
        return kernels.default_choice(spec, isa)
    if isinstance(spec, PoolSpec):
        return pool2d.choice_of(spec, isa)
    if isinstance(spec, TirSpec):
        return DefaultChoice() if other_spaces.can_sketch(spec) else None
    if isinstance(spec, other_spaces.RowsSpec):
        return other_spaces.default_rows(spec, isa)
    if isinstance(spec, BatchMatmulSpec):
        return batch_matmul.choice_of(spec, isa)
    return matmul.choice_of(spec, isa)


def space_of(spec: Spec, isa: str, cores: int) -> Space | None:
    """The candidates of a layer for a machine of some cores; None where there is no choice."""
    default = default_choice(spec, isa)
    if default is None:
        return None
    if isinstance(spec, MatmulSpec):
        found, dropped = _matmul(spec, isa, cores)
    elif isinstance(spec, BatchMatmulSpec):
        found, dropped = _batch_matmul(spec, isa, cores)
    elif not isinstance(spec, ConvSpec):
        found, dropped = _others(spec, isa, cores)
    elif isinstance(default, DepthwiseChoice):
        found, dropped = _depthwise(spec, isa, cores)
    else:
        found, dropped = _dense(spec, isa, cores)
    others = sorted((c for c in found if c.choice != default), key=lambda c: c.cycles)
    own = next((c for c in found if c.choice == default), None)
    first = own or Candidate(choice=default, cycles=others[0].cycles if others else 1.0)
    return Space(candidates=(first, *others), dropped=dropped)


def _imbalance(extent: int, cores: int) -> float:
    """How much longer the fullest core works than if all had the same."""
    return math.ceil(extent / cores) * cores / extent


def _on_cores(cycles: float, extent: int, cores: int) -> float:
    return cycles * _imbalance(extent, cores) / cores + extent * _TASK_CYCLES / cores


def _dense(spec: ConvSpec, isa: str, cores: int) -> tuple[list[Candidate], int]:
    """Direct and, where it applies, Winograd; an algorithm far behind the other is dropped."""
    direct, dropped = _direct(spec, isa, cores)
    if not winograd.applies(spec):
        return direct, dropped
    through, more = _winograd(spec, isa, cores)
    best = min(c.cycles for c in (*direct, *through))
    kept = [c for c in (*direct, *through) if c.cycles <= _MOST_BEHIND_ALGORITHM * best]
    return kept, dropped + more + len(direct) + len(through) - len(kept)


# --- direct ---------------------------------------------------------------------------------------


def _direct(spec: ConvSpec, isa: str, cores: int) -> tuple[list[Candidate], int]:
    frame = direct_plan.frame_of(spec, isa)
    height, width = spec.out_hw
    estimates: dict[tuple[int, Tile], float] = {}
    dropped = 0
    for merged in divisors(height) if frame.flat else [1]:
        rows, columns = height // merged, width * merged
        fitting = set(tiles(rows, columns, frame.out_blocks, isa))
        for tile in fitting:
            estimates[merged, tile] = total_cycles(
                rows, columns, frame.out_blocks, frame.steps, tile, isa
            )
        for tile in _without_registers(rows, columns, frame.out_blocks, isa):
            dropped += _structures_count(spec, frame, merged, tile)
    kept = _best_tiles(estimates)
    dropped += sum(_structures_count(spec, frame, *at) for at in estimates if at not in kept)
    found = []
    for merged, tile in kept:
        cycles = spec.batch * spec.groups * estimates[merged, tile]
        for choice, extent in _structures(spec, frame, merged, tile):
            if extent > _MOST_TASKS:
                dropped += 1
                continue
            here = cycles * _PREFETCH_COST if choice.prefetch else cycles
            found.append(Candidate(choice=choice, cycles=_on_cores(here, extent, cores)))
    return found, dropped


def _best_tiles(estimates: dict[tuple[int, Tile], float]) -> set[tuple[int, Tile]]:
    best = min(estimates.values())
    ranked = sorted(estimates, key=lambda at: (estimates[at], at[0], -at[1].pixels))
    return {at for at in ranked[:_MOST_TILES] if estimates[at] <= _MOST_BEHIND * best}


def _without_registers(rows: int, columns: int, blocks: int, isa: str) -> Iterator[Tile]:
    """Tiles of no more pixels than there are registers, that don't fit them."""
    fitting = set(tiles(rows, columns, blocks, isa))
    for b in range(1, min(MAX_BLOCKS, blocks) + 1):
        for c in range(1, min(REGISTERS[isa], columns) + 1):
            for r in range(1, min(REGISTERS[isa] // c, rows) + 1 if c == columns else 2):
                tile = Tile(rows=r, columns=c, blocks=b)
                if tile not in fitting:
                    yield tile


def _structure_axes(
    spec: ConvSpec, frame: direct_plan.Frame, merged: int, tile: Tile
) -> tuple[list[int], list[int], list[tuple[int, int]], tuple[int, ...]]:
    """Row tiles a task, chunks a task, passes with the steps to prefetch, unroll factors."""
    rows = spec.out_hw[0] // merged
    passes = [1] if spec.data_plain else divisors(frame.in_blocks)
    return (
        divisors(math.ceil(rows / tile.rows)),
        divisors(math.ceil(frame.out_blocks / tile.blocks)),
        [(p, f) for p in passes for f in (_PREFETCHES if p == 1 else (0,))],
        _UNROLLS if frame.inner > 1 else (4,),
    )


def _structures_count(spec: ConvSpec, frame: direct_plan.Frame, merged: int, tile: Tile) -> int:
    axes: Sequence[Sequence[object]] = _structure_axes(spec, frame, merged, tile)
    return 2 * math.prod(len(axis) for axis in axes)


def _structures(
    spec: ConvSpec, frame: direct_plan.Frame, merged: int, tile: Tile
) -> Iterator[tuple[DirectChoice, int]]:
    """Every cut into tasks and passes of a register tile, with its parallel extent."""
    rows, columns = spec.out_hw[0] // merged, spec.out_hw[1] * merged
    row_tiles = math.ceil(rows / tile.rows)
    chunk_count = math.ceil(frame.out_blocks / tile.blocks)
    in_a_row = sum(span.count for span in spans(columns, tile.columns))
    axes = _structure_axes(spec, frame, merged, tile)
    for together, chunks, (passes, prefetch), unroll in itertools.product(*axes):
        if passes > 1 and together * in_a_row == 1:
            continue  # one tile meets each weight once: passes would only store its sums
        row_tasks, chunk_tasks = row_tiles // together, chunk_count // chunks
        extent = spec.batch * spec.groups * row_tasks * chunk_tasks
        # The order of tasks says nothing where one of the two is whole.
        for weights_outer in (False, True) if min(row_tasks, chunk_tasks) > 1 else (False,):
            yield (
                DirectChoice(
                    merged=merged,
                    rows=tile.rows,
                    columns=tile.columns,
                    blocks=tile.blocks,
                    row_tiles=together,
                    chunks=chunks,
                    weights_outer=weights_outer,
                    passes=passes,
                    unroll=unroll,
                    prefetch=prefetch,
                ),
                extent,
            )


# --- the others -----------------------------------------------------------------------------------


def _winograd(spec: ConvSpec, isa: str, cores: int) -> tuple[list[Candidate], int]:
    out_blocks = math.ceil(spec.out_channels / LANES[isa])
    kept, dropped = [], 0
    for size in TRANSFORMS:
        tile_rows, tile_columns = (math.ceil(extent / size) for extent in spec.out_hw)
        found = []
        for rows in divisors(tile_rows):
            for tile in tiles(1, rows * tile_columns, out_blocks, isa):
                choice = WinogradChoice(
                    size=size, tile_rows=rows, columns=tile.columns, blocks=tile.blocks
                )
                plan = winograd.plan_of(spec, isa, choice)
                cycles = winograd.winograd_cycles(plan, isa, spec.batch)
                for whole in (False, True):
                    split = replace(plan, whole=whole)
                    extent = winograd.parallel_extent(split, spec.batch)
                    cycles_here = _on_cores(cycles, extent, cores)
                    choice = winograd.choice_of(split)
                    found.append(Candidate(choice=choice, cycles=cycles_here))
        best = min(c.cycles for c in found)
        near = [c for c in found if c.cycles <= _MOST_BEHIND * best]
        kept += near
        dropped += len(found) - len(near)
    return kept, dropped


def _matmul(spec: MatmulSpec, isa: str, cores: int) -> tuple[list[Candidate], int]:
    blocks = math.ceil(spec.n / LANES[isa])
    estimates = {
        (1, tile): total_cycles(1, spec.m, blocks, spec.k, tile, isa)
        for tile in tiles(1, spec.m, blocks, isa)
    }
    kept = _best_tiles(estimates)
    dropped = 0
    for tile in itertools.chain(
        (tile for at, tile in estimates if (at, tile) not in kept),
        _without_registers(1, spec.m, blocks, isa),
    ):
        dropped += math.prod(map(len, _matmul_axes(spec, tile, blocks)))
    found = []
    for _, tile in kept:
        pieces = sum(span.count for span in spans(spec.m, tile.columns))
        chunk_count = math.ceil(blocks / tile.blocks)
        for together, chunks, passes, unroll in itertools.product(
            *_matmul_axes(spec, tile, blocks)
        ):
            if passes > 1 and together == 1:
                continue
            extent = pieces // together * (chunk_count // chunks)
            choice = MatmulChoice(
                rows=tile.columns,
                blocks=tile.blocks,
                pieces=together,
                chunks=chunks,
                passes=passes,
                unroll=unroll,
            )
            cycles = _on_cores(estimates[1, tile], extent, cores)
            found.append(Candidate(choice=choice, cycles=cycles))
    return found, dropped


def _matmul_axes(spec: MatmulSpec, tile: Tile, blocks: int) -> Sequence[Sequence[int]]:
    """Tiles of rows a task, chunks a task, passes, unroll factors."""
    pieces = sum(span.count for span in spans(spec.m, tile.columns))
    passes = [p for p in divisors(spec.k) if spec.k // p >= 16 or p == 1]
    return (divisors(pieces), divisors(math.ceil(blocks / tile.blocks)), passes, _UNROLLS)


def _batch_matmul(spec: BatchMatmulSpec, isa: str, cores: int) -> tuple[list[Candidate], int]:
    """The candidates of one product, in one pass."""
    found, dropped = _matmul(batch_matmul.product_of(spec), isa, cores)
    batch = math.prod(spec.a.shape[:-2])
    kept = [c for c in found if isinstance(c.choice, MatmulChoice) and c.choice.passes == 1]
    return [replace(c, cycles=batch * c.cycles) for c in kept], dropped + len(found) - len(kept)


def _others(
    spec: PoolSpec | TirSpec | other_spaces.RowsSpec, isa: str, cores: int
) -> tuple[list[Candidate], int]:
    if isinstance(spec, PoolSpec):
        of_pool = other_spaces.pool_candidates(spec, isa)
        found = [Candidate(choice=c, cycles=_on_cores(t, n, cores)) for c, t, n in of_pool]
    elif isinstance(spec, TirSpec):
        of_tir = other_spaces.tir_candidates(spec, isa)
        found = [Candidate(choice=c, cycles=_on_cores(t, n, cores)) for c, t, n in of_tir]
    else:
        of_rows = other_spaces.rows_candidates(spec)
        found = [Candidate(choice=c, cycles=_on_cores(t, n, cores)) for c, t, n in of_rows]
    return found, 0


def _depthwise(spec: ConvSpec, isa: str, cores: int) -> tuple[list[Candidate], int]:
    (height, width), taps = spec.out_hw, math.prod(spec.kernel)
    blocks = spec.batch * math.ceil(spec.out_channels / LANES[isa])
    found = []
    for pixels in range(1, min(width, depthwise.MOST_PIXELS[isa]) + 1):
        counts = spans(width, pixels)
        if counts[0].size != pixels:
            continue  # cut evenly it is the same as a smaller one
        # Two loads a cycle, a multiply-add each; few sums wait for each other.
        cycles = sum(max(s.size * taps / 2, 4 * taps) * s.count for s in counts)
        for rows in divisors(height):
            extent = blocks * (height // rows)
            choice = DepthwiseChoice(pixels=pixels, rows=rows)
            whole = _on_cores(cycles * height * blocks, extent, cores)
            found.append(Candidate(choice=choice, cycles=whole))
    best = min(c.cycles for c in found)
    kept = [c for c in found if c.cycles <= _MOST_BEHIND * best]
    unfit = max(width - depthwise.MOST_PIXELS[isa], 0) * len(divisors(height))
    return kept, len(found) - len(kept) + unfit
