"""Max and average pooling on packed data with implicit padding."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm import tirx
from tvm.tirx import PrimFunc

from veltair.compiler.kernels import vector_math as vm
from veltair.compiler.kernels.choices import PoolChoice, require
from veltair.compiler.kernels.loops import Expr, Loops, Register, load, splat
from veltair.compiler.kernels.spec import Kernel, PoolSpec
from veltair.compiler.kernels.tasks import per_task, split_index
from veltair.compiler.kernels.tiling import spans

_PIXELS = 8  # pixels accumulated together, where nobody says otherwise
MOST_PIXELS = {"x86-64-v4": 28, "x86-64-v3": 13}  # that have registers
_UNROLLED_TAPS = 8  # a wider window loops over its columns
_LOWEST = -3.4028234663852886e38


def choice_of(spec: PoolSpec, isa: str) -> PoolChoice:
    """Tile and tasks by rule."""
    n, blocks, height, width, _ = spec.output.shape
    rows = per_task(height, n * blocks, width * math.prod(spec.kernel))
    return PoolChoice(pixels=min(_PIXELS, width), rows=rows)


def check(spec: PoolSpec, isa: str, choice: PoolChoice) -> None:
    """Refuses a choice that doesn't fit.

    Raises:
        ValueError: it doesn't.
    """
    height, width = spec.output.shape[2:4]
    rows, pixels = choice.rows, choice.pixels
    require(rows > 0 and height % rows == 0, f"{height} rows don't divide by {rows}")
    require(0 < pixels <= min(width, MOST_PIXELS[isa]), f"{pixels} pixels of {width}")


def build_pool2d(spec: PoolSpec, isa: str, choice: PoolChoice | None = None) -> Kernel:
    """A pooling; any window, stride, dilation and padding.

    Raises:
        ValueError: the choice doesn't fit the pooling.
    """
    n, blocks, height, _, _ = spec.output.shape
    kh, kw = spec.kernel
    chosen = choice_of(spec, isa) if choice is None else choice
    check(spec, isa, chosen)
    rows = chosen.rows
    extents = {"n": n, "block": blocks, "rows": height // rows}
    emitter = _Emitter(spec, chosen.pixels)
    b = emitter.b
    extent = math.prod(extents.values())
    with b.loop(extent, "task", "parallel") as task:
        at = split_index(b, task, extents)
        with b.loop(rows, "i") as i:
            emitter.row(at["n"], at["block"], b.let("row", at["rows"] * rows + i))
    return Kernel(
        func=emitter.function(),
        variant_id=f"{spec.kind}pool{kh}x{kw}_c{b.lanes}_px{chosen.pixels}_p{extent}",
        algorithm="pool",
        parallel_extent=extent,
        tile_bytes=4 * b.lanes * _data_rows(spec, rows) * spec.data.shape[3],
        unroll=chosen.pixels,
    )


def _data_rows(spec: PoolSpec, rows: int) -> int:
    """Rows of data that some output rows read."""
    reach = (rows - 1) * spec.strides[0] + (spec.kernel[0] - 1) * spec.dilations[0] + 1
    return min(reach, spec.data.shape[2])


class _Emitter:
    """Emits one pooling; a row's columns at the border get a body each, the others share one."""

    def __init__(self, spec: PoolSpec, pixels: int) -> None:
        self._spec, self._pixels = spec, pixels
        self._lanes = spec.data.shape[4]
        self.b = Loops(self._lanes)
        self._data = self.b.buffer("data", spec.data)
        self._output = self.b.buffer("output", spec.output)

    def function(self) -> PrimFunc:
        """The PrimFunc."""
        return self.b.function([self._data, self._output])

    def row(self, n: Expr, block: Expr, row: Expr) -> None:
        """One output row."""
        width = self._spec.output.shape[3]
        whole = [j for j in range(width) if self._is_whole(j)]
        first, last = (whole[0], whole[-1] + 1) if whole else (width, width)
        for j in range(first):
            self._tile(n, block, row, tirx.const(j, "int32"), 1, self._taps(j))
        if whole:
            for span in spans(last - first, self._pixels):
                with self.b.loop(span.count, "col_tile") as i:
                    column = self.b.let("column", i * span.size + (span.start + first))
                    self._tile(n, block, row, column, span.size, self._taps(first))
        for j in range(last, width):
            self._tile(n, block, row, tirx.const(j, "int32"), 1, self._taps(j))

    def _taps(self, column: int) -> tuple[int, int]:
        """First and past-the-last tap of the window's row that lie inside the data."""
        spec = self._spec
        start = column * spec.strides[1] - spec.pads[1]
        inside = [
            x
            for x in range(spec.kernel[1])
            if 0 <= start + x * spec.dilations[1] < spec.data.shape[3]
        ]
        return (inside[0], inside[-1] + 1) if inside else (0, 0)

    def _is_whole(self, column: int) -> bool:
        return self._taps(column) == (0, self._spec.kernel[1])

    def _tile(
        self, n: Expr, block: Expr, row: Expr, column: Expr, pixels: int, taps: tuple[int, int]
    ) -> None:
        b, spec = self.b, self._spec
        neutral = splat(_LOWEST if spec.kind == "max" else 0.0, self._lanes)
        registers = [b.register("acc", self._lanes) for _ in range(pixels)]
        for register in registers:
            b.set(register, neutral)
        counter = b.register("rows", 1)
        b.set(counter, splat(0.0, 1))
        with b.loop(spec.kernel[0], "y") as y:
            line = b.let("line", row * spec.strides[0] - spec.pads[0] + y * spec.dilations[0])
            with b.branch(tirx.all(line >= 0, line < spec.data.shape[2])):
                self._window_row(registers, n, block, line, column, taps)
            with b.branch(self._counts(line)):
                b.set(counter, counter.get() + splat(1.0, 1))
        scale = None
        if spec.kind == "avg":
            taken = counter.get() * splat(float(self._column_count(column, taps)), 1)
            scale = b.let("scale", splat(splat(1.0, 1) / taken, self._lanes))
        for p, register in enumerate(registers):
            value = register.get() if scale is None else register.get() * scale
            b.store(self._output, [n, block, row, column + p, 0], value)

    def _counts(self, line: Expr) -> Expr:
        """Whether a window's row counts in an average's divisor."""
        height = self._spec.data.shape[2]
        if self._spec.count_include_pad:
            return line < height + self._spec.pads[2]
        return tirx.all(line >= 0, line < height)

    def _column_count(self, column: Expr, taps: tuple[int, int]) -> int:
        """Columns of the window that count in an average's divisor."""
        spec = self._spec
        if not spec.count_include_pad:
            return taps[1] - taps[0]
        if taps == (0, spec.kernel[1]):
            return spec.kernel[1]
        # A border column: its index is a constant.
        start = int(column) * spec.strides[1] - spec.pads[1]
        end = spec.data.shape[3] + spec.pads[3]
        return sum(start + x * spec.dilations[1] < end for x in range(spec.kernel[1]))

    def _window_row(
        self,
        registers: Sequence[Register],
        n: Expr,
        block: Expr,
        line: Expr,
        column: Expr,
        taps: tuple[int, int],
    ) -> None:
        count = taps[1] - taps[0]
        if 0 < count <= _UNROLLED_TAPS:
            for x in range(*taps):
                self._tap(registers, n, block, line, column, x)
        elif count:
            with self.b.loop(count, "x") as x:
                self._tap(registers, n, block, line, column, x + taps[0])

    def _tap(
        self,
        registers: Sequence[Register],
        n: Expr,
        block: Expr,
        line: Expr,
        column: Expr,
        x: Expr,
    ) -> None:
        b, spec = self.b, self._spec
        for p, register in enumerate(registers):
            at = (column + p) * spec.strides[1] + x * spec.dilations[1] - spec.pads[1]
            value = load(self._data, [n, block, line, at, 0], self._lanes)
            old = register.get()
            b.set(register, vm.maximum(old, value) if spec.kind == "max" else old + value)
