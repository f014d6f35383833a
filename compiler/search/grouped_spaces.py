"""Candidates of convolutions whose channels don't mix, or mix within small groups."""

from __future__ import annotations

import itertools
import math

from veltair.compiler.kernels import conv_plain, depthwise
from veltair.compiler.kernels.choices import DepthwiseChoice, PlainChoice
from veltair.compiler.kernels.spec import ConvSpec
from veltair.compiler.kernels.tiling import divisors, spans
from veltair.compiler.search.candidates import (
    MOST_BEHIND,
    Candidate,
    near_best,
    on_cores,
)
from veltair.runtime.manifest import LANES


def depthwise_candidates(spec: ConvSpec, isa: str, cores: int) -> tuple[list[Candidate], int]:
    """The candidates of a depthwise convolution, and how many were dropped."""
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
            whole = on_cores(cycles * height * blocks, extent, cores)
            found.append(Candidate(choice=choice, cycles=whole))
    kept = near_best(found)
    unfit = max(width - depthwise.MOST_PIXELS[isa], 0) * len(divisors(height))
    return kept, len(found) - len(kept) + unfit


def plain_candidates(spec: ConvSpec, isa: str, cores: int) -> tuple[list[Candidate], int]:
    """The candidates of a convolution on plain NCHW, and how many were dropped."""
    height, group_out = spec.out_hw[0], spec.out_channels // spec.groups
    vectors = range(1, conv_plain.most_vectors(spec, isa) + 1)
    tiles = list(itertools.product(divisors(group_out), vectors))
    cycles = {t: _plain_cycles(spec, isa, *t) for t in tiles if conv_plain.fits(*t, isa)}
    best = min(cycles.values())
    kept = [tile for tile in cycles if cycles[tile] <= MOST_BEHIND * best]
    found = []
    for (channels, of_row), rows in itertools.product(kept, divisors(height)):
        extent = spec.batch * spec.groups * (group_out // channels) * (height // rows)
        choice = PlainChoice(channels=channels, vectors=of_row, rows=rows)
        whole = on_cores(cycles[channels, of_row], extent, cores)
        found.append(Candidate(choice=choice, cycles=whole))
    return found, (len(tiles) - len(kept)) * len(divisors(height))


def _plain_cycles(spec: ConvSpec, isa: str, channels: int, vectors: int) -> float:
    """On one core. Two loads or two multiply-adds a cycle; few sums wait for each other."""
    tiles = math.ceil(spec.out_hw[1] / LANES[isa] / vectors) * spec.out_hw[0]
    step = max((channels + vectors) / 2, channels * vectors / 2, 4)
    return spec.batch * spec.out_channels / channels * tiles * conv_plain.steps_of(spec) * step
