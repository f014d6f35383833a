"""Decides by measurement which layers of a batch run sample by sample: see `sample_wise`.

What a layer takes depends on how its neighbours run, so arrangements are measured, layer by layer,
until the best that the measurements foretell is one of them; the best few then run in turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from veltair.compiler.building import Builder
from veltair.compiler.layer_costs import LayerCosts
from veltair.compiler.progress import Progress
from veltair.compiler.sample_wise import order
from veltair.runtime.manifest import MANIFEST_FILE, Batch, Manifest
from veltair.runtime.model import Model, sample_inputs

_SWITCH_SHARE = 0.001  # of the whole, see `LayerCosts`
_MOST_LOOKS = 8  # arrangements that are measured layer by layer
_FINALISTS = 3  # of them run in turns
_LOOK_NS = 8_000_000_000  # for the turns of a look, on as many cores
_TURNS_NS = 24_000_000_000  # for those of the finalists, the same
_FEWEST, _MOST = 2, 9  # turns


def arrange_batches(
    folder: Path, manifest: Manifest, builder: Builder, progress: Progress
) -> Manifest:
    """The manifest with each batch as it is fastest, also written to the folder.

    Args:
        folder: of the artifact.
        manifest: as written, each batch by layers of its own.
        builder: of the artifact.
        progress: hears of each batch.
    """
    progress.stage("arranging batches", len(manifest.batches))
    for batch in manifest.batches:
        masks = _masks(folder, manifest, batch, builder)
        candidates = [batch, *(builder.arranged(batch.size, mask) for mask in masks)]
        manifest = _with(manifest, _fastest(folder, manifest, candidates))
        (folder / MANIFEST_FILE).write_bytes(manifest.to_json())
        progress.step(f"batch of {batch.size}")
    return manifest


def _masks(folder: Path, manifest: Manifest, batch: Batch, builder: Builder) -> list[list[bool]]:
    """The choices of layers that run sample by sample that seem best, none of them empty."""
    size = batch.size
    one, several = Model.load(folder, verify=False), _loaded(folder, manifest, batch)
    one_ns, several_ns = _layer_ns([one, several])
    # Costs are shares of the batch's time, on one core and on all alike.
    whole_ns = several_ns.sum(axis=1, keepdims=True)
    twins = builder.twins(size)
    can = [index is not None for index in twins]
    of_one = (one_ns * size / whole_ns).sum(axis=0)
    costs = LayerCosts(
        [0.0 if index is None else of_one[index] for index in twins],
        (several_ns / whole_ns).sum(axis=0),
        can,
        switch=_SWITCH_SHARE * len(whole_ns),
    )
    found: dict[tuple[bool, ...], float] = {}
    for _ in range(_MOST_LOOKS):
        mask = costs.cheapest()
        if not any(mask) or tuple(mask) in found:
            break
        arranged = _loaded(folder, manifest, builder.arranged(size, mask))
        steps_ns, again_ns = _layer_ns([arranged, several])
        layers = np.zeros(len(mask))
        shares = steps_ns / again_ns.sum(axis=1, keepdims=True)  # the machine's speed changes
        np.add.at(layers, order(mask, size), shares.sum(axis=0))
        costs.learn(mask, layers)
        found[tuple(mask)] = float(layers.sum())
    return [list(mask) for mask in sorted(found, key=found.__getitem__)[:_FINALISTS]]


def _layer_ns(models: Sequence[Model]) -> list[NDArray[np.float64]]:
    """float64[2, layers] of each model: the time of each layer on one core, and on all.

    They run in turns. What disturbs a layer makes it longer and never shorter, so the least time of
    each counts.
    """
    found = [np.full((2, len(model.manifest.layers)), np.inf) for model in models]
    inputs = [sample_inputs(model.manifest.inputs) for model in models]
    for row, cores in enumerate(_core_sets(models[0])):
        runs_ns = sum(int(model.time_run(cores, 1)[0]) for model in models)
        for _ in range(_affordable(_LOOK_NS, 2 * runs_ns)):
            for model, given, times in zip(models, inputs, found, strict=True):
                # The first run finds the caches full of another's.
                again = model.time_layers(given, cores, 2)[1]
                times[row] = np.minimum(times[row], again)
    return found


def _fastest(folder: Path, manifest: Manifest, candidates: list[Batch]) -> Batch:
    """Of some ways to run a batch the fastest, by turns on one core and on all."""
    loaded = [_loaded(folder, manifest, candidate) for candidate in candidates]
    logs = np.zeros(len(loaded))
    for cores in _core_sets(loaded[0]):
        turn_ns = sum(2 * int(model.time_run(cores, 1)[0]) for model in loaded)
        turns = range(_affordable(_TURNS_NS, turn_ns))
        # The first run of each finds the caches full of another's.
        times = np.array([[model.time_run(cores, 2)[1] for model in loaded] for _ in turns])
        logs += np.log(np.median(times, axis=0))
    return candidates[int(np.argmin(logs))]


def _core_sets(model: Model) -> tuple[Sequence[int], Sequence[int]]:
    return model.cpus[:1], model.cpus


def _affordable(budget_ns: int, one_ns: int) -> int:
    return min(max(budget_ns // max(one_ns, 1), _FEWEST), _MOST)


def _loaded(folder: Path, manifest: Manifest, batch: Batch) -> Model:
    """The model with this batch, whose manifest stays in the folder."""
    (folder / MANIFEST_FILE).write_bytes(_with(manifest, batch).to_json())
    return Model.load(folder, batch=batch.size, verify=False)


def _with(manifest: Manifest, batch: Batch) -> Manifest:
    others = [batch if other.size == batch.size else other for other in manifest.batches]
    return msgspec.structs.replace(manifest, batches=tuple(others))
