"""Candidates of dense convolutions and matrix products.

What can't fit the registers is dropped, and so is what an estimate of the loads and multiply-adds
puts well behind the best: measuring shows what caches and prefetchers do, not that a tile of two
sums waits for the latency of each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from veltair.compiler.kernels import batch_matmul, direct_plan, winograd
from veltair.compiler.kernels.choices import DirectChoice, MatmulChoice
from veltair.compiler.kernels.spec import BatchMatmulSpec, ConvSpec, MatmulSpec
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
from veltair.compiler.search.candidates import MOST_BEHIND, Candidate, near_best, on_cores
from veltair.runtime.manifest import LANES

# An algorithm whose estimate is this far behind another's is dropped.
_MOST_BEHIND_ALGORITHM = 4.0
_MOST_TILES = 16
_UNROLLS = (2, 4, 8)
_PREFETCHES = (0, 32, 128)  # steps ahead: a step takes about 15 cycles, memory some hundred
_PREFETCH_COST = 1.05  # a guess, so that it is tried where something was fast without
_MOST_TASKS = 1024  # that are worth handing out


def dense_candidates(spec: ConvSpec, isa: str, cores: int) -> tuple[list[Candidate], int]:
    """The candidates of a dense convolution, and how many were dropped.

    Direct and, where it applies, Winograd; an algorithm far behind the other is dropped.
    """
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
            found.append(Candidate(choice=choice, cycles=on_cores(here, extent, cores)))
    return found, dropped


def _best_tiles(estimates: dict[tuple[int, Tile], float]) -> set[tuple[int, Tile]]:
    best = min(estimates.values())
    ranked = sorted(estimates, key=lambda at: (estimates[at], at[0], -at[1].pixels))
    return {at for at in ranked[:_MOST_TILES] if estimates[at] <= MOST_BEHIND * best}


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
        tile_columns = math.ceil(spec.out_hw[1] / size)
        found = []
        for rows in winograd.block_rows(spec, size):
            for tile in tiles(1, rows * tile_columns, out_blocks, isa):
                plan = winograd.make_plan(spec, isa, TRANSFORMS[size], rows, tile)
                cycles = winograd.winograd_cycles(plan, isa)
                for whole in (False, True):
                    split = replace(plan, whole=whole)
                    if not split.scratch_fits:
                        continue
                    extent = winograd.parallel_extent(split)
                    cycles_here = on_cores(cycles, extent, cores)
                    choice = winograd.choice_of(split)
                    found.append(Candidate(choice=choice, cycles=cycles_here))
        near = near_best(found)
        kept += near
        dropped += len(found) - len(near)
    return kept, dropped


def matmul_candidates(spec: MatmulSpec, isa: str, cores: int) -> tuple[list[Candidate], int]:
    """The candidates of a product with a constant, and how many were dropped."""
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
            cycles = on_cores(estimates[1, tile], extent, cores)
            found.append(Candidate(choice=choice, cycles=cycles))
    return found, dropped


def _matmul_axes(spec: MatmulSpec, tile: Tile, blocks: int) -> Sequence[Sequence[int]]:
    """Tiles of rows a task, chunks a task, passes, unroll factors."""
    pieces = sum(span.count for span in spans(spec.m, tile.columns))
    passes = [p for p in divisors(spec.k) if spec.k // p >= 16 or p == 1]
    return (divisors(pieces), divisors(math.ceil(blocks / tile.blocks)), passes, _UNROLLS)


def batch_matmul_candidates(
    spec: BatchMatmulSpec, isa: str, cores: int
) -> tuple[list[Candidate], int]:
    """The candidates of each of some products, in one pass, and how many were dropped."""
    found, dropped = matmul_candidates(batch_matmul.product_of(spec), isa, cores)
    batch = math.prod(spec.a.shape[:-2])
    kept = [c for c in found if isinstance(c.choice, MatmulChoice) and c.choice.passes == 1]
    return [replace(c, cycles=batch * c.cycles) for c in kept], dropped + len(found) - len(kept)
