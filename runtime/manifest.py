"""The artifact's manifest: what the compiler writes and the engine and the server read.

An artifact is a folder `<model>/<version>/` with `manifest.json` (this schema), `weights.bin` (each
tensor 64-byte aligned, packed as its kernel reads it) and `kernels.so` (one symbol a kernel). The
manifest is data only: nothing here opens a library or knows a kernel.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Literal

import msgspec

from veltair.runtime.errors import ArtifactError, InputError
from veltair.runtime.files import read_whole
from veltair.runtime.framed import HEADER_BYTES

SCHEMA = 2
MANIFEST_FILE = "manifest.json"
WEIGHTS_FILE = "weights.bin"
KERNELS_FILE = "kernels.so"
ALIGNMENT_BYTES = 64
LONGEST_NS = 1_000_000_000_000  # of a profiled time: sums of them stay far within 64 bits
MOST_CORES = 4096  # that a profile can be of
MOST_SAMPLES = 1024  # of a batch

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
LANES: dict[str, int] = {"x86-64-v3": 8, "x86-64-v4": 16}  # 32-bit elements of a vector, by Isa
Storage = Literal["input", "output", "weights", "arena", "bordered"]


def compact_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the manifest's records: immutable, unknown fields refused."""


class TensorSpec(_Record, frozen=True, kw_only=True, omit_defaults=True):
    """A model's input or output as a client sees it: dense, row-major.

    Attributes:
        name: unique among the inputs, or the outputs.
        dtype: a name in `ITEM_BYTES`; of a framed tensor also `string`.
        shape: elements a dimension; of a framed tensor -1 where only the value tells.
        most_bytes: room for the elements of a framed tensor, one that carries its own shape (see
            `veltair.runtime.framed`); 0 for any other.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    most_bytes: int = 0

    @property
    def is_framed(self) -> bool:
        """Whether the tensor carries its own shape."""
        return self.most_bytes > 0

    @property
    def size_bytes(self) -> int:
        """Size in memory, in bytes: of the dense tensor, or of the framed one's room and header."""
        if self.is_framed:
            return HEADER_BYTES + self.most_bytes
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


