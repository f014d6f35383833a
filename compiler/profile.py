"""Measures a compiled model's layers alone on this machine, for every core count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from veltair.runtime.machine import machine_facts
from veltair.runtime.manifest import Layer, Manifest, Profile
from veltair.runtime.model import Model, sample_inputs

if TYPE_CHECKING:
    from veltair.compiler.pipeline import Progress

_ROUNDS = 15
_WARM_UP_ROUNDS = 3
_BUDGET_NS = 2_000_000_000  # a core count; large models run fewer rounds
_FEWEST_ROUNDS = 3


def unmeasured(layers: Sequence[Layer]) -> Profile:
    """A profile of zeros, for the time between writing the kernels and measuring them."""
    return Profile(
        machine={},
        cores=(1,),
        levels=(0.0,),
        layer_ns=tuple(tuple(((0,),) for _ in layer.variants) for layer in layers),
        model_ns=((0,),),
    )


def measure_profile(model: Model, manifest: Manifest, progress: Progress) -> Profile:
    """Medians over some rounds of the whole model, so that the caches are as they will be.

    Args:
        model: the loaded artifact.
        manifest: its manifest.
        progress: hears of each core count.
    """
    counts = tuple(range(1, len(model.cpus) + 1))
    progress.stage("profiling", len(counts))
    per_count, whole = [], []
    for count in counts:
        layers, run = _measure(model, model.cpus[:count])
        progress.step(f"{count} core{'s' if count > 1 else ''}")
        per_count.append(layers)
        whole.append((run,))
    layer_ns = tuple(
        (tuple((int(row[i]),) for row in per_count),) for i in range(len(manifest.layers))
    )
    return Profile(
        machine=machine_facts(),
        cores=counts,
        levels=(0.0,),
        layer_ns=layer_ns,
        model_ns=tuple(whole),
    )


def _measure(model: Model, cores: Sequence[int]) -> tuple[list[int], int]:
    """Median ns of each layer and of a whole run on these cores."""
    fastest_ns = max(int(model.time_run(cores, _WARM_UP_ROUNDS).min()), 1)
    rounds = max(_FEWEST_ROUNDS, min(_ROUNDS, _BUDGET_NS // fastest_ns))
    inputs = sample_inputs(model.manifest.inputs)
    layers = np.median(model.time_layers(inputs, cores, rounds), axis=0)
    run = np.median(model.time_run(cores, rounds))
    return [int(ns) for ns in layers], int(run)
