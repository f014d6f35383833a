"""What calibration measures: single layers of artifacts, by each of their versions.

A layer runs again and again by itself, which only layers can whose result is no address of another:
what a run leaves in the arena is the next one's input. So layers with indices there are left out,
and parts that ONNX Runtime runs.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from veltair.proxy.evictors import Victim
from veltair.runtime import _native
from veltair.runtime.artifact import open_artifact
from veltair.runtime.manifest import WEIGHTS_FILE
from veltair.runtime.model import empty_aligned, load_native, sample_inputs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from veltair.runtime.manifest import Layer, Manifest, Variant

_LEAST_NS = 30_000  # a run: shorter ones are mostly the call
_TRIED = 3


class Work(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One version of one layer.

    Attributes:
        model: the artifact's name.
        layer: its number in the model.
        name: its name there.
        version: number of the variant.
        variant: the variant's id.
        key: the same for layers of the same operator and shapes, in whatever model: they are one
            layer to a test that holds layers out.
        bytes: that its arguments span.
    """

    model: str
    layer: int
    name: str
    version: int
    variant: str
    key: str
    bytes: int

    def __str__(self) -> str:
        """Names it as a message would."""
        return f"{self.model} {self.name} ({self.variant})"


@dataclass(frozen=True, kw_only=True)
class _Loaded:
    """One artifact, ready to run a layer at a time."""

    weights: Path
    manifest: Manifest
    instance: _native.Instance
    inputs: Sequence[np.ndarray]
    outputs: Sequence[np.ndarray]


class Runner:
    """Runs works on some processors. One thread uses it."""

    def __init__(self, folders: Iterable[Path], cpus: Sequence[int]) -> None:
        """Loads artifacts, and runs each once, so that the layers find what they read.

        Args:
            folders: of the artifacts.
            cpus: where all of them run.

        Raises:
            ArtifactError: one can't be used here.
        """
        self._cores = list(range(len(cpus)))
        gang = _native.Gang(cpus, restore_affinity=True)
        self._loaded: dict[str, _Loaded] = {}
        for folder in folders:
            artifact = open_artifact(folder)
            manifest = artifact.manifest.at(1)
            loaded = _Loaded(
                weights=artifact.folder / WEIGHTS_FILE,
                manifest=manifest,
                instance=_native.Instance(load_native(artifact.folder, manifest), gang),
                inputs=list(sample_inputs(manifest.inputs).values()),
                outputs=[empty_aligned(spec) for spec in manifest.outputs],
            )
            if not any(layer.fallback for layer in manifest.layers):
                layers = (0, len(manifest.layers))
                usual = [layer.usual_variant(len(cpus)) for layer in manifest.layers]
                loaded.instance.run(loaded.inputs, loaded.outputs, self._cores, layers, usual)
            self._loaded[f"{manifest.name}/{manifest.version}"] = loaded

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the artifacts, NAME/VERSION."""
        return tuple(self._loaded)

    def works(self) -> list[Work]:
        """Returns all versions of each layer that is worth measuring, each layer once."""
        found: list[Work] = []
        seen: set[str] = set()
        for model, loaded in self._loaded.items():
            if any(layer.fallback for layer in loaded.manifest.layers):
                continue
            for index, layer in enumerate(loaded.manifest.layers):
                key = key_of(layer)
                if key in seen or not repeatable(layer):
                    continue
                works = [_work(model, index, layer, v) for v in range(len(layer.variants))]
                if min(self.run(works[0], count=_TRIED)) < _LEAST_NS:
                    continue
                seen.add(key)
                found += works
        return found

    def weights(self, work: Work) -> list[Victim]:
        """Returns the weights that a work reads; none where it has none."""
        loaded = self._loaded[work.model]
        variant = loaded.manifest.layers[work.layer].variants[work.version]
        return [
            Victim(path=loaded.weights, begin_bytes=each.offset_bytes, end_bytes=each.end_bytes)
            for each in variant.arguments
            if each.storage == "weights" and each.end_bytes > each.offset_bytes
        ]

    def run(self, work: Work, *, seconds: float = 0.0, count: int = 1) -> list[int]:
        """Runs a work at least `count` times and for `seconds`.

        Returns:
            The time of each run, in ns.
        """
        loaded = self._loaded[work.model]
        run = loaded.instance.run
        inputs, outputs, cores = loaded.inputs, loaded.outputs, self._cores
        layers, variants = (work.layer, work.layer + 1), [work.version]
        times: list[int] = []
        clock = time.perf_counter_ns
        now = clock()
        end = now + round(seconds * 1e9)
        while len(times) < count or now < end:
            run(inputs, outputs, cores, layers, variants)
            before, now = now, clock()
            times.append(now - before)
        return times


def key_of(layer: Layer) -> str:
    """Returns what two layers share that do the same on tensors of the same sizes."""
    shapes = (*layer.input_shapes, (), *layer.output_shapes)
    return f"{layer.op} {' '.join('x'.join(map(str, shape)) or '>' for shape in shapes)}"


def repeatable(layer: Layer) -> bool:
    """Whether a layer can run again on what it left: no number there is an index for a kernel."""
    return all(
        argument.storage != "arena" or argument.dtype.startswith(("float", "bfloat"))
        for variant in layer.variants
        for argument in variant.arguments
    )


def sampled(works: Sequence[Work], most: int) -> list[Work]:
    """Returns so many works at most, evenly spread over what they touch, in their order."""
    if len(works) <= most:
        return list(works)
    by_bytes = sorted(range(len(works)), key=lambda i: (works[i].bytes, i))
    chosen = {by_bytes[round(i)] for i in np.linspace(0, len(works) - 1, most)}
    return [work for index, work in enumerate(works) if index in chosen]


def _work(model: str, index: int, layer: Layer, version: int) -> Work:
    variant = layer.variants[version]
    return Work(
        model=model,
        layer=index,
        name=layer.name,
        version=version,
        variant=variant.id,
        key=key_of(layer),
        bytes=_touched_bytes(variant),
    )


def _touched_bytes(variant: Variant) -> int:
    return sum(each.end_bytes - each.offset_bytes for each in variant.arguments)
