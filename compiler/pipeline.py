"""The compile: an ONNX file in, an artifact folder out."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

import onnx

from veltair.compiler.arrangement import arrange_batches
from veltair.compiler.artifact_writer import check_absent, staged
from veltair.compiler.batching import Batcher, batched
from veltair.compiler.binding import Array, Shape
from veltair.compiler.blame import Blame, blame
from veltair.compiler.building import Builder
from veltair.compiler.fold import draws
from veltair.compiler.front import Front, Source, read_graph
from veltair.compiler.graph import Graph
from veltair.compiler.memory import explained_shortage
from veltair.compiler.profile import doubt, measure_profile
from veltair.compiler.progress import Progress
from veltair.compiler.reference import Reference, answered, check, reference_run
from veltair.compiler.search.log import log_place
from veltair.compiler.search.samples import QosShare, SearchReport
from veltair.compiler.search.variants import SearchOptions
from veltair.compiler.spare import remove_spare
from veltair.proxy.co_runners import BUBBLES, CoRunner
from veltair.runtime.disturbance import Watch
from veltair.runtime.errors import InputError, MismatchError, VeltairError
from veltair.runtime.machine import usable_cores
from veltair.runtime.manifest import LANES, MANIFEST_FILE, SCHEMA, Isa, Manifest, read_manifest
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
        values: of inputs that shall be constants: see `binding.bind`.
        isa: instruction set of the kernels.
        jobs: kernels built at the same time.
        force: replace an artifact that exists.
        levels: of interference to profile, the one alone included.
        co_runner: what they are made with.
        trials: samples that each layer shall have; what the tuning logs lack is searched.
        variants: most that are kept of a layer.
        cores: of the machine that it is for; None: this one.
        qos_share: how the target is divided among the layers.
        log: the user's tuning log; the usual place if not given.
        shipped_logs: whether the logs that come with the package are read too.
        strict: whether what can't be compiled is an error, and doesn't fall back.
        most_bytes: room for inputs and outputs whose size only a value tells, by name.
        refused: why nodes shall fall back that could be compiled, by their names.
        batches: how many samples a run can have beside one, from 2.
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
    co_runner: CoRunner = BUBBLES
    trials: int = 0
    variants: int = 5
    cores: int | None = None
    qos_share: QosShare = "flops"
    log: Path | None = None
    shipped_logs: bool = True
    strict: bool = False
    most_bytes: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, Array] = field(default_factory=dict)
    profiled: bool = True
    refused: Mapping[str, str] = field(default_factory=dict)
    batches: tuple[int, ...] = ()

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
            cores=self.cores or usable_cores(),
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
        deviating: what ONNX Runtime computes otherwise than ONNX defines it, and the model as ONNX
            does: operator and name of each such node, and by how much.
        doubt: why its profile shouldn't be trusted; empty where it can be.
        search: what its variants were chosen from.
    """

    manifest: Manifest
    difference: float | None
    doubt: str
    search: SearchReport
    deviating: tuple[str, ...] = ()


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
    """Compiles until the outputs agree with ONNX Runtime's.

    Nodes that are wrong fall back; at those that ONNX Runtime computes otherwise than ONNX defines
    them, the outputs are compared with what ONNX's own implementation makes of them.

    Args:
        folder: of the artifact.
        fronts: the only one is taken out: nothing else must hold the graph, with its constants.
        options: of the compile.
        progress: hears of each stage.
    """
    refused, source = dict(options.refused), options.source
    deviating: dict[str, str] = {}
    while True:
        front = fronts.pop()
        graphs, references = _several(source, front, options.batches, deviating)
        model = front.model
        del front
        try:
            result = _compile_into(folder, model, graphs, references, deviating, options, progress)
        except MismatchError:
            found = _blame(model, read_manifest(folder), options)
            if not (found.wrong.keys() - refused.keys()) | (found.deviating.keys() - deviating):
                raise
            refused |= found.wrong
            deviating |= found.deviating
        else:
            return replace(result, deviating=_named(model, deviating))
        source = replace(options.source, refused=refused)
        fronts.append(read_graph(source, strict=options.strict))


