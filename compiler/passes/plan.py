"""Plans the memory of a run: where every tensor lies, in one statically planned arena.

Tensors with a border of zeros live at the arena's front: kernels write only their inside, so the
border stays zero from the arena's creation on. Bordered tensors share memory where their borders
fall on each other: those whose channels are of one form and border share a region of whole channels
by their lifetimes. All others share the rest of the arena by theirs. A small arena is a fast one:
after idleness every line of it comes from memory.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from veltair.compiler.graph import Graph, Tensor
from veltair.compiler.passes.compact import borders, parts
from veltair.runtime.manifest import ALIGNMENT_BYTES, ITEM_BYTES, Storage, compact_strides

Border = tuple[int, int, int, int]
_NO_BORDER: Border = (0, 0, 0, 0)


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where a tensor lies: byte offset in a storage, physical shape, strides in elements."""

    storage: Storage
    index: int
    offset_bytes: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def padded(self, pads: Border) -> Placement:
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
    """Every activation's placement, in whose memory each lies, and the arena's size."""

    placements: Mapping[str, Placement]
    roots: Mapping[str, str]
    arena_bytes: int


@dataclass(frozen=True, kw_only=True)
class _Buffer:
    """A root tensor's memory: its form, its border, and the operations between which it lives."""

    name: str
    form: tuple[int, ...]  # allocated shape
    border: Border
    size_bytes: int
    first: int
    last: int

    def meets(self, other: _Buffer) -> bool:
        return self.first <= other.last and other.first <= self.last


def physical_shape(tensor: Tensor, lanes: int) -> tuple[int, ...]:
    """Shape in memory, without a border: packed (N, ceil(C / v), H, W, v), plain as it is."""
    if tensor.layout == "plain":
        return tensor.shape
    n, c, h, w = tensor.shape
    return (n, -(-c // lanes), h, w, lanes)


def plan_memory(graph: Graph, lanes: int, without: Collection[str] = ()) -> Plan:
    """Places every activation of the graph.

    Args:
        graph: after all passes, regions expanded.
        lanes: float32 lanes of a vector.
        without: roots of tensors that get no memory here; where they are placed means nothing.
    """
    return _Planner(graph, lanes).run(without)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


class _Planner:
    def __init__(self, graph: Graph, lanes: int) -> None:
        self.graph = graph
        self.lanes = lanes
        self.parts = parts(graph)
        self.sources = {op.outputs[0]: op.inputs[0] for op in graph.ops if op.kind == "Reshape"}
        self.borders = borders(graph)

    def run(self, without: Collection[str]) -> Plan:
        buffers = [buffer for buffer in self._buffers() if buffer.name not in without]
        offsets, arena_bytes = self._allocate(buffers)
        placements: dict[str, Placement] = {}
        activations = {*self.graph.inputs, *(o for op in self.graph.ops for o in op.outputs)}
        for name in activations:
            self._place(name, offsets, placements)
        roots = {name: self._root(name) for name in placements}
        return Plan(placements=placements, roots=roots, arena_bytes=arena_bytes)

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

    def _storage(self, root: str) -> tuple[Storage, int]:
        if root in self.graph.inputs:
            return "input", self.graph.inputs.index(root)
        for index, output in enumerate(self.graph.outputs):
            if self._root(output) == root:
                return "output", index
        return "arena", 0

    def _margins(self, name: str) -> Border:
        """The border as allocated: plain rows begin on a vector's boundary."""
        border = self.borders.get(name, _NO_BORDER)
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

    def _buffers(self) -> list[_Buffer]:
        lives: dict[str, list[int]] = {}
        for index, op in enumerate(self.graph.ops):
            for name in (*op.reads, *op.outputs):
                if self.graph.tensors[name].data is None:
                    lives.setdefault(self._root(name), []).append(index)
        buffers = []
        for root, uses in lives.items():
            if self._storage(root)[0] != "arena":
                continue
            form = self._form(root)
            size = math.prod(form) * ITEM_BYTES[self.graph.tensors[root].dtype]
            buffers.append(
                _Buffer(
                    name=root,
                    form=form,
                    border=self._margins(root),
                    size_bytes=_aligned(size),
                    first=min(uses),
                    last=max(uses),
                )
            )
        return buffers

    def _allocate(self, buffers: list[_Buffer]) -> tuple[dict[str, int], int]:
        offsets, top = _place_bordered([b for b in buffers if any(b.border)])
        free, end = _share([b for b in buffers if not any(b.border)], top)
        return offsets | free, end

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
        storage, index = self._storage(name)
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


def _place_bordered(buffers: list[_Buffer]) -> tuple[dict[str, int], int]:
    """Offsets of bordered buffers, and where they end."""
    regions: dict[tuple[object, ...], list[_Buffer]] = {}
    for buffer in buffers:
        regions.setdefault(_unit(buffer), []).append(buffer)
    offsets: dict[str, int] = {}
    top = 0
    for tenants in regions.values():
        placed, top = _share(tenants, top)
        offsets |= placed
    return offsets, top


def _unit(buffer: _Buffer) -> tuple[object, ...]:
    """What bordered buffers must have in common to lie in one region, at multiples of its size.

    A channel (or a block of them) with its border; the whole buffer where channels are no multiple
    of the alignment.
    """
    size_bytes, rest = divmod(buffer.size_bytes, math.prod(buffer.form[:2]))
    if rest == 0 and size_bytes % ALIGNMENT_BYTES == 0:
        return (buffer.border, buffer.form[2:], size_bytes)
    return (buffer.border, buffer.form, buffer.size_bytes)


def _share(buffers: list[_Buffer], base: int) -> tuple[dict[str, int], int]:
    """Offsets from `base` on where no two overlap that are alive together, and where they end."""
    placed: list[tuple[int, _Buffer]] = []
    end = base
    for buffer in sorted(buffers, key=lambda b: (-b.size_bytes, b.first)):
        offset = _lowest_gap(base, buffer, placed)
        placed.append((offset, buffer))
        end = max(end, offset + buffer.size_bytes)
    return {buffer.name: offset for offset, buffer in placed}, end


def _lowest_gap(base: int, buffer: _Buffer, placed: list[tuple[int, _Buffer]]) -> int:
    """The lowest offset where `buffer` overlaps nothing that is alive with it."""
    taken = sorted((o, o + b.size_bytes) for o, b in placed if b.meets(buffer))
    offset = base
    for start, end in taken:
        if offset + buffer.size_bytes <= start:
            break
        offset = max(offset, end)
    return offset
