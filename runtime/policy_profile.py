"""A manifest's profile in the form that policies read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from veltair.runtime._native import sched

if TYPE_CHECKING:
    from collections.abc import Sequence

    from veltair.runtime.manifest import Manifest


def to_profile(
    manifest: Manifest,
    *,
    qos_ns: int | None = None,
    priority: int = 1,
    layer_bytes: Sequence[int] = (),
) -> sched.ModelProfile:
    """Returns the profile with its tables flattened.

    Args:
        manifest: with the profile.
        qos_ns: latency target from the arrival, 0 for none; the manifest's if not given.
        priority: the model's weight where a policy knows priorities.
        layer_bytes: what each layer reads from memory, in the order of its times; empty: not known.
    """
    profile = manifest.profile
    return sched.ModelProfile(
        qos_ns=manifest.qos_ns if qos_ns is None else qos_ns,
        cores=profile.cores,
        levels=len(profile.levels),
        model_ns=[time_ns for row in profile.model_ns for time_ns in row],
        variants=[len(layer) for layer in profile.layer_ns],
        layer_ns=[
            time_ns
            for layer in profile.layer_ns
            for variant in layer
            for row in variant
            for time_ns in row
        ],
        parallel_extents=[
            variant.parallel_extent for layer in manifest.layers for variant in layer.variants
        ],
        layer_bytes=layer_bytes,
        slowdowns=profile.levels,
        priority=priority,
    )
