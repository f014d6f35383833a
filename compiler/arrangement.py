"""Decides by measurement which layers of a batch run sample by sample: see `sample_wise`.

What a layer takes depends on how its neighbours run, so arrangements are measured, layer by layer,
until the best that the measurements foretell is one of them; the best few then run in turns. Where
a batch saves less, on one core or on all, decides between them: batches form under load, when cores
are few, and none should lose by one.
"""

from __future__ import annotations

import itertools
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
# How much the times on one core and on all count, in turns: the best for both alike is often one
# that gives away time on one core, where there is less to win.
_WEIGHTS = np.array([[0.5, 0.5], [1.0, 0.0]])
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
    one_ns, several_ns = _layer_ns([one, several], _LOOK_NS)
    # Costs are shares of what its samples take one by one, on as many cores.
    samples_ns = one_ns.sum(axis=1, keepdims=True) * size
    own_shares = several_ns / samples_ns
    twins = builder.twins(size)
    can = [index is not None for index in twins]
    shares = one_ns * size / samples_ns
    by_sample = np.stack([shares[:, index or 0] for index in twins], axis=1)
    costs = [
        LayerCosts(weights @ by_sample, weights @ own_shares, can, switch=_SWITCH_SHARE)
        for weights in _WEIGHTS
    ]
    found: dict[tuple[bool, ...], float] = {}
    known = 0  # choices in a row that were measured before
    for look in itertools.count():
        mask = costs[look % len(costs)].cheapest()
        known = known + 1 if not any(mask) or tuple(mask) in found else 0
        if known == len(costs) or len(found) == _MOST_LOOKS:
            break
        if known:
            continue
        arranged = _loaded(folder, manifest, builder.arranged(size, mask))
        steps_ns, again_ns = _layer_ns([arranged, several], _LOOK_NS)
        # By those of the batch, since the machine's speed changes.
        speed = own_shares.sum(axis=1) / again_ns.sum(axis=1)
        layers = np.zeros_like(own_shares)
        np.add.at(layers.T, order(mask, size), (steps_ns * speed[:, np.newaxis]).T)
        for weights, cost in zip(_WEIGHTS, costs, strict=True):
            cost.learn(mask, weights @ layers)
        found[tuple(mask)] = float(layers.sum(axis=1).max())
    return [list(mask) for mask in sorted(found, key=found.__getitem__)[:_FINALISTS]]


def _layer_ns(models: Sequence[Model], budget_ns: int) -> list[NDArray[np.float64]]:
    """float64[2, layers] of each model: the time of each layer on one core, and on all.

    They run in turns, for about the budget on as many cores. What disturbs a layer makes it longer
    and never shorter, so the least time of each counts.
    """
    found = [np.full((2, len(model.manifest.layers)), np.inf) for model in models]
    inputs = [sample_inputs(model.manifest.inputs) for model in models]
    for row, cores in enumerate(_core_sets(models[0])):
        runs_ns = sum(int(model.time_run(cores, 1)[0]) for model in models)
        for _ in range(min(max(budget_ns // max(2 * runs_ns, 1), _FEWEST), _MOST)):
            for model, given, times in zip(models, inputs, found, strict=True):
                # The first run finds the caches full of another's.
                again = model.time_layers(given, cores, 2)[1]
                times[row] = np.minimum(times[row], again)
    return found


def _fastest(folder: Path, manifest: Manifest, candidates: list[Batch]) -> Batch:
    """The way to run a batch that saves most on that of one core and of all where it saves less."""
    loaded = [_loaded(folder, manifest, candidate) for candidate in candidates]
    times = _layer_ns([Model.load(folder, verify=False), *loaded], _TURNS_NS)
    one_ns, *totals_ns = (layers_ns.sum(axis=1) for layers_ns in times)
    worst = [(total_ns / one_ns).max() for total_ns in totals_ns]
    return candidates[int(np.argmin(worst))]


def _core_sets(model: Model) -> tuple[Sequence[int], Sequence[int]]:
    return model.cpus[:1], model.cpus


def _loaded(folder: Path, manifest: Manifest, batch: Batch) -> Model:
    """The model with this batch, whose manifest stays in the folder."""
    (folder / MANIFEST_FILE).write_bytes(_with(manifest, batch).to_json())
    return Model.load(folder, batch=batch.size, verify=False)


def _with(manifest: Manifest, batch: Batch) -> Manifest:
    others = [batch if other.size == batch.size else other for other in manifest.batches]
    return msgspec.structs.replace(manifest, batches=tuple(others))
