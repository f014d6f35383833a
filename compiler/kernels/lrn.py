"""Local response normalisation across channels, packed."""

from __future__ import annotations

import math

from tvm import tirx
from tvm.tirx import PrimFunc

from veltair.compiler.kernels import vector_math as vm
from veltair.compiler.kernels.choices import RowsChoice
from veltair.compiler.kernels.loops import Expr, Loops, load, splat
from veltair.compiler.kernels.spec import Kernel, LrnSpec
from veltair.compiler.kernels.tasks import per_task, rows_of, split_index

_OPS = 48  # vector operations of one output vector


def choice_of(spec: LrnSpec, isa: str) -> RowsChoice:
    """Tasks by rule."""
    n, blocks, height, width, _ = spec.data.shape
    return RowsChoice(rows=per_task(height, n, width * blocks * _OPS))


def build_lrn(spec: LrnSpec, isa: str, choice: RowsChoice | None = None) -> Kernel:
    """ONNX's LRN: each value over a power of the scaled sum of squares of its channel window.

    Raises:
        ValueError: the choice doesn't fit the normalisation.
    """
    n, blocks, height, width, _ = spec.data.shape
    rows = rows_of(choice or choice_of(spec, isa), height)
    extents = {"n": n, "rows": height // rows}
    emitter = _Emitter(spec)
    b = emitter.b
    extent = math.prod(extents.values())
    with b.loop(extent, "task", "parallel") as task:
        at = split_index(b, task, extents)
        with b.loop(rows, "i") as i, b.loop(width, "j") as j:
            emitter.pixel(at["n"], b.let("row", at["rows"] * rows + i), j)
    return Kernel(
        func=emitter.function(),
        variant_id=f"lrn{spec.size}_p{extent}",
        algorithm="lrn",
        parallel_extent=extent,
        tile_bytes=8 * b.lanes * blocks * rows * width,
    )


class _Emitter:
    """Emits one normalisation: for each pixel, its channel blocks one after another."""

    def __init__(self, spec: LrnSpec) -> None:
        self._spec = spec
        self._blocks, self._lanes = spec.data.shape[1], spec.data.shape[4]
        self.b = Loops(self._lanes)
        self._data = self.b.buffer("data", spec.data)
        self._output = self.b.buffer("output", spec.output)
        self._before = (spec.size - 1) // 2
        self._after = spec.size - 1 - self._before

    def function(self) -> PrimFunc:
        """The PrimFunc."""
        return self.b.function([self._data, self._output])

    def pixel(self, n: Expr, row: Expr, column: Expr) -> None:
        """All channels of one pixel: the first and last blocks apart, the others in a loop."""
        reach_down = math.ceil(self._before / self._lanes)
        reach_up = math.ceil(self._after / self._lanes)
        # The last block may hold channels past C: what reads it is apart from the loop.
        first, last = reach_down, self._blocks - 1 - reach_up
        if last <= first:
            for block in range(self._blocks):
                self._block(n, row, column, tirx.const(block, "int32"), block)
            return
        for block in range(first):
            self._block(n, row, column, tirx.const(block, "int32"), block)
        with self.b.loop(last - first, "block") as i:
            self._block(n, row, column, self.b.let("at", i + first), first)
        for block in range(last, self._blocks):
            self._block(n, row, column, tirx.const(block, "int32"), block)

    def _block(self, n: Expr, row: Expr, column: Expr, block: Expr, like: int) -> None:
        """One vector of channels; `like` is a block with the same neighbours inside the data."""
        b, lanes, spec = self.b, self._lanes, self._spec
        squares: dict[int, Expr] = {}

        def square(offset: int) -> Expr:
            if offset not in squares:
                squares[offset] = self._square(n, row, column, block, like, offset)
            return squares[offset]

        total = splat(0.0, lanes)
        for shift in range(-self._before, self._after + 1):
            offset, lane = divmod(shift, lanes)
            if lane == 0:
                total = total + square(offset)
                continue
            pair = [square(offset), square(offset + 1)]
            total = total + tirx.Shuffle(pair, list(range(lane, lane + lanes)))
        base = splat(spec.bias, lanes) + splat(spec.alpha / spec.size, lanes) * total
        where = [n, block, row, column, 0]
        # One exponential of a logarithm is cheaper than the roots and the division.
        factor = vm.exp(b, splat(-spec.beta, lanes) * vm.log(b, b.let("base", base)))
        b.store(self._output, where, load(self._data, where, lanes) * factor)

    def _square(
        self, n: Expr, row: Expr, column: Expr, block: Expr, like: int, offset: int
    ) -> Expr:
        """Squares of a neighbouring block, zeros outside the channels."""
        b, lanes = self.b, self._lanes
        if not 0 <= like + offset < self._blocks:
            return splat(0.0, lanes)
        value = b.let("value", load(self._data, [n, block + offset, row, column, 0], lanes))
        valid = self._spec.channels - (self._blocks - 1) * lanes
        if like + offset == self._blocks - 1 and valid < lanes:
            value = b.let("value", tirx.Shuffle([value, splat(0.0, lanes)], _mask(valid, lanes)))
        return b.let("square", value * value)


def _mask(valid: int, lanes: int) -> list[int]:
    """Lanes of the first vector up to `valid`, of the second from there."""
    return [lane if lane < valid else lanes + lane for lane in range(lanes)]
