"""Convolution on plain NCHW in and out, vectorised over a row's pixels.

For grouped convolutions whose channels a group don't fill vectors. Weights are read as scalars and
broadcast.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from tvm.tirx import PrimFunc

from veltair.compiler.kernels.choices import PlainChoice, require
from veltair.compiler.kernels.epilogue import Epilogue, suffix
from veltair.compiler.kernels.loops import Expr, Loops, load, splat, strided_load
from veltair.compiler.kernels.spec import ConvSpec, Kernel
from veltair.compiler.kernels.tasks import per_task, split_index
from veltair.compiler.kernels.tiling import REGISTERS, divisor_at_most
from veltair.runtime.manifest import LANES

_CHANNELS, _VECTORS = 4, 3  # by rule: they fit the registers of every instruction set


def choice_of(spec: ConvSpec, isa: str) -> PlainChoice:
    """Tile and tasks by rule."""
    (height, width), group_out = spec.out_hw, spec.out_channels // spec.groups
    channels = divisor_at_most(group_out, _CHANNELS)
    others = spec.batch * spec.groups * (group_out // channels)
    rows = per_task(height, others, math.ceil(width / LANES[isa]) * steps_of(spec) * channels)
    vectors = min(_VECTORS, most_vectors(spec, isa))
    return PlainChoice(channels=channels, vectors=vectors, rows=rows)


def check(spec: ConvSpec, isa: str, choice: PlainChoice) -> None:
    """Refuses a choice that doesn't fit.

    Raises:
        ValueError: it doesn't.
    """
    height, group_out = spec.out_hw[0], spec.out_channels // spec.groups
    channels, vectors, rows = choice.channels, choice.vectors, choice.rows
    require(spec.data_plain and spec.output_plain, "its data is packed")
    require(rows > 0 and height % rows == 0, f"{height} rows don't divide by {rows}")
    require(
        channels > 0 and group_out % channels == 0,
        f"{group_out} channels of a group don't divide by {channels}",
    )
    most = most_vectors(spec, isa)
    require(0 < vectors <= most, f"{vectors} vectors of a row of {most}")
    require(fits(channels, vectors, isa), f"{channels} by {vectors} sums don't fit the registers")


def most_vectors(spec: ConvSpec, isa: str) -> int:
    """Whole vectors of a row, of which more would make the same kernel; at least one."""
    return max(spec.out_hw[1] // LANES[isa], 1)


def fits(channels: int, vectors: int, isa: str) -> bool:
    """Whether the sums, the pixels and a weight that all lanes have fit the registers."""
    return channels * vectors + vectors + 1 <= REGISTERS[isa]


def steps_of(spec: ConvSpec) -> int:
    """Multiply-adds of one output."""
    return spec.in_channels // spec.groups * math.prod(spec.kernel)


def build_plain(spec: ConvSpec, isa: str, choice: PlainChoice | None = None) -> Kernel:
    """A convolution with plain data and output, any number of groups.

    Raises:
        ValueError: the choice doesn't fit the convolution.
    """
    chosen = choice_of(spec, isa) if choice is None else choice
    check(spec, isa, chosen)
    lanes, kernel = LANES[isa], "x".join(map(str, spec.kernel))
    channels, vectors, rows = chosen.channels, chosen.vectors, chosen.rows
    group_out = spec.out_channels // spec.groups
    extents = {
        "n": spec.batch,
        "group": spec.groups,
        "chunk": group_out // channels,
        "rows": spec.out_hw[0] // rows,
    }
    emitter = _Emitter(spec, lanes, chosen)
    b = emitter.b
    extent = math.prod(extents.values())
    with b.loop(extent, "task", "parallel") as task:
        at = split_index(b, task, extents)
        first = b.let("first", at["group"] * group_out + at["chunk"] * channels)
        with b.loop(rows, "i") as i:
            emitter.row(at["n"], at["group"], first, b.let("row", at["rows"] * rows + i))
    return Kernel(
        func=emitter.function(),
        variant_id=f"conv{kernel}_plain_oc{channels}_ow{vectors}x{lanes}_p{extent}"
        + suffix(spec.epilogue),
        algorithm="grouped" if spec.groups > 1 else "plain",
        parallel_extent=extent,
        tile_bytes=4 * steps_of(spec) * (channels + vectors * lanes),
        unroll=channels * vectors,
        pack_weight=_pack_weight,
        pack_channel=_pack_channel,
    )


def _pack_weight(weight: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(weight, np.float32).reshape(-1)


def _pack_channel(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(values, np.float32).reshape(-1)


def _pieces(width: int, lanes: int, vectors: int) -> Iterator[tuple[int, int, int]]:
    """Cuts a row into (start, vector lanes, vectors), full vectors first, then powers of two."""
    start = 0
    while width - start >= lanes:
        count = min(vectors, (width - start) // lanes)
        yield start, lanes, count
        start += count * lanes
    while start < width:
        size = 1 << ((width - start).bit_length() - 1)
        yield start, size, 1
        start += size


class _Emitter:
    """Emits one plain convolution."""

    def __init__(self, spec: ConvSpec, lanes: int, choice: PlainChoice) -> None:
        self.b = Loops(lanes)
        self._spec, self._channels, self._vectors = spec, choice.channels, choice.vectors
        b = self.b
        self._data = b.buffer("data", spec.data, aligned=False)
        self._steps = steps_of(spec)
        self._weight = b.flat("weight", spec.out_channels * self._steps)
        self._epilogue = Epilogue(b, spec.epilogue, spec.out_channels, aligned=False)
        self._output = b.buffer("output", spec.output, aligned=False)

    def function(self) -> PrimFunc:
        """The PrimFunc."""
        return self.b.function([self._data, self._weight, *self._epilogue.buffers, self._output])

    def row(self, n: Expr, group: Expr, first: Expr, row: Expr) -> None:
        """One output row of some channels."""
        width = self._spec.out_hw[1]
        for start, lanes, count in _pieces(width, self.b.lanes, self._vectors):
            columns = [start + i * lanes for i in range(count)]
            self._tile(n, group, first, row, columns, lanes)

    def _tile(
        self, n: Expr, group: Expr, first: Expr, row: Expr, columns: Sequence[int], lanes: int
    ) -> None:
        b, spec = self.b, self._spec
        (kh, kw), group_in = spec.kernel, spec.in_channels // spec.groups
        registers = []
        for o in range(self._channels):
            initial = self._epilogue.initial(first + o, lanes, splat_channel=True)
            start = b.let("start", initial)
            of_channel = [b.register("acc", lanes) for _ in columns]
            for register in of_channel:
                b.set(register, start)
            registers.append(of_channel)
        with b.loop(group_in, "c") as c, b.loop(kh, "y") as y, b.loop(kw, "x") as x:
            values = [
                b.let("v", self._load(n, group * group_in + c, row, column, y, x, lanes))
                for column in columns
            ]
            for o, of_channel in enumerate(registers):
                tap = (first + o) * self._steps + (c * kh + y) * kw + x
                factor = b.let("w", splat(load(self._weight, [tap]), lanes))
                for register, value in zip(of_channel, values, strict=True):
                    b.set(register, register.get() + value * factor)
        for o, of_channel in enumerate(registers):
            for register, column in zip(of_channel, columns, strict=True):
                where = [n, first + o, row, column]
                value = self._epilogue.apply(register.get(), first + o, where, splat_channel=True)
                b.store(self._output, where, value)

    def _load(
        self, n: Expr, channel: Expr, row: Expr, column: int, y: Expr, x: Expr, lanes: int
    ) -> Expr:
        (sh, sw), (dh, dw) = self._spec.strides, self._spec.dilations
        where = [n, channel, row * sh + y * dh, column * sw + x * dw]
        return strided_load(self._data, where, sw, lanes)
