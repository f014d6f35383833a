"""Shares memory among buffers that are never alive together.

A buffer with a border of zeros is one of two kinds. Of a small one the border is zero from the
instance's creation on: kernels write only its inside, and it shares memory only with those whose
borders fall on its own. Of a large one the border is cleared before each run's first write, which
costs a small part of that write: it shares memory with anything, and needs none of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from veltair.runtime.manifest import ALIGNMENT_BYTES, ITEM_BYTES, Border, Storage

Margins = tuple[int, int, int, int]  # top, left, bottom, right
# From here on borders are cleared: of MobileNet-V2 four tensors, in 12 us a run. Much lower it
# would be many small ones.
CLEARED_FROM_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Of the two memories of a plan, in bytes.

    Attributes:
        arena_bytes: of the one that means nothing before a run, nor after it.
        bordered_bytes: of the one whose borders stay zero.
    """

    arena_bytes: int = 0
    bordered_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """Both."""
        return self.arena_bytes + self.bordered_bytes


@dataclass(frozen=True, kw_only=True)
class Buffer:
    """A root tensor's memory: its form, its border, and the times between which it lives."""

    name: str
    form: tuple[int, ...]  # allocated shape
    margins: Margins
    dtype: str
    first: int
    last: int

    @property
    def size_bytes(self) -> int:
        """Whole lines."""
        return _aligned(math.prod(self.form) * ITEM_BYTES[self.dtype])

    @property
    def is_cleared(self) -> bool:
        """Whether its border is cleared in each run."""
        return any(self.margins) and self.size_bytes >= CLEARED_FROM_BYTES

    @property
    def storage(self) -> Storage:
        """The memory that it lies in."""
        return "bordered" if any(self.margins) and not self.is_cleared else "arena"

    def meets(self, other: Buffer) -> bool:
        """Whether both are alive at some time."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """Where each buffer lies in its storage, and where the last ones end."""

    offsets: Mapping[str, int]
    sizes: Sizes


def allocate(buffers: Sequence[Buffer], base: Sizes) -> Allocation:
    """Places all buffers, from `base` on."""
    bordered = [buffer for buffer in buffers if buffer.storage == "bordered"]
    offsets, bordered_end = _place_bordered(bordered, _aligned(base.bordered_bytes))
    free = [buffer for buffer in buffers if buffer.storage == "arena"]
    placed, end = _share(free, _aligned(base.arena_bytes))
    return Allocation(
        offsets=offsets | placed, sizes=Sizes(arena_bytes=end, bordered_bytes=bordered_end)
    )


def border_of(buffer: Buffer, offset_bytes: int) -> Border:
    """The border of a buffer that lies at this offset of the arena."""
    return Border(
        offset_bytes=offset_bytes, dtype=buffer.dtype, shape=buffer.form, margins=buffer.margins
    )


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def _place_bordered(buffers: list[Buffer], base: int) -> tuple[dict[str, int], int]:
    """Offsets of buffers whose borders stay zero, and where they end."""
    regions: dict[tuple[object, ...], list[Buffer]] = {}
    for buffer in buffers:
        regions.setdefault(_unit(buffer), []).append(buffer)
    offsets: dict[str, int] = {}
    top = base
    for tenants in regions.values():
        placed, top = _share(tenants, top)
        offsets |= placed
    return offsets, top


def _unit(buffer: Buffer) -> tuple[object, ...]:
    """What bordered buffers must have in common to lie in one region, at multiples of its size.

    A channel (or a block of them) with its border; the whole buffer where channels are no multiple
    of the alignment.
    """
    size_bytes, rest = divmod(buffer.size_bytes, math.prod(buffer.form[:2]))
    if rest == 0 and size_bytes % ALIGNMENT_BYTES == 0:
        return (buffer.margins, buffer.form[2:], size_bytes)
    return (buffer.margins, buffer.form, buffer.size_bytes)


def _share(buffers: list[Buffer], base: int) -> tuple[dict[str, int], int]:
    """Offsets from `base` on where no two overlap that are alive together, and where they end."""
    placed: list[tuple[int, Buffer]] = []
    end = base
    for buffer in sorted(buffers, key=lambda b: (-b.size_bytes, b.first)):
        offset = _lowest_gap(base, buffer, placed)
        placed.append((offset, buffer))
        end = max(end, offset + buffer.size_bytes)
    return {buffer.name: offset for offset, buffer in placed}, end


def _lowest_gap(base: int, buffer: Buffer, placed: list[tuple[int, Buffer]]) -> int:
    """The lowest offset where `buffer` overlaps nothing that is alive with it."""
    taken = sorted((o, o + b.size_bytes) for o, b in placed if b.meets(buffer))
    offset = base
    for start, end in taken:
        if offset + buffer.size_bytes <= start:
            break
        offset = max(offset, end)
    return offset
