"""The artifact's manifest: what the compiler writes and the engine and the server read.

An artifact is a folder `<model>/<version>/` with `manifest.json` (this schema), `weights.bin` (each
tensor 64-byte aligned, packed as its kernel reads it) and `kernels.so` (one symbol a kernel). The
manifest is data only: nothing here opens a library or knows a kernel.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import msgspec

from veltair.runtime.errors import ArtifactError

SCHEMA = 1
MANIFEST_FILE = "manifest.json"
WEIGHTS_FILE = "weights.bin"
KERNELS_FILE = "kernels.so"
ALIGNMENT_BYTES = 64

ITEM_BYTES = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "uint32": 4,
    "float32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
}

Isa = Literal["x86-64-v3", "x86-64-v4"]
Storage = Literal["input", "output", "weights", "arena"]


def compact_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the manifest's records: immutable, unknown fields refused."""


class TensorSpec(_Record, frozen=True, kw_only=True):
    """A model's input or output as a client sees it: dense, row-major."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Size of the dense tensor in bytes."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


class Argument(_Record, frozen=True, kw_only=True):
    """One kernel argument: a strided view of a storage.

    Attributes:
        storage: `input` and `output` are the caller's buffers, `weights` the mapped file, `arena`
            the instance's activations. The arena is zeroed once, when the instance is made.
        index: which input or output; 0 for weights and arena.
        offset_bytes: from the storage's start.
        dtype: a name in `ITEM_BYTES`.
        shape: elements a dimension.
        strides: elements between neighbours of each dimension.
    """

    storage: Storage
    index: int
    offset_bytes: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def end_bytes(self) -> int:
        """Offset just past the last byte that the view can touch."""
        if 0 in self.shape:
            return self.offset_bytes
        last = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        return self.offset_bytes + (last + 1) * ITEM_BYTES[self.dtype]


class Variant(_Record, frozen=True, kw_only=True):
    """One compiled version of a layer.

    Attributes:
        id: self-describing, e.g. `conv3x3_direct_oc2x16_ow14`.
        symbol: the kernel in `kernels.so`; called as `__tvm_ffi_<symbol>`.
        algorithm: `direct`, `depthwise`, `matmul`, `default`, ...
        parallel_extent: iterations of the outer parallel loop: the most cores that it can use.
        tile_bytes: working set of the cache tile: the locality of VELTAIR §4.1.
        arguments: in the kernel's order.
    """

    id: str
    symbol: str
    algorithm: str
    parallel_extent: int
    tile_bytes: int
    arguments: tuple[Argument, ...]


class Layer(_Record, frozen=True, kw_only=True):
    """One fused operator: one kernel call, by any one of its variants.

    Attributes:
        name: unique in the model.
        op: what it computes, e.g. `conv2d+bias+add+relu`.
        nodes: names of the ONNX nodes that it covers.
        input_shapes: logical shapes of the activations that it reads.
        output_shapes: logical shapes of what it writes.
        flops: floating-point operations, a multiply-add counted as two.
        variants: at least one.
    """

    name: str
    op: str
    nodes: tuple[str, ...]
    input_shapes: tuple[tuple[int, ...], ...]
    output_shapes: tuple[tuple[int, ...], ...]
    flops: int
    variants: tuple[Variant, ...]


class Profile(_Record, frozen=True, kw_only=True):
    """Measured latencies.

    Attributes:
        machine: what they were measured on: `cpu`, `isa`, `cores`, `l2_bytes`, `l3_bytes`, ...
        cores: core counts, ascending, beginning at 1.
        levels: interference levels, ascending, beginning at 0.
        layer_ns: int64[layer][variant][len(cores)][len(levels)], median time of one layer.
        model_ns: int64[len(cores)][len(levels)], median time of a whole run with each layer's first
            variant.
    """

    machine: dict[str, str | int]
    cores: tuple[int, ...]
    levels: tuple[float, ...]
    layer_ns: tuple[tuple[tuple[tuple[int, ...], ...], ...], ...]
    model_ns: tuple[tuple[int, ...], ...]


class FileDigest(_Record, frozen=True, kw_only=True):
    """Size and SHA-256 (hexadecimal) of one file of the artifact."""

    size_bytes: int
    sha256: str


class Manifest(_Record, frozen=True, kw_only=True):
    """The whole manifest; `arena_bytes` is what one instance allocates for activations."""

    schema: int
    name: str
    version: int
    producer: str
    isa: Isa
    qos_ns: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    arena_bytes: int
    layers: tuple[Layer, ...]
    profile: Profile
    files: dict[str, FileDigest]

    def to_json(self) -> bytes:
        """Encodes the manifest, indented by one space so that it diffs line by line."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1)


class _SchemaOnly(msgspec.Struct):
    schema: int


def read_manifest(folder: Path) -> Manifest:
    """Reads and validates `folder/manifest.json`.

    Raises:
        ArtifactError: the file is missing, not JSON, of another schema, or breaks the schema.
    """
    path = folder / MANIFEST_FILE
    try:
        data = path.read_bytes()
        schema = msgspec.json.decode(data, type=_SchemaOnly).schema
    except OSError as error:
        raise ArtifactError(
            f"{folder}: not an artifact: {MANIFEST_FILE} can't be read ({error.strerror}); "
            "an artifact is a folder that `veltair compile` wrote"
        ) from error
    except msgspec.DecodeError as error:
        raise ArtifactError(f"{path}: damaged: {error}; compile the model again") from error
    if schema != SCHEMA:
        raise ArtifactError(
            f"{path}: schema {schema}, this Veltair reads schema {SCHEMA}; compile the model again"
        )
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        raise ArtifactError(f"{path}: damaged: {error}; compile the model again") from error
    return manifest
