"""A loaded model: runs an artifact's layers in this process, NumPy in and out."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from veltair.runtime import _native
from veltair.runtime.artifact import open_artifact
from veltair.runtime.errors import ArtifactError, InputError
from veltair.runtime.framed import STRING, fits, numpy_dtype, read_framed, write_framed
from veltair.runtime.huge_pages import settle
from veltair.runtime.manifest import (
    ALIGNMENT_BYTES,
    ITEM_BYTES,
    KERNELS_FILE,
    WEIGHTS_FILE,
    Argument,
    Border,
    Layer,
    Manifest,
    TensorSpec,
    Variant,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    AnyArray = NDArray[Any]

# The order of `enum class Storage` in runtime/native/engine/model.h.
_STORAGES = {"input": 0, "output": 1, "weights": 2, "arena": 3, "bordered": 4}
# DLPack's type codes.
_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6}


class Model:
    """An artifact, loaded and ready to run.

    One model runs one query at a time: `run` and its kin wait for each other, from any thread.
    Several models, also of one artifact, run side by side; they share the weights' memory.

    Attributes:
        manifest: the artifact's.
        folder: the artifact's.
        cpus: the processors that it may run on, ascending.
    """

    def __init__(self, folder: Path, manifest: Manifest, cpus: Sequence[int]) -> None:
        """Loads an artifact that `open_artifact` accepted; `load` does both."""
        self.folder = folder
        self.manifest = manifest
        self.cpus = tuple(cpus)
        self._core_of = {cpu: core for core, cpu in enumerate(self.cpus)}
        self._native = load_native(folder, manifest)
        self._gang = _native.Gang(self.cpus, restore_affinity=True)
        self._instance = _native.Instance(self._native, self._gang)
        self._staging = {spec.name: empty_aligned(spec) for spec in manifest.inputs}
        self._lock = threading.Lock()
        self._falls_back = any(layer.fallback is not None for layer in manifest.layers)

    @classmethod
    def load(
        cls,
        folder: Path | str,
        *,
        batch: int = 1,
        verify: bool = True,
        cpus: Sequence[int] | None = None,
    ) -> Model:
        """Loads an artifact.

        Args:
            folder: `<model>/<version>`, or `<model>` for the highest version.
            batch: samples that a run shall have, one of the manifest's `sizes`.
            verify: whether to compare the files' hashes with the manifest.
            cpus: processors that it may run on; all that this process may use if not given.

        Raises:
            ArtifactError: the artifact can't be used here.
            InputError: a processor that this process may not use, or a batch that isn't compiled.
        """
        artifact = open_artifact(Path(folder), verify=verify)
        usable = sorted(os.sched_getaffinity(0)) if cpus is None else sorted(cpus)
        return cls(artifact.folder, artifact.manifest.at(batch), usable)

    @property
    def native(self) -> _native.Model:
        """The native model, for code that makes instances and gangs of its own."""
        return self._native

    def run(
        self,
        inputs: Mapping[str, ArrayLike],
        cores: Sequence[int] | None = None,
        *,
        variants: Sequence[int] = (),
    ) -> dict[str, AnyArray]:
        """Runs the model once.

        Args:
            inputs: every input by name, of exactly the manifest's dtype and shape; bfloat16 as
                uint16 bit patterns, strings as objects.
            cores: numbers of the processors to run on; all of `cpus` if not given.
            variants: one for each layer; each layer's usual one if empty.

        Returns:
            Every output by name; new arrays, strings as objects of `str`.

        Raises:
            InputError: a name, dtype, shape or core that the model doesn't have.
            KernelError: a kernel failed.
        """
        outputs = self.empty_outputs()
        self.run_into(inputs, outputs, cores, variants=variants)
        return {
            spec.name: read_framed(outputs[spec.name], spec.dtype)
            if spec.is_framed
            else outputs[spec.name]
            for spec in self.manifest.outputs
        }

    def run_into(
        self,
        inputs: Mapping[str, ArrayLike],
        outputs: Mapping[str, AnyArray],
        cores: Sequence[int] | None = None,
        *,
        layers: tuple[int, int] | None = None,
        variants: Sequence[int] = (),
    ) -> None:
        """Runs the model, or a block of its layers, into arrays of the caller's.

        No array is allocated or copied where the inputs are contiguous and aligned to
        `ALIGNMENT_BYTES`, as those of `empty_aligned` are; other inputs are copied first.

        Args:
            inputs: as for `run`.
            outputs: every output by name; writeable, contiguous, aligned: see `empty_outputs`. Of a
                framed one, its memory: see `read_framed`.
            cores: as for `run`.
            layers: begin and end of the block; the whole model if not given. A block continues
                from the activations that the runs before left in the model's arena.
            variants: one for each layer of the block; each layer's usual one if empty.

        Raises:
            InputError: as for `run`, or an output that can't be written in place.
            KernelError: a kernel failed.
        """
        checked_outputs = self._check_outputs(outputs)
        chosen = self._check_cores(cores)
        block = (0, len(self.manifest.layers)) if layers is None else layers
        wanted = variants or self._usual_variants(len(chosen))[block[0] : block[1]]
        with self._lock:
            self._instance.run(self._check_inputs(inputs), checked_outputs, chosen, block, wanted)

    def time_layers(
        self,
        inputs: Mapping[str, ArrayLike],
        cores: Sequence[int] | None,
        rounds: int,
        variants: Sequence[int] = (),
    ) -> NDArray[np.int64]:
        """Runs the model `rounds` times and times each layer.

        Args:
            inputs: as for `run`.
            cores: as for `run`.
            rounds: number of runs; none is dropped as a warm-up.
            variants: one for each layer; each layer's usual one if empty.

        Returns:
            int64[rounds, layers], ns.
        """
        layer_ns = np.empty((rounds, len(self.manifest.layers)), np.int64)
        outputs = list(self.empty_outputs().values())
        chosen = self._check_cores(cores)
        with self._lock:
            wanted = variants or self._usual_variants(len(chosen))
            self._instance.time_layers(
                self._check_inputs(inputs), outputs, chosen, wanted, layer_ns
            )
        return layer_ns

    def time_run(
        self,
        cores: Sequence[int] | None,
        rounds: int,
        inputs: Mapping[str, ArrayLike] | None = None,
        variants: Sequence[int] = (),
    ) -> NDArray[np.int64]:
        """Runs the model `rounds` times and times each run, without the conversions of `run`.

        Args:
            cores: as for `run`.
            rounds: number of runs; none is dropped as a warm-up.
            inputs: as for `run`; those of `sample_inputs` if not given.
            variants: one for each layer; each layer's usual one if empty.

        Returns:
            int64[rounds], ns.
        """
        run_ns = np.empty(rounds, np.int64)
        given = sample_inputs(self.manifest.inputs) if inputs is None else inputs
        outputs = list(self.empty_outputs().values())
        chosen = self._check_cores(cores)
        with self._lock:
            wanted = variants or self._usual_variants(len(chosen))
            self._instance.time_runs(self._check_inputs(given), outputs, chosen, wanted, run_ns)
        return run_ns

    def empty_outputs(self) -> dict[str, AnyArray]:
        """Returns uninitialised arrays that `run_into` can write the outputs into."""
        return {spec.name: empty_aligned(spec) for spec in self.manifest.outputs}

    def _usual_variants(self, cores: int) -> list[int]:
        """Of each layer; none where all are the first."""
        if not self._falls_back:
            return []
        return [layer.usual_variant(cores) for layer in self.manifest.layers]

    def _check_cores(self, cores: Sequence[int] | None) -> list[int]:
        if cores is None:
            return list(range(len(self.cpus)))
        if not cores:
            raise InputError("cores: none given; give at least one processor's number")
        unknown = [cpu for cpu in cores if cpu not in self._core_of]
        if unknown:
            raise InputError(
                f"cores: {unknown[0]} is not among the processors that this model may use; "
                f"choose from {', '.join(map(str, self.cpus))}"
            )
        return [self._core_of[cpu] for cpu in cores]

    def _check_inputs(self, inputs: Mapping[str, ArrayLike]) -> list[AnyArray]:
        """The inputs as the kernels can read them; call it with the lock held, for `_staging`."""
        specs = self.manifest.inputs
        _check_names("input", inputs, specs)
        return [self._readable(spec, inputs[spec.name]) for spec in specs]

    def _readable(self, spec: TensorSpec, value: ArrayLike) -> AnyArray:
        array = np.asarray(value)
        if spec.is_framed:
            return self._framed(spec, array)
        _check_tensor("input", spec, array)
        if array.flags.c_contiguous and _is_aligned(array):
            return array
        staging = self._staging[spec.name]
        np.copyto(staging, array)
        return staging

    def _framed(self, spec: TensorSpec, array: AnyArray) -> AnyArray:
        if array.dtype.kind in "US":
            array = array.astype(np.object_)
        if array.dtype != np.object_ or not fits(array.shape, spec.shape):
            raise InputError(
                f"input {spec.name!r}: is {array.dtype}{list(array.shape)}, must be strings of "
                f"shape {list(spec.shape)}, -1 for any size"
            )
        staging = self._staging[spec.name]
        write_framed(staging, array, spec.name)
        return staging

    def _check_outputs(self, outputs: Mapping[str, AnyArray]) -> list[AnyArray]:
        specs = self.manifest.outputs
        _check_names("output", outputs, specs)
        for spec in specs:
            array = outputs[spec.name]
            _check_tensor("output", spec, array)
            if not (array.flags.c_contiguous and array.flags.writeable and _is_aligned(array)):
                raise InputError(
                    f"output {spec.name!r}: must be writeable, contiguous and aligned to "
                    f"{ALIGNMENT_BYTES} bytes; take it from Model.empty_outputs()"
                )
        return [outputs[spec.name] for spec in specs]


def dlpack_type(name: str) -> tuple[int, int, int]:
    """Returns DLPack's code, bits and lanes of a manifest's dtype."""
    return _CODES[name.rstrip("0123456789")], 8 * ITEM_BYTES[name], 1


def empty_aligned(spec: TensorSpec) -> AnyArray:
    """Returns an uninitialised array for `spec`, aligned to `ALIGNMENT_BYTES`.

    Of a framed tensor it is the memory, uint8.
    """
    memory = np.empty(spec.size_bytes + ALIGNMENT_BYTES, np.uint8)
    begin = -_address(memory) % ALIGNMENT_BYTES
    if spec.is_framed:
        return memory[begin : begin + spec.size_bytes]
    # Not a slice: NumPy doesn't align an empty one.
    return np.ndarray(spec.shape, numpy_dtype(spec.dtype), memory, begin)


def sample_inputs(specs: Sequence[TensorSpec], seed: int = 0) -> dict[str, AnyArray]:
    """Returns inputs to measure with: floats uniform in [0, 1), anything else zeros, or words.

    Zeros are valid wherever integers are indices, as token ids are.
    """
    generator = np.random.default_rng(seed)
    inputs: dict[str, AnyArray] = {}
    for spec in specs:
        if spec.is_framed:
            inputs[spec.name] = np.full([max(size, 1) for size in spec.shape], "word", np.object_)
            continue
        array = empty_aligned(spec)
        floating = spec.dtype.startswith("float")
        array[...] = generator.random(spec.shape) if floating else 0
        inputs[spec.name] = array
    return inputs


def load_native(folder: Path, manifest: Manifest) -> _native.Model:
    """Loads an artifact's kernels and weights, for code that makes instances and gangs of its own.

    Raises:
        ArtifactError: the files contradict the manifest or can't be loaded here.
    """
    with contextlib.suppress(OSError):  # the engine says what it can't open
        settle(folder / WEIGHTS_FILE)
    return _native.Model(
        ffi_path=str(ffi_library()),
        kernels_path=str((folder / KERNELS_FILE).resolve()),
        weights_path=str(folder / WEIGHTS_FILE),
        weights_bytes=manifest.files[WEIGHTS_FILE].size_bytes,
        arena_bytes=manifest.arena_bytes,
        bordered_bytes=manifest.bordered_bytes,
        input_bytes=[_size_bytes(folder, spec) for spec in manifest.inputs],
        output_bytes=[_size_bytes(folder, spec) for spec in manifest.outputs],
        layers=[_to_layer(folder, layer) for layer in manifest.layers],
        onnxruntime_path=_onnxruntime_library(folder, manifest),
    )


def ffi_library() -> Path:
    """Where libtvm_ffi.so lies; the package is not imported, the kernels need its library only."""
    spec = importlib.util.find_spec("tvm_ffi")
    if spec is None or not spec.submodule_search_locations:
        raise ArtifactError(
            "the kernels need libtvm_ffi.so, and the package `tvm_ffi` is not installed; "
            "pip install apache-tvm-ffi in the version that veltair pins"
        )
    return Path(spec.submodule_search_locations[0]) / "lib" / "libtvm_ffi.so"


def _onnxruntime_library(folder: Path, manifest: Manifest) -> str:
    """Where ONNX Runtime's library lies, for what falls back; empty where nothing does."""
    if all(layer.fallback is None for layer in manifest.layers):
        return ""
    spec = importlib.util.find_spec("onnxruntime")
    places = spec.submodule_search_locations if spec is not None else None
    found = [path for place in places or () for path in Path(place).glob("capi/libonnxruntime.so*")]
    if not found:
        raise ArtifactError(
            f"{folder}: parts of the model run on ONNX Runtime, and the package `onnxruntime` is "
            "not installed; pip install 'veltair[fallback]'"
        )
    return str(min(found))


