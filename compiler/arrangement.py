"""Decides by measurement which layers of a batch run sample by sample: see `sample_wise`."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from veltair.compiler.building import Builder
from veltair.compiler.progress import Progress
from veltair.compiler.sample_wise import choose
from veltair.runtime.manifest import MANIFEST_FILE, Batch, Manifest
from veltair.runtime.model import Model, sample_inputs

# What going from a layer of the batch to one of a sample, or back, may cost of the whole time: what
# is read next lies in no near cache then. Several, since it is the whole that counts.
_SWITCH_SHARES = (0.001, 0.004, 0.016)
_ROUNDS = 5
_TURNS = 3


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
        masks = _masks(folder, batch.size, builder)
        candidates = [batch, *(builder.arranged(batch.size, mask) for mask in masks)]
        manifest = _with(manifest, _fastest(folder, manifest, candidates))
        (folder / MANIFEST_FILE).write_bytes(manifest.to_json())
        progress.step(f"batch of {batch.size}")
    return manifest


def _masks(folder: Path, size: int, builder: Builder) -> list[list[bool]]:
    """Different choices of layers that run sample by sample, none of them empty."""
    one = Model.load(folder, verify=False)
    several = Model.load(folder, batch=size, verify=False)
    twins = builder.twins(size)
    of_one, of_several = _layer_ns(one) * size, _layer_ns(several)
    one_ns = [np.inf if index is None else float(of_one[index]) for index in twins]
    can = [index is not None for index in twins]
    masks: list[list[bool]] = []
    for share in _SWITCH_SHARES:
        mask = choose(one_ns, of_several.tolist(), can, share * float(of_several.sum()))
        if any(mask) and mask not in masks:
            masks.append(mask)
    return masks


def _layer_ns(model: Model) -> NDArray[np.float64]:
    """float64[layers]: the time of each, the geometric mean of that on one core and on all."""
    inputs = sample_inputs(model.manifest.inputs)
    logs = []
    for cores in (model.cpus[:1], model.cpus):
        times = model.time_layers(inputs, cores, _ROUNDS + 1)[1:]
        logs.append(np.log(np.maximum(np.median(times, axis=0), 1)))
    return np.asarray(np.exp(np.mean(logs, axis=0)))


def _fastest(folder: Path, manifest: Manifest, candidates: list[Batch]) -> Batch:
    """Of some ways to run a batch the fastest, by turns on one core and on all."""
    loaded = []
    for candidate in candidates:
        (folder / MANIFEST_FILE).write_bytes(_with(manifest, candidate).to_json())
        loaded.append(Model.load(folder, batch=candidate.size, verify=False))
    logs = np.zeros(len(loaded))
    for cores in (loaded[0].cpus[:1], loaded[0].cpus):
        times = np.array(
            [[model.time_run(cores, 2)[1:].min() for model in loaded] for _ in range(_TURNS)]
        )
        logs += np.log(np.median(times, axis=0))
    return candidates[int(np.argmin(logs))]


def _with(manifest: Manifest, batch: Batch) -> Manifest:
    others = [batch if other.size == batch.size else other for other in manifest.batches]
    return msgspec.structs.replace(manifest, batches=tuple(others))
