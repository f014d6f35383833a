"""Collects packed constants and writes them as `weights.bin`: 64-byte aligned, each stored once."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from veltair.compiler.graph import Array
from veltair.runtime.manifest import ALIGNMENT_BYTES, Argument, compact_strides


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
        """Writes the file; the gaps between tensors are zeros."""
        with path.open("wb") as file:
            for offset, array in self._arrays:
                file.seek(offset)
                file.write(array.data)
            file.truncate(self._end)
