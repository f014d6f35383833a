"""Copies between plain and packed layouts."""

from __future__ import annotations

import math

from tvm import tirx
from tvm.tirx import PrimFunc

from veltair.compiler.kernels.choices import RowsChoice
from veltair.compiler.kernels.loops import Expr, Loops, load, splat
from veltair.compiler.kernels.spec import Kernel, RelayoutSpec, View
from veltair.compiler.kernels.tasks import per_task, rows_of, split_index
from veltair.runtime.manifest import LANES


def choice_of(spec: RelayoutSpec, isa: str) -> RowsChoice:
    """Tasks by rule."""
    n, _, height, width = _plain_extent(spec.output)
    blocks = math.ceil(spec.channels / LANES[isa])
    return RowsChoice(rows=per_task(height, n * blocks, width * LANES[isa]))


def build_relayout(spec: RelayoutSpec, isa: str, choice: RowsChoice | None = None) -> Kernel:
    """A copy; the halo of an output view is not the view's, so it is not written.

    Raises:
        ValueError: the choice doesn't fit the copy.
    """
    lanes = LANES[isa]
    emitter = _Emitter(spec, lanes)
    b = emitter.b
    n, _, height, width = _plain_extent(spec.output)
    blocks = math.ceil(spec.channels / lanes)
    rows = rows_of(choice or choice_of(spec, isa), height)
    extents = {"n": n, "block": blocks, "rows": height // rows}
    extent = math.prod(extents.values())
    with b.loop(extent, "task", "parallel") as task:
        at = split_index(b, task, extents)
        with b.loop(rows, "i") as i:
            row = b.let("row", at["rows"] * rows + i)
            emitter.row(at["n"], at["block"], row, width)
    kinds = "_to_".join(
        "packed" if len(v.shape) == 5 else "plain" for v in (spec.data, spec.output)
    )
    return Kernel(
        func=emitter.function(),
        variant_id=f"relayout_{kinds}_c{lanes}_p{extent}",
        algorithm="relayout",
        parallel_extent=extent,
        tile_bytes=8 * lanes * width * rows,
    )


def _plain_extent(view: View) -> tuple[int, int, int, int]:
    n, c, height, width = view.shape[:4]
    return n, c, height, width


class _Emitter:
    """Emits one copy, a row of one channel block at a time."""

    def __init__(self, spec: RelayoutSpec, lanes: int) -> None:
        self.b = Loops(lanes)
        self._lanes, self._spec = lanes, spec
        self._packs, self._unpacks = len(spec.output.shape) == 5, len(spec.data.shape) == 5
        self._data = self.b.buffer("data", spec.data, aligned=self._unpacks)
        self._output = self.b.buffer("output", spec.output, aligned=self._packs)

    def function(self) -> PrimFunc:
        """The PrimFunc."""
        return self.b.function([self._data, self._output])

    def row(self, n: Expr, block: Expr, row: Expr, width: int) -> None:
        """One row of a channel block; the last block may be partial."""
        blocks = math.ceil(self._spec.channels / self._lanes)
        last = self._spec.channels - (blocks - 1) * self._lanes
        if last == self._lanes or blocks == 1:
            self._part(n, block, row, width, last)
            return
        with self.b.branch(block < blocks - 1):
            self._part(n, block, row, width, self._lanes)
        with self.b.branch(block == blocks - 1):
            self._part(n, block, row, width, last)

    def _part(self, n: Expr, block: Expr, row: Expr, width: int, channels: int) -> None:
        b, lanes = self.b, self._lanes
        if self._packs and self._unpacks:
            with b.loop(width, "x") as x:
                where = [n, block, row, x, 0]
                b.store(self._output, where, self._masked(where, channels))
            return
        if not self._packs and not self._unpacks:
            with b.loop(channels, "c") as c:
                self._copy_plain([n, block * lanes + c, row], width)
            return
        whole = width // lanes
        if whole:
            with b.loop(whole, "tile") as tile:
                self._square(n, block, row, b.let("x", tile * lanes), channels)
        with b.loop(width - whole * lanes, "x") as x:
            self._pixel(n, block, row, x + whole * lanes, channels)

    def _masked(self, where: list[Expr], channels: int) -> Expr:
        value = load(self._data, where, self._lanes)
        if channels == self._lanes:
            return value
        keep = [i if i < channels else self._lanes + i for i in range(self._lanes)]
        return tirx.Shuffle([value, splat(0.0, self._lanes)], keep)

    def _copy_plain(self, where: list[Expr], width: int) -> None:
        b, lanes = self.b, self._lanes
        whole = width // lanes
        if whole:
            with b.loop(whole, "tile") as tile:
                at = [*where, tile * lanes]
                b.store(self._output, at, load(self._data, at, lanes))
        with b.loop(width - whole * lanes, "x") as x:
            at = [*where, x + whole * lanes]
            b.store(self._output, at, load(self._data, at))

    def _square(self, n: Expr, block: Expr, row: Expr, x: Expr, channels: int) -> None:
        """Transposes `lanes` pixels of a channel block in registers."""
        b, lanes = self.b, self._lanes
        if self._packs:
            lines = [
                load(self._data, [n, block * lanes + c, row, x], lanes)
                if c < channels
                else splat(0.0, lanes)
                for c in range(lanes)
            ]
        else:
            lines = [load(self._data, [n, block, row, x + p, 0], lanes) for p in range(lanes)]
        columns = self._transpose(lines)
        for i, column in enumerate(columns):
            if self._packs:
                b.store(self._output, [n, block, row, x + i, 0], column)
            elif i < channels:
                b.store(self._output, [n, block * lanes + i, row, x], column)

    def _transpose(self, lines: list[Expr]) -> list[Expr]:
        """Swaps ever larger halves of pairs of lines: log2(lanes) rounds of shuffles."""
        b, lanes = self.b, self._lanes
        lines = [b.let("line", line) for line in lines]
        size = 1
        while size < lanes:
            low = [i if not i & size else lanes + i - size for i in range(lanes)]
            high = [i + size if not i & size else lanes + i for i in range(lanes)]
            swapped = list(lines)
            for i in range(lanes):
                if not i & size:
                    pair = [lines[i], lines[i + size]]
                    swapped[i] = b.let("line", tirx.Shuffle(pair, low))
                    swapped[i + size] = b.let("line", tirx.Shuffle(pair, high))
            lines = swapped
            size *= 2
        return lines

    def _pixel(self, n: Expr, block: Expr, row: Expr, x: Expr, channels: int) -> None:
        b, lanes = self.b, self._lanes
        for c in range(lanes if self._packs else channels):
            plain = [n, block * lanes + c, row, x]
            packed = [n, block, row, x, c]
            if self._packs:
                value = load(self._data, plain) if c < channels else splat(0.0, 1)
                b.store(self._output, packed, value)
            else:
                b.store(self._output, plain, load(self._data, packed))
