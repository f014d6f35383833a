"""The compile: an ONNX file in, an artifact folder out."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

import onnx

from veltair.compiler import codegen
from veltair.compiler.artifact_writer import check_absent, digest, staged
from veltair.compiler.assemble import assemble
from veltair.compiler.binding import Array, Shape
from veltair.compiler.blame import wrong_nodes
from veltair.compiler.front import Front, Source, read_graph
from veltair.compiler.graph import Graph
from veltair.compiler.kernels.choices import Choice
from veltair.compiler.kernels.spec import LANES, Kernel
from veltair.compiler.lower import Request, lower
from veltair.compiler.memory import check_memory, explained_shortage
from veltair.compiler.passes.plan import plan_memory
from veltair.compiler.profile import doubt, measure_profile, unmeasured
from veltair.compiler.progress import Progress
from veltair.compiler.reference import check
from veltair.compiler.search.log import log_place
from veltair.compiler.search.samples import SEARCH_FILE, QosShare, SearchReport
from veltair.compiler.search.spaces import build
from veltair.compiler.search.variants import SearchOptions, find_variants, report
from veltair.compiler.spare import remove_spare
from veltair.runtime.disturbance import Watch
from veltair.runtime.errors import InputError, MismatchError, VeltairError
from veltair.runtime.manifest import (
    KERNELS_FILE,
    MANIFEST_FILE,
    SCHEMA,
    WEIGHTS_FILE,
    Isa,
    Manifest,
    TensorSpec,
    read_manifest,
)
from veltair.runtime.model import Model
from veltair.runtime.scratch import scratch


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
        values: of inputs that shall be constants: see `binding.bind`.
        isa: instruction set of the kernels.
        jobs: kernels built at the same time.
        force: replace an artifact that exists.
        levels: of interference to profile, the one alone included.
        trials: samples that each layer shall have; what the tuning logs lack is searched.
        variants: most that are kept of a layer.
        qos_share: how the target is divided among the layers.
        log: the user's tuning log; the usual place if not given.
        shipped_logs: whether the logs that come with the package are read too.
        strict: whether what can't be compiled is an error, and doesn't fall back.
        most_bytes: room for inputs and outputs whose size only a value tells, by name.
        refused: why nodes shall fall back that could be compiled, by their names.
        profiled: whether to measure the profile, which serving needs and running alone doesn't.
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
    levels: int = 1
    trials: int = 0
    variants: int = 5
    qos_share: QosShare = "flops"
    log: Path | None = None
    shipped_logs: bool = True
    strict: bool = False
    most_bytes: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, Array] = field(default_factory=dict)
    profiled: bool = True
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def search(self) -> SearchOptions:
        """What of these the search goes by."""
        return SearchOptions(
            isa=self.isa,
            trials=self.trials,
            most_variants=self.variants,
            qos_ns=self.qos_ns,
            qos_share=self.qos_share,
            logs=log_place(self.isa, self.name, self.log, shipped=self.shipped_logs),
            jobs=self.jobs,
        )

    @property
    def source(self) -> Source:
        """What the graph is made from."""
        return Source(
            path=self.model,
            shapes=self.shapes,
            lanes=LANES[self.isa],
            values=self.values,
            most_bytes=self.most_bytes,
            refused=self.refused,
        )

    @property
    def target(self) -> Path:
        """The artifact's folder."""
        return self.repository / self.name / str(self.version)


@dataclass(frozen=True, kw_only=True)
class CompileResult:
    """What a compile has made.

    Attributes:
        manifest: finished.
        difference: of its outputs to ONNX Runtime's, of the output's range; None where ONNX Runtime
            takes no inputs that could be drawn.
        doubt: why its profile shouldn't be trusted; empty where it can be.
        search: what its variants were chosen from.
    """

    manifest: Manifest
    difference: float | None
    doubt: str
    search: SearchReport


