"""The compile: an ONNX file in, an artifact folder out."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

import msgspec
import onnx

from veltair.compiler import codegen
from veltair.compiler.artifact_writer import check_absent, digest, staged
from veltair.compiler.assemble import Assembly, assemble
from veltair.compiler.clean import Shape, load_clean
from veltair.compiler.expand import expand_regions
from veltair.compiler.graph import Graph, from_model
from veltair.compiler.kernels.spec import LANES
from veltair.compiler.lower import lower
from veltair.compiler.passes import prepare
from veltair.compiler.passes.plan import plan_memory
from veltair.compiler.profile import measure_profile, unmeasured
from veltair.compiler.reference import check
from veltair.runtime.errors import InputError, VeltairError
from veltair.runtime.manifest import (
    KERNELS_FILE,
    MANIFEST_FILE,
    SCHEMA,
    WEIGHTS_FILE,
    Isa,
    Manifest,
    TensorSpec,
)
from veltair.runtime.model import Model


@dataclass(frozen=True, kw_only=True)
class CompileOptions:
    """What to compile, to where, and for what.

    Attributes:
        model: an ONNX file.
        repository: folder that gets `<name>/<version>/`.
        name: the model's name.
        version: the model's version, at least 1.
        qos_ns: latency target; 0 if there is none.
        shapes: of inputs with symbolic dimensions.
        isa: instruction set of the kernels.
        jobs: kernels built at the same time.
        force: replace an artifact that exists.
    """

    model: Path
    repository: Path
    name: str
    version: int
    qos_ns: int
    shapes: Mapping[str, Shape]
    isa: Isa
    jobs: int
    force: bool

    @property
    def target(self) -> Path:
        """The artifact's folder."""
        return self.repository / self.name / str(self.version)


@dataclass(frozen=True, kw_only=True)
class CompileResult:
    """The finished manifest, and how far its outputs were from ONNX Runtime's."""

    manifest: Manifest
    difference: float


class Progress(Protocol):
    """Hears what the compile is doing."""

    def stage(self, name: str, total: int) -> None:
        """A stage begins, with `total` steps."""

    def step(self, what: str) -> None:
        """One step of the stage is done, or has begun, on `what`."""


def compile_model(options: CompileOptions, progress: Progress) -> CompileResult:
    """Compiles one model.

    Raises:
        InputError: the file, a shape or the output folder can't be used.
        UnsupportedOperatorError: a node can't be compiled.
        VeltairError: the disk is full, or the compiled model disagrees with ONNX Runtime.
    """
    check_absent(options.target, force=options.force)
    progress.stage("reading", 1)
    model = load_clean(options.model, options.shapes)
    try:
        with staged(options.repository, options.target) as folder:
            return _compile_into(folder, model, options, progress)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise VeltairError(
                f"{options.repository}: {os.strerror(error.errno)} while writing the artifact; "
                "free space or give another folder; nothing was left behind"
            ) from error
        raise


def _compile_into(
    folder: Path, model: onnx.ModelProto, options: CompileOptions, progress: Progress
) -> CompileResult:
    lanes = LANES[options.isa]
    progress.stage("planning", 1)
    graph = expand_regions(prepare(from_model(model), lanes), lanes)
    plan = plan_memory(graph, lanes)
    assembly = assemble(lower(graph, plan, options.isa))
    _write_files(folder, assembly, options, progress)
    manifest = Manifest(
        schema=SCHEMA,
        name=options.name,
        version=options.version,
        producer=f"veltair {version('veltair')}",
        isa=options.isa,
        qos_ns=options.qos_ns,
        inputs=tuple(_spec(graph, n) for n in graph.inputs),
        outputs=tuple(_spec(graph, n) for n in graph.outputs),
        arena_bytes=plan.arena_bytes,
        layers=assembly.layers,
        profile=unmeasured(assembly.layers),
        files={name: digest(folder / name) for name in (WEIGHTS_FILE, KERNELS_FILE)},
    )
    _write_manifest(folder, manifest)
    loaded = Model.load(folder, verify=False)
    progress.stage("checking against ONNX Runtime", 1)
    difference = check(loaded, model)
    manifest = _with_profile(manifest, loaded, progress)
    _write_manifest(folder, manifest)
    return CompileResult(manifest=manifest, difference=difference)


def _with_profile(manifest: Manifest, loaded: Model, progress: Progress) -> Manifest:
    profile = measure_profile(loaded, manifest, progress)
    return msgspec.structs.replace(manifest, profile=profile)


def _write_files(
    folder: Path, assembly: Assembly, options: CompileOptions, progress: Progress
) -> None:
    assembly.weights.write(folder / WEIGHTS_FILE)
    progress.stage("building kernels", len(assembly.kernels))
    codegen.build_library(
        [(named.symbol, named.kernel.func) for named in assembly.kernels],
        options.isa,
        folder / KERNELS_FILE,
        jobs=options.jobs,
        on_built=progress.step,
    )


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    (folder / MANIFEST_FILE).write_bytes(manifest.to_json())


def _spec(graph: Graph, name: str) -> TensorSpec:
    tensor = graph.tensors[name]
    return TensorSpec(name=name, dtype=tensor.dtype, shape=tensor.shape)


def check_name(name: str) -> str:
    """A model's name as a folder and a URL can carry it.

    Raises:
        InputError: it can't.
    """
    if not name or name.startswith(".") or not all(c.isalnum() or c in "-_." for c in name):
        raise InputError(
            f"--name '{name}': a model's name is letters, digits, '-', '_' and '.', and doesn't "
            "begin with a dot"
        )
    return name