def _size_bytes(folder: Path, spec: TensorSpec) -> int:
    if not (spec.is_framed and spec.dtype == STRING):
        _check_dtype(folder, spec.dtype)
    return spec.size_bytes


def _check_dtype(folder: Path, dtype: str) -> None:
    if dtype not in ITEM_BYTES:
        raise ArtifactError(
            f"{folder}: damaged: dtype {dtype!r} is none of {', '.join(ITEM_BYTES)}; "
            "compile the model again"
        )


def _to_layer(folder: Path, layer: Layer) -> _native.Layer:
    variants = [_to_variant(folder, variant) for variant in layer.variants]
    cleared = [_to_border(folder, border) for border in layer.cleared]
    fallback = layer.fallback
    if fallback is None:
        return layer.name, variants, None, cleared
    names = (fallback.inputs, fallback.outputs, fallback.framed)
    return layer.name, variants, (str(folder / fallback.file), *names), cleared


def _to_border(folder: Path, border: Border) -> _native.Border:
    _check_dtype(folder, border.dtype)
    if len(border.shape) not in (4, 5):
        raise ArtifactError(
            f"{folder}: damaged: a border of a tensor of {len(border.shape)} dimensions, it has 4 "
            "or 5; compile the model again"
        )
    n, c, height, width, *lanes = border.shape
    pixel_bytes = math.prod(lanes) * ITEM_BYTES[border.dtype]
    return (border.offset_bytes, n * c, height, width, pixel_bytes, *border.margins)