def compile_model(options: CompileOptions, progress: Progress) -> CompileResult:
    """Compiles one model.

    Raises:
        InputError: the file, a shape or the output folder can't be used.
        UnsupportedOperatorError: a node can't be run, or not compiled where that is asked for.
        VeltairError: the disk is full, there is too little memory, or the compiled model disagrees
            with ONNX Runtime.
    """
    check_absent(options.target, force=options.force)
    progress.stage("reading", 1)
    with explained_shortage(options.model):
        fronts = [read_graph(options.source, strict=options.strict)]
    try:
        with (
            explained_shortage(options.model),
            staged(options.repository, options.target) as folder,
        ):
            return _compile_checked(folder, fronts, options, progress)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            raise VeltairError(
                f"{options.repository}: {os.strerror(error.errno)} while writing the artifact; "
                "free space or give another folder; nothing was left behind"
            ) from error
        raise


def _compile_checked(
    folder: Path, fronts: list[Front], options: CompileOptions, progress: Progress
) -> CompileResult:
    """Compiles until the outputs agree with ONNX Runtime's: nodes that are wrong fall back.

    Args:
        folder: of the artifact.
        fronts: the only one is taken out: nothing else must hold the graph, with its constants.
        options: of the compile.
        progress: hears of each stage.
    """
    refused = dict(options.refused)
    while True:
        front = fronts.pop()
        model, graphs = front.model, [front.graph]
        del front
        try:
            return _compile_into(folder, model, graphs, options, progress)
        except MismatchError:
            wrong = wrong_nodes(model, read_manifest(folder), options.isa)
            if not wrong.keys() - refused.keys():
                raise
            refused |= wrong
        source = replace(options.source, refused=refused)
        fronts.append(read_graph(source, strict=options.strict))


def _compile_into(
    folder: Path,
    model: onnx.ModelProto,
    graphs: list[Graph],
    options: CompileOptions,
    progress: Progress,
) -> CompileResult:
    lanes = LANES[options.isa]
    progress.stage("planning", 1)
    graph = graphs.pop()
    plan = plan_memory(graph, lanes)
    check_memory(options.model, graph, plan)
    requests = lower(graph, plan, options.isa)
    with scratch("objects") as objects:
        found = find_variants(requests, options.search, objects, progress)
        choices = [layer.choices for layer in found.layers]
        with codegen.LibraryBuilder(options.isa, jobs=options.jobs, ready=found.objects) as library:
            build = partial(_build, options.isa)
            assembly = assemble(requests, choices, build, _threads(), on_kernel=library.add)
            assembly.weights.write(folder / WEIGHTS_FILE)
            fallbacks = assembly.fallbacks.write(folder)
            progress.stage("building kernels", len(assembly.kernels))
            library.link(folder / KERNELS_FILE, progress.step)
    searched = report([layer.name for layer in assembly.layers], requests, found, options.search)
    (folder / SEARCH_FILE).write_bytes(searched.to_json())
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
        files={name: digest(folder / name) for name in (WEIGHTS_FILE, KERNELS_FILE, *fallbacks)},
    )
    del graph, requests  # with their constants: the check needs the memory
    _write_manifest(folder, manifest)
    loaded = Model.load(folder, verify=False)
    # From before the check on, which is as busy: a small model's profile alone is too short a look.
    watch, begun_ns = Watch(), time.monotonic_ns()
    progress.stage("checking against ONNX Runtime", 1)
    result = CompileResult(
        manifest=manifest, difference=check(loaded, model), doubt="", search=searched
    )
    if not options.profiled:
        return result
    manifest = measure_profile(
        loaded, manifest, progress, levels=options.levels, fastest_first=True
    )
    processor_s = (time.monotonic_ns() - begun_ns) / 1e9 * (os.cpu_count() or 1)
    doubted = doubt(watch.seen(), processor_s)
    if not doubted:  # what a busy machine measured is no reason to remove anything
        manifest, searched = remove_spare(folder, manifest, searched)
    _write_manifest(folder, manifest)
    return replace(result, manifest=manifest, doubt=doubted, search=searched)


def _threads() -> tuple[int, ...]:
    """Of the versions of what falls back: one, two, four, ... all cores."""
    cores = len(os.sched_getaffinity(0))
    return tuple(sorted({cores, *(1 << i for i in range(cores.bit_length()) if 1 << i <= cores)}))


def _build(isa: str, request: Request, choice: Choice) -> Kernel:
    return build(request.key, isa, choice)


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    (folder / MANIFEST_FILE).write_bytes(manifest.to_json())


def _spec(graph: Graph, name: str) -> TensorSpec:
    if name in graph.framed:
        return graph.framed[name]
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
