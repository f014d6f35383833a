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

from veltair.compiler.kernels.epilogue import Epilogue, suffix
from veltair.compiler.kernels.loops import Expr, Loops, load, splat, strided_load
from veltair.compiler.kernels.spec import LANES, ConvSpec, Kernel
from veltair.compiler.kernels.tasks import per_task, split_index
from veltair.compiler.kernels.tiling import divisor_at_most

_CHANNELS = 4  # output channels of a group that share each loaded pixel vector
_VECTORS = 3  # pixel vectors of a row accumulated together


def build_plain(spec: ConvSpec, isa: str) -> Kernel:
    """A convolution with plain data and output, any number of groups."""
    lanes = LANES[isa]
    (height, width), (kh, kw) = spec.out_hw, spec.kernel
    group_out = spec.out_channels // spec.groups
    channels = divisor_at_most(group_out, _CHANNELS)
    others = spec.batch * spec.groups * (group_out // channels)
    steps = spec.in_channels // spec.groups * kh * kw
    rows = per_task(height, others, math.ceil(width / lanes) * steps * channels)
    extents = {
        "n": spec.batch,
        "group": spec.groups,
        "chunk": group_out // channels,
        "rows": height // rows,
    }
    emitter = _Emitter(spec, lanes, channels)
    b = emitter.b
    extent = math.prod(extents.values())
    with b.loop(extent, "task", "parallel") as task:
        at = split_index(b, task, extents)
        first = b.let("first", at["group"] * group_out + at["chunk"] * channels)
        with b.loop(rows, "i") as i:
            emitter.row(at["n"], at["group"], first, b.let("row", at["rows"] * rows + i))
    return Kernel(
        func=emitter.function(),
        variant_id=f"conv{kh}x{kw}_plain_oc{channels}_ow{_VECTORS}x{lanes}_p{extent}"
        + suffix(spec.epilogue),
        algorithm="grouped" if spec.groups > 1 else "plain",
        parallel_extent=extent,
        tile_bytes=4 * steps * (channels + lanes),
        pack_weight=_pack_weight,
        pack_channel=_pack_channel,
    )


def _pack_weight(weight: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(weight, np.float32).reshape(-1)


def _pack_channel(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(values, np.float32).reshape(-1)


def _pieces(width: int, lanes: int) -> Iterator[tuple[int, int, int]]:
    """Cuts a row into (start, vector lanes, vectors), full vectors first, then powers of two."""
    start = 0
    while width - start >= lanes:
        count = min(_VECTORS, (width - start) // lanes)
        yield start, lanes, count
        start += count * lanes
    while start < width:
        size = 1 << ((width - start).bit_length() - 1)
        yield start, size, 1
        start += size


class _Emitter:
    """Emits one plain convolution."""

    def __init__(self, spec: ConvSpec, lanes: int, channels: int) -> None:
        self.b = Loops(lanes)
        self._spec, self._channels = spec, channels
        b = self.b
        self._data = b.buffer("data", spec.data, aligned=False)
        self._steps = spec.in_channels // spec.groups * math.prod(spec.kernel)
        self._weight = b.flat("weight", spec.out_channels * self._steps)
        self._epilogue = Epilogue(b, spec.epilogue, spec.out_channels, aligned=False)
        self._output = b.buffer("output", spec.output, aligned=False)

    def function(self) -> PrimFunc:
        """The PrimFunc."""
        return self.b.function([self._data, self._weight, *self._epilogue.buffers, self._output])

    def row(self, n: Expr, group: Expr, first: Expr, row: Expr) -> None:
        """One output row of some channels."""
        for start, lanes, count in _pieces(self._spec.out_hw[1], self.b.lanes):
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
