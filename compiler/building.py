"""From planned graphs to an artifact's kernels, weights and layers: all but its manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from veltair.compiler import codegen
from veltair.compiler.artifact_writer import digest
from veltair.compiler.assemble import Assembler
from veltair.compiler.graph import Graph
from veltair.compiler.kernels.choices import Choice
from veltair.compiler.kernels.spec import Kernel
from veltair.compiler.lower import Request, lower
from veltair.compiler.memory import check_memory
from veltair.compiler.passes.allocation import Sizes
from veltair.compiler.passes.plan import plan_memory
from veltair.compiler.profile import unmeasured
from veltair.compiler.progress import Progress
from veltair.compiler.sample_wise import Planned, arrange, eligible
from veltair.compiler.search.samples import SEARCH_FILE, SearchReport
from veltair.compiler.search.spaces import build
from veltair.compiler.search.twins import Choices, twins
from veltair.compiler.search.variants import Found, SearchOptions, find_variants, report
from veltair.runtime.machine import core_steps, usable_cores
from veltair.runtime.manifest import (
    KERNELS_FILE,
    LANES,
    WEIGHTS_FILE,
    Batch,
    FileDigest,
    Isa,
    Layer,
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


class Builder:
    """Builds one artifact: for one sample, and for each batch.

    Holds the graphs with their constants until it is released.
    """

    def __init__(self, folder: Path, model: Path, isa: Isa, options: SearchOptions) -> None:
        """Begins with nothing.

        Args:
            folder: of the artifact.
            model: the ONNX file, for messages.
            isa: instruction set.
            options: of the search.
        """
        self._folder, self._model, self._isa, self._options = folder, model, isa, options
        self._parts: dict[int, Planned] = {}
        self._choices: dict[int, list[Choices]] = {}

    def build(self, graphs: Mapping[int, Graph], progress: Progress) -> Built:
        """Finds the versions of every layer, builds their kernels and packs their constants.

        Args:
            graphs: by number of samples, from 1.
            progress: hears of each stage.

        Raises:
            VeltairError: there is too little memory, or a kernel can't be built.
        """
        progress.stage("planning", 1)
        self._parts = {size: self._planned(graphs[size]) for size in sorted(graphs)}
        one = self._parts[1]
        with scratch("objects") as objects:
            found = {
                size: find_variants(part.requests, self._options, objects, progress)
                for size, part in self._parts.items()
            }
            ready = {name: path for each in found.values() for name, path in each.objects.items()}
            jobs = self._options.jobs
            with codegen.LibraryBuilder(self._isa, jobs=jobs, ready=ready) as library:
                self._assembler = Assembler(
                    partial(_kernel, self._isa),
                    core_steps(usable_cores()),  # what falls back is measured here
                    on_kernel=library.add,
                )
                layers = {size: self._layers(size, each) for size, each in found.items()}
                self._assembler.weights.write(self._folder / WEIGHTS_FILE)
                fallbacks = self._assembler.fallbacks.write(self._folder)
                progress.stage("building kernels", self._assembler.kernel_count)
                library.link(self._folder / KERNELS_FILE, progress.step)
        names = [layer.name for layer in layers[1]]
        search = report(names, one.requests, found[1], self._options)
        (self._folder / SEARCH_FILE).write_bytes(search.to_json())
        files = (WEIGHTS_FILE, KERNELS_FILE, *fallbacks)
        return Built(
            batches=tuple(
                self._batch(size, layers[size], part.plan.sizes)
                for size, part in self._parts.items()
            ),
            files={name: digest(self._folder / name) for name in files},
            search=search,
        )

    def twins(self, size: int) -> list[int | None]:
        """For each layer of a batch the layer of one sample that can run in its place, if any."""
        return eligible(self._parts[1], self._parts[size], size)

    def arranged(self, size: int, chosen: Sequence[bool]) -> Batch:
        """The batch with some of its layers run sample by sample, by the kernels of one sample."""
        one, several = self._parts[1], self._parts[size]
        steps, sizes = arrange(one, several, size, self._isa, chosen)
        built = self._assembler.kernel_count
        layers = self._assembler.layers(
            [step.request for step in steps],
            [self._choices[1 if step.of_one else size][step.index] for step in steps],
        )
        assert self._assembler.kernel_count == built, "a kernel that is in no library"
        return self._batch(size, layers, sizes)

    def release(self) -> None:
        """Lets go of the graphs with their constants."""
        self._parts.clear()

    def _planned(self, graph: Graph) -> Planned:
        plan = plan_memory(graph, LANES[self._isa])
        check_memory(self._model, graph, plan)
        return Planned(graph=graph, plan=plan, requests=lower(graph, plan, self._isa))

    def _layers(self, size: int, found: Found) -> tuple[Layer, ...]:
        one, part = self._parts[1], self._parts[size]
        choices: list[Choices] = [layer.choices for layer in found.layers]
        if size > 1:
            choices = twins(part.requests, choices, one.requests, self._choices[1], self._isa)
        self._choices[size] = choices
        return self._assembler.layers(part.requests, choices)

    def _batch(self, size: int, layers: tuple[Layer, ...], sizes: Sizes) -> Batch:
        graph = self._parts[size].graph
        return Batch(
            size=size,
            inputs=tuple(map(graph.spec, graph.inputs)),
            outputs=tuple(map(graph.spec, graph.outputs)),
            arena_bytes=sizes.arena_bytes,
            bordered_bytes=sizes.bordered_bytes,
            layers=layers,
            profile=unmeasured(layers),
        )


def _kernel(isa: str, request: Request, choice: Choice) -> Kernel:
    return build(request.key, isa, choice)