class Argument(_Record, frozen=True, kw_only=True):
    """One kernel argument: a strided view of a storage.

    Attributes:
        storage: `input` and `output` are the caller's buffers, `weights` the mapped file. `arena`
            and `bordered` are activations: the first means nothing before a run and after it, so
            that models that run one after the other can share it; the second is the instance's own
            and zeroed once, when the instance is made.
        index: which input or output; 0 for the others.
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


class Fallback(_Record, frozen=True, kw_only=True, omit_defaults=True):
    """A part of the model's graph that ONNX Runtime runs, since it isn't compiled.

    Attributes:
        file: the part as an ONNX file of the artifact.
        inputs: names of what the file's graph reads, as the layer's arguments are ordered.
        outputs: names of what it writes; these arguments come last.
        reasons: nodes that can't be compiled, and why.
        framed: those of the names whose arguments are framed tensors, as bytes.
    """

    file: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    reasons: tuple[str, ...]
    framed: tuple[str, ...] = ()


class Border(_Record, frozen=True, kw_only=True):
    """A border of a tensor in the arena, which is cleared before a layer runs.

    Attributes:
        offset_bytes: of the tensor, its border included.
        dtype: a name in `ITEM_BYTES`.
        shape: (N, C, H, W) or packed (N, C, H, W, v), the border included; it lies compactly.
        margins: rows and columns of the border: top, left, bottom, right.
    """

    offset_bytes: int
    dtype: str
    shape: tuple[int, ...]
    margins: tuple[int, int, int, int]


class Layer(_Record, frozen=True, kw_only=True, omit_defaults=True):
    """One fused operator: one kernel call, by any one of its variants.

    Attributes:
        name: unique in the model.
        op: what it computes, e.g. `conv2d+bias+add+relu`.
        nodes: names of the ONNX nodes that it covers.
        input_shapes: logical shapes of the activations that it reads.
        output_shapes: logical shapes of what it writes, -1 where only a value tells the size.
        flops: floating-point operations, a multiply-add counted as two.
        variants: at least one.
        fallback: what the variants run in place of kernels, each with as many threads as its
            `parallel_extent` says; None where the layer is compiled.
        cleared: borders that its tensors need zero, and that others have written since.
    """

    name: str
    op: str
    nodes: tuple[str, ...]
    input_shapes: tuple[tuple[int, ...], ...]
    output_shapes: tuple[tuple[int, ...], ...]
    flops: int
    variants: tuple[Variant, ...]
    fallback: Fallback | None = None
    cleared: tuple[Border, ...] = ()

    def usual_variant(self, cores: int) -> int:
        """The variant to run where no policy chooses: the first, or of threads what cores carry."""
        if self.fallback is None:
            return 0
        threads = [variant.parallel_extent for variant in self.variants]
        fitting = [count for count in threads if count <= cores]
        return threads.index(max(fitting) if fitting else min(threads))


class Interference(_Record, frozen=True, kw_only=True, omit_defaults=True):
    """What made a profile's levels: co-runners on some cores beside the measured.

    They are bubbles (`veltair bubble`), or evictors, which throw the weights out of the caches.

    A level is the slow-down, (time now / time alone) - 1, of a reference kernel that reads memory
    from the shared cache: the same for every model that was measured on the same machine.

    Attributes:
        bubbles: how many ran, of whichever kind.
        footprint_bytes: of each bubble; 0 of evictors.
        bytes_per_s: of each bubble, read and written, for every level; 0 at the first. Empty of
            evictors.
        reference_bytes: that the reference kernel read.
        highest: slow-down of the reference kernel beside the fastest co-runners.
        noise: what two measurements of the reference kernel differed by; levels are further apart.
        measured_cores: the most cores that were measured beside bubbles. Times of more, which leave
            a bubble no core of its own, are estimated: the time alone, slowed as on
            `measured_cores`.
        evicted_share: of evictors, the part of the weights that they throw out, for every level; 0
            at the first. Empty of bubbles.
    """

    bubbles: int
    footprint_bytes: int
    bytes_per_s: tuple[int, ...]
    reference_bytes: int
    highest: float
    noise: float
    measured_cores: int
    evicted_share: tuple[float, ...] = ()


class Profile(_Record, frozen=True, kw_only=True, omit_defaults=True):
    """Measured latencies.

    Attributes:
        machine: what they were measured on: `cpu`, `isa`, `cores`, `l2_bytes`, `l3_bytes`, ...
        cores: core counts, ascending, beginning at 1.
        levels: interference levels, ascending, beginning at 0: slow-downs of the reference kernel.
        layer_ns: int64[layer][variant][len(cores)][len(levels)], median time of one layer, from 1
            to `LONGEST_NS`, as all times.
        model_ns: int64[len(cores)][len(levels)], median time of a whole run with each layer's first
            variant.
        interference: what made the levels; None where there is one, or it isn't known.
    """

    machine: dict[str, str | int]
    cores: tuple[int, ...]
    levels: tuple[float, ...]
    layer_ns: tuple[tuple[tuple[tuple[int, ...], ...], ...], ...]
    model_ns: tuple[tuple[int, ...], ...]
    interference: Interference | None = None

    @property
    def processor(self) -> str:
        """Name of the processor that it was measured on."""
        return str(self.machine.get("cpu", "an unknown processor"))


class FileDigest(_Record, frozen=True, kw_only=True):
    """What one file of the artifact must be.

    Attributes:
        size_bytes: its size.
        sha256: of its content, hexadecimal.
    """

    size_bytes: int
    sha256: str


class Batch(_Record, frozen=True, kw_only=True):
    """How a model runs several samples at once: over the same files, by layers of its own.

    Attributes:
        size: samples, from 2; the first dimension of each input and output is as many times that of
            one.
        inputs: see `Manifest`, as are the others.
    """

    size: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    arena_bytes: int
    bordered_bytes: int
    layers: tuple[Layer, ...]
    profile: Profile


class Manifest(_Record, frozen=True, kw_only=True, omit_defaults=True):
    """The whole manifest.

    Attributes:
        schema: of this file.
        name: the model's.
        version: the model's.
        producer: what wrote it.
        isa: instruction set that the kernels need.
        qos_ns: latency target; 0 for none.
        inputs: of one sample.
        outputs: of one sample.
        arena_bytes: of activations; models that run one after the other can share it.
        bordered_bytes: of activations whose borders stay zero: each instance's own.
        layers: in the order that they run in.
        profile: of the layers.
        files: by name, beside this one.
        batches: how it runs more samples than one, by ascending size.
    """

    schema: int
    name: str
    version: int
    producer: str
    isa: Isa
    qos_ns: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    arena_bytes: int
    bordered_bytes: int
    layers: tuple[Layer, ...]
    profile: Profile
    files: dict[str, FileDigest]
    batches: tuple[Batch, ...] = ()

    @property
    def activation_bytes(self) -> int:
        """What the activations of one instance need."""
        return self.arena_bytes + self.bordered_bytes

    @property
    def sizes(self) -> tuple[int, ...]:
        """Samples that a run can have, ascending from 1."""
        return (1, *(batch.size for batch in self.batches))

    def at(self, size: int) -> Manifest:
        """The manifest of a model that always runs so many samples.

        Raises:
            InputError: the artifact has no such batch.
        """
        if size == 1:
            return msgspec.structs.replace(self, batches=())
        for batch in self.batches:
            if batch.size == size:
                own = {name: getattr(batch, name) for name in _OF_A_BATCH}
                return msgspec.structs.replace(self, **own, batches=())
        raise InputError(
            f"{self.name}: no batch of {size}; it is compiled for batches of "
            f"{', '.join(map(str, self.sizes))}: choose one of these, or compile it with "
            f"--batch {size}"
        )

    def having(self, size: int, part: Manifest) -> Manifest:
        """A copy of which `at` returns `part` for a size, which it has or which is its largest."""
        own = {name: getattr(part, name) for name in _OF_A_BATCH}
        if size == 1:
            return msgspec.structs.replace(self, **own)
        others = [batch for batch in self.batches if batch.size != size]
        batches = sorted((*others, Batch(size=size, **own)), key=lambda batch: batch.size)
        return msgspec.structs.replace(self, batches=tuple(batches))

    def to_json(self) -> bytes:
        """Encodes the manifest, indented by one space so that it diffs line by line."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1)