def _to_variant(folder: Path, variant: Variant) -> _native.Variant:
    arguments = [_to_argument(folder, argument) for argument in variant.arguments]
    return variant.symbol, variant.parallel_extent, arguments


def _to_argument(folder: Path, argument: Argument) -> _native.Argument:
    _check_dtype(folder, argument.dtype)
    storage = _STORAGES[argument.storage]
    place = (storage, argument.index, argument.offset_bytes)
    return (*place, dlpack_type(argument.dtype), argument.shape, argument.strides)


def _address(array: AnyArray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _is_aligned(array: AnyArray) -> bool:
    return _address(array) % ALIGNMENT_BYTES == 0


def _describe(spec: TensorSpec) -> str:
    return f"{spec.name!r} ({spec.dtype}[{','.join(map(str, spec.shape))}])"


def _check_names(kind: str, given: Mapping[str, object], specs: Sequence[TensorSpec]) -> None:
    names = {spec.name for spec in specs}
    expected = f"the model's {kind}s are {', '.join(map(_describe, specs))}"
    for name in given:
        if name not in names:
            raise InputError(f"{kind} {name!r}: there is none of that name; {expected}")
    for spec in specs:
        if spec.name not in given:
            raise InputError(f"{kind} {spec.name!r}: missing; {expected}")


def _check_tensor(kind: str, spec: TensorSpec, array: AnyArray) -> None:
    name = "uint8" if spec.is_framed else spec.dtype
    shape = (spec.size_bytes,) if spec.is_framed else spec.shape
    if array.dtype != numpy_dtype(name):
        raise InputError(
            f"{kind} {spec.name!r}: is {array.dtype}, must be {name}; "
            f"convert it, e.g. with .astype({numpy_dtype(name).name!r})"
        )
    if array.shape != shape:
        raise InputError(
            f"{kind} {spec.name!r}: has the shape {list(array.shape)}, must have "
            f"{list(shape)}; {math.prod(shape)} elements in that order"
        )
