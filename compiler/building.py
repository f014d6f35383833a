"""From planned graphs to an artifact's kernels, weights and layers: all but its manifest."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from veltair.compiler import codegen
from veltair.compiler.artifact_writer import digest
from veltair.compiler.assemble import Assembler
from veltair.compiler.graph import Graph
from veltair.compiler.kernels.choices import Choice
from veltair.compiler.kernels.spec import LANES, Kernel
from veltair.compiler.lower import Request, lower
from veltair.compiler.memory import check_memory
from veltair.compiler.passes.plan import plan_memory
from veltair.compiler.profile import unmeasured
from veltair.compiler.progress import Progress
from veltair.compiler.search.samples import SEARCH_FILE, SearchReport
from veltair.compiler.search.spaces import build
from veltair.compiler.search.twins import twins
from veltair.compiler.search.variants import Found, SearchOptions, find_variants, report
from veltair.runtime.manifest import (
    KERNELS_FILE,
    WEIGHTS_FILE,
    Batch,
    FileDigest,
    Isa,
    Layer,
    TensorSpec,
)
from veltair.runtime.scratch import scratch


@dataclass(frozen=True, kw_only=True)
class Built:
    """What was written, and what the manifest says of it.

    Attributes:
        batches: one for each number of samples, ascending from 1; their profiles are unmeasured.
        files: by name.
        search: what the versions of one sample's layers were chosen from.
    """

    batches: tuple[Batch, ...]
    files: dict[str, FileDigest]
    search: SearchReport


@dataclass(frozen=True, kw_only=True)
class _Part:
    """What is built for one number of samples."""

    requests: list[Request]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    arena_bytes: int


def build_artifact(
    folder: Path,
    model: Path,
    graphs: dict[int, Graph],
    isa: Isa,
    options: SearchOptions,
    progress: Progress,
) -> Built:
    """Finds the versions of every layer, builds their kernels and packs their constants.

    Args:
        folder: of the artifact.
        model: the ONNX file, for messages.
        graphs: by number of samples, from 1; they are taken out, since nothing else must hold the
            constants.
        isa: instruction set.
        options: of the search.
        progress: hears of each stage.

    Raises:
        VeltairError: there is too little memory, or a kernel can't be built.
    """
    progress.stage("planning", 1)
    parts = {size: _planned(model, graphs.pop(size), isa) for size in sorted(graphs)}
    with scratch("objects") as objects:
        found = {
            size: find_variants(part.requests, options, objects, progress)
            for size, part in parts.items()
        }
        ready = {symbol: path for each in found.values() for symbol, path in each.objects.items()}
        with codegen.LibraryBuilder(isa, jobs=options.jobs, ready=ready) as library:
            assembler = Assembler(partial(_kernel, isa), _threads(), library.add)
            layers = _layers(assembler, parts, found, isa)
            assembler.weights.write(folder / WEIGHTS_FILE)
            fallbacks = assembler.fallbacks.write(folder)
            progress.stage("building kernels", assembler.kernel_count)
            library.link(folder / KERNELS_FILE, progress.step)
    names = [layer.name for layer in layers[1]]
    search = report(names, parts[1].requests, found[1], options)
    (folder / SEARCH_FILE).write_bytes(search.to_json())
    return Built(
        batches=tuple(_batch(size, part, layers[size]) for size, part in parts.items()),
        files={name: digest(folder / name) for name in (WEIGHTS_FILE, KERNELS_FILE, *fallbacks)},
        search=search,
    )


def _planned(model: Path, graph: Graph, isa: Isa) -> _Part:
    plan = plan_memory(graph, LANES[isa])
    check_memory(model, graph, plan)
    return _Part(
        requests=lower(graph, plan, isa),
        inputs=tuple(map(graph.spec, graph.inputs)),
        outputs=tuple(map(graph.spec, graph.outputs)),
        arena_bytes=plan.arena_bytes,
    )


def _layers(
    assembler: Assembler, parts: Mapping[int, _Part], found: Mapping[int, Found], isa: Isa
) -> dict[int, tuple[Layer, ...]]:
    """By number of samples."""
    choices = {size: [layer.choices for layer in each.layers] for size, each in found.items()}
    layers = {}
    for size, part in parts.items():
        own = twins(part.requests, choices[size], parts[1].requests, choices[1], isa)
        layers[size] = assembler.layers(part.requests, own)
    return layers


def _batch(size: int, part: _Part, layers: tuple[Layer, ...]) -> Batch:
    return Batch(
        size=size,
        inputs=part.inputs,
        outputs=part.outputs,
        arena_bytes=part.arena_bytes,
        layers=layers,
        profile=unmeasured(layers),
    )


def _threads() -> tuple[int, ...]:
    """Of the versions of what falls back: one, two, four, ... all cores."""
    cores = len(os.sched_getaffinity(0))
    return tuple(sorted({cores, *(1 << i for i in range(cores.bit_length()) if 1 << i <= cores)}))


def _kernel(isa: str, request: Request, choice: Choice) -> Kernel:
    return build(request.key, isa, choice)
