"""Depthwise convolution on packed data: one vector of channels, all taps of its filter."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from veltair.compiler.kernels.choices import DepthwiseChoice, require
from veltair.compiler.kernels.epilogue import Epilogue, pad_channels, suffix
from veltair.compiler.kernels.loops import Buffer, Expr, Loops, Register, load
from veltair.compiler.kernels.spec import ConvSpec, Kernel, WeightPacker
from veltair.compiler.kernels.tasks import per_task, split_index
from veltair.compiler.kernels.tiling import spans
from veltair.runtime.manifest import LANES

# Pixels accumulated together: enough independent chains for the multiply-adds' latency, while the
# taps of a filter row stay in registers beside them.
_PIXELS = {"x86-64-v4": 8, "x86-64-v3": 6}
# What fits the registers beside a vector of taps and one of data.
MOST_PIXELS = {"x86-64-v4": 28, "x86-64-v3": 13}
# Up to this many taps the filter is unrolled wholly; a larger one loops over its rows.
_UNROLLED_TAPS = 9


def choice_of(spec: ConvSpec, isa: str) -> DepthwiseChoice:
    """Tile and tasks by rule."""
    (height, width), (kh, kw) = spec.out_hw, spec.kernel
    blocks = math.ceil(spec.out_channels / LANES[isa])
    rows = per_task(height, spec.batch * blocks, width * kh * kw)
    # As the pieces come out: each kernel has one choice.
    return DepthwiseChoice(pixels=spans(width, _PIXELS[isa])[0].size, rows=rows)


def check(spec: ConvSpec, isa: str, choice: DepthwiseChoice) -> None:
    """Refuses a choice that doesn't fit.

    Raises:
        ValueError: it doesn't.
    """
    (height, width), rows, pixels = spec.out_hw, choice.rows, choice.pixels
    require(spec.groups == spec.in_channels == spec.out_channels, "it mixes channels")
    require(rows > 0 and height % rows == 0, f"{height} rows don't divide by {rows}")
    require(0 < pixels <= min(width, MOST_PIXELS[isa]), f"{pixels} pixels of {width}")


def build_depthwise(spec: ConvSpec, isa: str, choice: DepthwiseChoice | None = None) -> Kernel:
    """A depthwise convolution: groups, input and output channels are one number.

    Raises:
        ValueError: the choice doesn't fit the convolution.
    """
    lanes = LANES[isa]
    blocks = math.ceil(spec.out_channels / lanes)
    (height, width), (kh, kw) = spec.out_hw, spec.kernel
    chosen = choice_of(spec, isa) if choice is None else choice
    check(spec, isa, chosen)
    rows, most = chosen.rows, chosen.pixels
    extents = {"n": spec.batch, "block": blocks, "rows": height // rows}
    pixels = spans(width, most)[0].size
    b = Loops(lanes)
    data = b.buffer("data", spec.data)
    weight = b.flat("weight", blocks * kh * kw * lanes)
    epilogue = Epilogue(b, spec.epilogue, blocks * lanes, aligned=True)
    output = b.buffer("output", spec.output)
    with b.loop(math.prod(extents.values()), "task", "parallel") as task:
        at = split_index(b, task, extents)
        channel = b.let("channel", at["block"] * lanes)
        with b.loop(rows, "i") as i:
            row = b.let("row", at["rows"] * rows + i)
            for span in spans(width, most):
                with b.loop(span.count, "col_tile") as j:
                    column = b.let("column", j * span.size + span.start)
                    emit = _Tile(spec, b, data, weight, lanes)
                    values = emit.sums(at["n"], at["block"], row, column, span.size, epilogue)
                    for p, value in enumerate(values):
                        where = [at["n"], at["block"], row, column + p, 0]
                        b.store(output, where, epilogue.apply(value, channel, where))
    extent = math.prod(extents.values())
    return Kernel(
        func=b.function([data, weight, *epilogue.buffers, output]),
        variant_id=f"conv{kh}x{kw}_depthwise_c{lanes}_px{pixels}_p{extent}" + suffix(spec.epilogue),
        algorithm="depthwise",
        parallel_extent=extent,
        tile_bytes=4 * lanes * (kh * kw + _data_rows(spec, rows) * spec.data.shape[3]),
        unroll=pixels,
        pack_weight=_packer(blocks, lanes),
        pack_channel=pad_channels(blocks * lanes),
    )


def _data_rows(spec: ConvSpec, rows: int) -> int:
    """Rows of data that some output rows read."""
    return (rows - 1) * spec.strides[0] + (spec.kernel[0] - 1) * spec.dilations[0] + 1


def _packer(blocks: int, lanes: int) -> WeightPacker:
    def pack(weight: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        channels, _, kh, kw = weight.shape
        w = np.pad(
            np.asarray(weight, np.float32).reshape(channels, kh, kw),
            ((0, blocks * lanes - channels), (0, 0), (0, 0)),
        )
        return w.reshape(blocks, lanes, kh, kw).transpose(0, 2, 3, 1).reshape(-1)

    return pack


class _Tile:
    """Accumulates one tile of pixels."""

    def __init__(self, spec: ConvSpec, b: Loops, data: Buffer, weight: Buffer, lanes: int) -> None:
        self._spec, self._b, self._data, self._weight = spec, b, data, weight
        self._lanes = lanes

    def sums(
        self, n: Expr, block: Expr, row: Expr, column: Expr, pixels: int, epilogue: Epilogue
    ) -> list[Expr]:
        """One accumulator a pixel, over all taps."""
        b, lanes = self._b, self._lanes
        kh, kw = self._spec.kernel
        start = b.let("start", epilogue.initial(block * lanes, lanes))
        registers = [b.register("acc", lanes) for _ in range(pixels)]
        for register in registers:
            b.set(register, start)
        unrolled = kh if kh * kw <= _UNROLLED_TAPS else 1
        with b.loop(kh // unrolled, "y") as y:
            for u in range(unrolled):
                tap_row = y * unrolled + u
                self._filter_row(registers, n, block, row, column, tap_row)
        return [register.get() for register in registers]

    def _filter_row(
        self, registers: list[Register], n: Expr, block: Expr, row: Expr, column: Expr, y: Expr
    ) -> None:
        b, spec, lanes = self._b, self._spec, self._lanes
        (kh, kw), (sh, sw), (dh, dw) = spec.kernel, spec.strides, spec.dilations
        for x in range(kw):
            tap = ((block * kh + y) * kw + x) * lanes
            factor = b.let("w", load(self._weight, [tap], lanes))
            for p, register in enumerate(registers):
                where = [n, block, row * sh + y * dh, (column + p) * sw + x * dw, 0]
                value = load(self._data, where, lanes)
                b.set(register, register.get() + value * factor)
