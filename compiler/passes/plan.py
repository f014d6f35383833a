"""Plans the memory of a run: where every tensor lies, statically.

Tensors share memory by their lifetimes, as `allocation` says. Little memory is fast memory: after
idleness every line of it comes from afar.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from veltair.compiler.graph import Graph, Op, Tensor
from veltair.compiler.passes.allocation import Buffer, Margins, Sizes, allocate, border_of
from veltair.compiler.passes.compact import borders, parts
from veltair.runtime.manifest import ITEM_BYTES, Border, Storage, compact_strides

_NO_MARGINS: Margins = (0, 0, 0, 0)
_NOTHING = Sizes()


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where a tensor lies: byte offset in a storage, physical shape, strides in elements."""

    storage: Storage
    index: int
    offset_bytes: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def padded(self, pads: Margins) -> Placement:
        """The view that begins `pads` before the tensor and ends behind it (top, left, ...)."""
        top, left, bottom, right = pads
        height, width = self.strides[2:4]
        shape = list(self.shape)
        shape[2] += top + bottom
        shape[3] += left + right
        before = (top * height + left * width) * ITEM_BYTES[self.dtype]
        return replace(self, shape=tuple(shape), offset_bytes=self.offset_bytes - before)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The memory of a run.

    Attributes:
        placements: of every activation.
        roots: the tensor in whose memory each lies.
        cleared: the borders to clear before an operation runs, by its first output.
        sizes: where the placements end.
    """

    placements: Mapping[str, Placement]
    roots: Mapping[str, str]
    cleared: Mapping[str, Sequence[Border]]
    sizes: Sizes


def physical_shape(tensor: Tensor, lanes: int) -> tuple[int, ...]:
    """Shape in memory, without a border: packed (N, ceil(C / v), H, W, v), plain as it is."""
    if tensor.layout == "plain":
        return tensor.shape
    n, c, h, w = tensor.shape
    return (n, -(-c // lanes), h, w, lanes)


def plan_memory(
    graph: Graph,
    lanes: int,
    *,
    without: Collection[str] = (),
    times: Sequence[int] | None = None,
    base: Sizes = _NOTHING,
) -> Plan:
    """Places every activation of the graph.

    Args:
        graph: after all passes, regions expanded.
        lanes: float32 lanes of a vector.
        without: roots of tensors that get no memory here; where they are placed means nothing.
        times: when each operation runs, ascending; those of equal times run in any order, several
            times. None: one after the other.
        base: what is taken already.
    """
    own = range(len(graph.ops)) if times is None else times
    return _Planner(graph, lanes, own).run(without, base)


class _Planner:
    def __init__(self, graph: Graph, lanes: int, times: Sequence[int]) -> None:
        self.graph = graph
        self.lanes = lanes
        self.parts = parts(graph)
        self.sources = {op.outputs[0]: op.inputs[0] for op in graph.ops if op.kind == "Reshape"}
        self.borders = borders(graph)
        self.first_ops: dict[str, Op] = {}  # of each root
        self.buffers = self._buffers(times)

    def run(self, without: Collection[str], base: Sizes) -> Plan:
        kept = [buffer for name, buffer in self.buffers.items() if name not in without]
        allocation = allocate(kept, base)
        placements: dict[str, Placement] = {}
        activations = {*self.graph.inputs, *(o for op in self.graph.ops for o in op.outputs)}
        for name in activations:
            self._place(name, allocation.offsets, placements)
        cleared: dict[str, list[Border]] = {}
        for buffer in kept:
            if buffer.is_cleared:
                border = border_of(buffer, allocation.offsets[buffer.name])
                cleared.setdefault(self.first_ops[buffer.name].outputs[0], []).append(border)
        return Plan(
            placements=placements,
            roots={name: self._root(name) for name in placements},
            cleared=cleared,
            sizes=allocation.sizes,
        )

    # --- aliases ----------------------------------------------------------------------------

    def _root(self, name: str) -> str:
        """The tensor in whose buffer `name` lies."""
        while True:
            if name in self.parts:
                name = self.parts[name][0]
            elif name in self.sources:
                name = self.sources[name]
            else:
                return name

    def _end(self, root: str) -> tuple[Storage, int] | None:
        """Which input or output it is; None where it is neither."""
        if root in self.graph.inputs:
            return "input", self.graph.inputs.index(root)
        for index, output in enumerate(self.graph.outputs):
            if self._root(output) == root:
                return "output", index
        return None

    def _margins(self, name: str) -> Margins:
        """The border as allocated: plain rows begin on a vector's boundary."""
        border = self.borders.get(name, _NO_MARGINS)
        if not any(border) or self.graph.tensors[name].layout == "packed":
            return border
        width = self.graph.tensors[name].shape[3]
        top, left, bottom, right = border
        left = -(-left // self.lanes) * self.lanes
        right = -(-(left + width + right) // self.lanes) * self.lanes - left - width
        return (top, left, bottom, right)

    def _form(self, name: str) -> tuple[int, ...]:
        top, left, bottom, right = self._margins(name)
        shape = physical_shape(self.graph.tensors[name], self.lanes)
        if not any((top, left, bottom, right)):
            return shape
        return (*shape[:2], shape[2] + top + bottom, shape[3] + left + right, *shape[4:])

    # --- buffers ----------------------------------------------------------------------------

    def _buffers(self, times: Sequence[int]) -> dict[str, Buffer]:
        lives: dict[str, list[int]] = {}
        for op, time in zip(self.graph.ops, times, strict=True):
            for name in (*op.reads, *op.outputs):
                if self.graph.tensors[name].data is None:
                    root = self._root(name)
                    lives.setdefault(root, []).append(time)
                    self.first_ops.setdefault(root, op)
        return {
            root: Buffer(
                name=root,
                form=self._form(root),
                margins=self._margins(root),
                dtype=self.graph.tensors[root].dtype,
                first=min(uses),
                last=max(uses),
            )
            for root, uses in lives.items()
            if self._end(root) is None
        }

    # --- placements -------------------------------------------------------------------------

    def _place(
        self, name: str, offsets: Mapping[str, int], placements: dict[str, Placement]
    ) -> Placement:
        if name in placements:
            return placements[name]
        tensor = self.graph.tensors[name]
        shape = physical_shape(tensor, self.lanes)
        if name in self.parts:
            parent, channel = self.parts[name]
            whole = self._place(parent, offsets, placements)
            skipped = channel // self.lanes * whole.strides[1] * ITEM_BYTES[tensor.dtype]
            strides = whole.strides
            if shape[0] == 1:  # then the images' distance is free: as if the part lay alone
                strides = (shape[1] * strides[1], *strides[1:])
            place = replace(
                whole, shape=shape, strides=strides, offset_bytes=whole.offset_bytes + skipped
            )
        elif name in self.sources:
            source = self._place(self.sources[name], offsets, placements)
            place = replace(source, shape=shape, strides=compact_strides(shape))
        else:
            place = self._place_root(name, tensor, shape, offsets)
        placements[name] = place
        return place

    def _place_root(
        self, name: str, tensor: Tensor, shape: tuple[int, ...], offsets: Mapping[str, int]
    ) -> Placement:
        storage, index = self._end(name) or (self.buffers[name].storage, 0)
        strides = compact_strides(self._form(name))
        top, left = self._margins(name)[:2]
        inside = top * strides[2] + left * strides[3] if top or left else 0
        return Placement(
            storage=storage,
            index=index,
            offset_bytes=offsets.get(name, 0) + inside * ITEM_BYTES[tensor.dtype],
            dtype=tensor.dtype,
            shape=shape,
            strides=strides,
        )
