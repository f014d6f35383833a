"""Collects packed constants and writes them as `weights.bin`: 64-byte aligned, each stored once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from veltair.compiler.binding import Array
from veltair.runtime.manifest import ALIGNMENT_BYTES, Argument, compact_strides

# The page cache holds a file in pieces as large as it was written in. In pieces of a huge page the
# processor needs one translation for each, where small pages cost a convolution some per cent.
_BLOCK_BYTES = 2 << 20


class WeightStore:
    """Packed constants in the order of their first use; equal ones share their bytes."""

    def __init__(self) -> None:
        """Starts empty."""
        self._offsets: dict[tuple[str, tuple[int, ...], bytes], int] = {}
        self._arrays: list[tuple[int, Array]] = []
        self._end = 0

    @property
    def size_bytes(self) -> int:
        """Size of the file."""
        return self._end

    def add(self, array: Array) -> Argument:
        """Stores `array` unless its equal is there already, and returns where it lies."""
        array = np.asarray(array, order="C")
        digest = hashlib.sha256(array.data).digest()
        key = (array.dtype.name, array.shape, digest)
        if key not in self._offsets:
            self._offsets[key] = self._end
            self._arrays.append((self._end, array))
            self._end += -(-array.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        return Argument(
            storage="weights",
            index=0,
            offset_bytes=self._offsets[key],
            dtype=array.dtype.name,
            shape=array.shape,
            strides=compact_strides(array.shape),
        )

    def write(self, path: Path) -> None:
        """Writes the file and lets go of what it holds; the gaps between tensors are zeros."""
        with path.open("wb") as file:
            block = bytearray()
            for piece in self._pieces():
                block += piece
                if (whole := len(block) // _BLOCK_BYTES * _BLOCK_BYTES) > 0:
                    file.write(block[:whole])
                    del block[:whole]
            file.write(block)

    def _pieces(self) -> Iterator[bytes | memoryview]:
        """The file's content in order."""
        end = 0
        self._arrays.reverse()
        while self._arrays:  # a large network's weights are then in memory once, not twice
            offset, array = self._arrays.pop()
            yield bytes(offset - end)
            yield array.reshape(-1).view(np.uint8).data
            end = offset + array.nbytes
        yield bytes(self._end - end)