# What differs between a run of one sample and one of a batch.
_OF_A_BATCH = tuple(name for name in Batch.__struct_fields__ if name != "size")


class _SchemaOnly(msgspec.Struct):
    schema: int


def read_manifest(folder: Path) -> Manifest:
    """Reads and validates `folder/manifest.json`.

    Raises:
        ArtifactError: the file is missing, not JSON, of another schema, or breaks the schema.
    """
    path = folder / MANIFEST_FILE
    try:
        data = read_whole(path)
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
    try:
        _check_ascending("batches", manifest.sizes, first=1, last=MOST_SAMPLES)
        for size in manifest.sizes:
            _check_profile(manifest.at(size))
    except ValueError as error:
        raise ArtifactError(f"{path}: damaged: {error}; compile the model again") from error
    return manifest


def _check_profile(manifest: Manifest) -> None:
    """Refuses what no policy can reckon with, whatever damaged it."""
    profile = manifest.profile
    if not 0 <= manifest.qos_ns <= LONGEST_NS:
        raise ValueError(f"qos_ns = {manifest.qos_ns}: from 0 (none) to {LONGEST_NS}")
    _check_ascending("profile.cores", profile.cores, first=1, last=MOST_CORES)
    _check_ascending("profile.levels", profile.levels, first=0, last=math.inf)
    _check_interference(profile)
    _check_table("profile.model_ns", profile, profile.model_ns)
    _check_count("profile.layer_ns", len(profile.layer_ns), len(manifest.layers), "layers")
    for index, layer in enumerate(profile.layer_ns):
        field = f"profile.layer_ns[{index}]"
        _check_count(field, len(layer), len(manifest.layers[index].variants), "variants")
        for number, variant in enumerate(layer):
            _check_table(f"{field}[{number}]", profile, variant)


def _check_ascending(
    field: str, values: tuple[int, ...] | tuple[float, ...], *, first: float, last: float
) -> None:
    rising = all(a < b for a, b in itertools.pairwise(values))  # a NaN isn't
    if not values or values[0] != first or not rising or not values[-1] <= last:
        raise ValueError(
            f"{field} = {list(values)}: they ascend from {first:g}, to {last:g} at most"
        )


def _check_interference(profile: Profile) -> None:
    made = profile.interference
    if made is None:
        return
    field = "profile.interference"
    if made.evicted_share and made.bytes_per_s:
        raise ValueError(f"{field}: has bytes_per_s of bubbles, and evicted_share of evictors")
    if made.evicted_share:
        name, rates, last = "evicted_share", made.evicted_share, 1.0
    else:
        name, rates, last = "bytes_per_s", made.bytes_per_s, math.inf
    _check_count(f"{field}.{name}", len(rates), len(profile.levels), "levels")
    _check_ascending(f"{field}.{name}", rates, first=0, last=last)
    if made.measured_cores not in profile.cores:
        raise ValueError(
            f"{field}.measured_cores = {made.measured_cores}: one of {list(profile.cores)}"
        )


def _check_table(field: str, profile: Profile, rows: tuple[tuple[int, ...], ...]) -> None:
    _check_count(field, len(rows), len(profile.cores), "core counts")
    for index, row in enumerate(rows):
        _check_count(f"{field}[{index}]", len(row), len(profile.levels), "interference levels")
        for time_ns in row:
            if not 0 < time_ns <= LONGEST_NS:
                raise ValueError(f"{field}[{index}] = {time_ns} ns: from 1 to {LONGEST_NS} ns")


def _check_count(field: str, found: int, expected: int, what: str) -> None:
    if found != expected:
        raise ValueError(f"{field} has {found} entries for {expected} {what}")