def _several(
    source: Source, front: Front, sizes: Collection[int], defined: Collection[str]
) -> tuple[dict[int, Graph], dict[int, Reference | None]]:
    """Graphs of one sample and of batches, and what the outputs of batches must be, by size."""
    batcher, graphs, references = Batcher(source, front), {1: front.graph}, {}
    for size in sizes:
        several = batcher.batched(size)
        graphs[size] = batcher.graph(several)
        references[size] = batcher.reference(several, size, defined)
    return graphs, references


def _blame(model: onnx.ModelProto, manifest: Manifest, options: CompileOptions) -> Blame:
    """What to blame for outputs that differ: those of one sample, or else of a batch."""
    found = blame(model, manifest.at(1), options.isa)
    for size in manifest.sizes[1:]:
        if not found.wrong and not found.deviating:
            several = batched(options.model, model, size)
            found = blame(several, manifest.at(size), options.isa)
    return found


def _named(model: onnx.ModelProto, reasons: Mapping[str, str]) -> tuple[str, ...]:
    """Operator, name and reason of each node that there is a reason for."""
    nodes = [node for node in model.graph.node if node.name in reasons]
    return tuple(f"{node.op_type} '{node.name}': {reasons[node.name]}" for node in nodes)


def _compile_into(
    folder: Path,
    model: onnx.ModelProto,
    graphs: dict[int, Graph],
    references: dict[int, Reference | None],
    defined: Collection[str],
    options: CompileOptions,
    progress: Progress,
) -> CompileResult:
    builder = Builder(folder, options.model, options.isa, options.search)
    built = builder.build(graphs, progress)
    graphs.clear()
    one, *others = built.batches
    manifest = Manifest(
        schema=SCHEMA,
        name=options.name,
        version=options.version,
        producer=f"veltair {version('veltair')}",
        isa=options.isa,
        qos_ns=options.qos_ns,
        inputs=one.inputs,
        outputs=one.outputs,
        arena_bytes=one.arena_bytes,
        bordered_bytes=one.bordered_bytes,
        layers=one.layers,
        profile=one.profile,
        files=built.files,
        batches=tuple(others),
    )
    _write_manifest(folder, manifest)
    if others and options.profiled:
        manifest = arrange_batches(folder, manifest, builder, progress)
    builder.release()
    # From before the check on, which is as busy: a small model's profile alone is too short a look.
    watch, begun_ns = Watch(), time.monotonic_ns()
    progress.stage("checking against ONNX Runtime", len(manifest.sizes))
    if draws(model):
        references[1] = None
    else:
        references[1] = answered(reference_run(model, defined=defined), manifest.inputs)
    result = CompileResult(
        manifest=manifest,
        difference=_difference(folder, references, progress),
        doubt="",
        search=built.search,
    )
    if not options.profiled:
        return result
    loaded = Model.load(folder, verify=False)
    manifest = measure_profile(
        loaded,
        manifest,
        progress,
        levels=options.levels,
        co_runner=options.co_runner,
        fastest_first=True,
    )
    processor_s = (time.monotonic_ns() - begun_ns) / 1e9 * (os.cpu_count() or 1)
    doubted, searched = doubt(watch.seen(), processor_s), built.search
    # What a busy machine measured is no reason to remove anything, nor what too small a one did.
    if not doubted and options.search.cores <= usable_cores():
        manifest, searched = remove_spare(folder, manifest, searched)
    _write_manifest(folder, manifest)
    return replace(result, manifest=manifest, doubt=doubted, search=searched)


def _difference(
    folder: Path, references: Mapping[int, Reference | None], progress: Progress
) -> float | None:
    """The largest to ONNX Runtime, of one sample and of all batches."""
    found = []
    for size, reference in references.items():
        if reference is not None:
            found.append(check(Model.load(folder, batch=size, verify=False), reference))
        progress.step(f"{size} sample{'s' if size > 1 else ''}")
    return max(found, default=None)


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    (folder / MANIFEST_FILE).write_bytes(manifest.to_json())


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
