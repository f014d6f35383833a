"""Tensors that carry their own shape: those whose shape or size is known only with their value.

In memory such a tensor is a header of `HEADER_BYTES`, 64-bit integers in the machine's order: the
bytes that follow, the number of dimensions, the dimensions; then the elements, dense. A string is
its length in 32 bits, least significant byte first, and its UTF-8 bytes: as in the Open Inference
Protocol's binary tensors.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from veltair.runtime.errors import InputError

HEADER_BYTES = 128
MOST_DIMENSIONS = 14
STRING = "string"

_AnyArray = npt.NDArray[Any]
_Memory = npt.NDArray[np.uint8]


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Returns the NumPy dtype of a manifest's; bfloat16, which NumPy lacks, is uint16 bits."""
    return np.dtype("uint16" if name == "bfloat16" else name)


def read_framed(memory: _Memory, dtype: str) -> _AnyArray:
    """Returns the tensor in uint8[capacity]: a view of it, or objects of `str`.

    Args:
        memory: aligned to 8 bytes.
        dtype: a manifest's; bfloat16 as uint16, its bits.
    """
    size_bytes, rank, *dimensions = (int(n) for n in memory[:HEADER_BYTES].view(np.int64))
    shape = tuple(dimensions[:rank])
    payload = memory[HEADER_BYTES : HEADER_BYTES + size_bytes]
    if dtype == STRING:
        return strings_of(payload.tobytes()).reshape(shape)
    return payload.view(numpy_dtype(dtype)).reshape(shape)


def write_framed(memory: _Memory, array: _AnyArray, name: str) -> None:
    """Writes a tensor, of numbers or of strings, into uint8[capacity].

    Raises:
        InputError: it doesn't fit; `name` is what the message calls it.
    """
    payload = bytes_of_strings(array) if array.dtype == np.object_ else array.tobytes()
    room = memory.size - HEADER_BYTES
    if len(payload) > room or array.ndim > MOST_DIMENSIONS:
        raise InputError(
            f"{name}: has {len(payload)} bytes in {array.ndim} dimensions, at most {room} and "
            f"{MOST_DIMENSIONS} are taken; send less, or compile the model with a larger "
            f"--most-bytes {name}=..."
        )
    write_header(memory, len(payload), array.shape)
    memory[HEADER_BYTES : HEADER_BYTES + len(payload)] = np.frombuffer(payload, np.uint8)


def write_header(memory: _Memory, size_bytes: int, shape: tuple[int, ...]) -> None:
    """Writes what stands before so many bytes of elements."""
    header = memory[:HEADER_BYTES].view(np.int64)
    header[:2] = size_bytes, len(shape)
    header[2 : 2 + len(shape)] = shape


def bytes_of_strings(array: _AnyArray) -> bytes:
    """Returns `str` or `bytes` objects as the protocol has them, in order."""
    encoded = [s.encode() if isinstance(s, str) else bytes(s) for s in array.reshape(-1)]
    return b"".join(struct.pack("<I", len(each)) + each for each in encoded)


def strings_of(payload: bytes) -> npt.NDArray[np.object_]:
    """Returns object[strings]: the `str` of a payload as the protocol has it.

    Raises:
        ValueError: it ends within a string, or isn't UTF-8.
    """
    found: list[str] = []
    at = 0
    while at < len(payload):
        end = at + 4
        size = int.from_bytes(payload[at:end], "little")
        if end + size > len(payload):
            raise ValueError(f"the string at byte {at} ends at {end + size} of {len(payload)}")
        found.append(payload[end : end + size].decode())
        at = end + size
    strings = np.empty(len(found), np.object_)
    strings[:] = found
    return strings


def fits(shape: tuple[int, ...], declared: tuple[int, ...]) -> bool:
    """Whether a shape is one of those that `declared`, with -1 for any size, stands for."""
    pairs = zip(shape, declared, strict=True)
    return len(shape) == len(declared) and all(size == d or d < 0 for size, d in pairs)
