"""A manifest's profile in the form that policies read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from veltair.runtime._native import sched

if TYPE_CHECKING:
    from veltair.runtime.manifest import Profile


def to_profile(profile: Profile, qos_ns: int, *, priority: int = 1) -> sched.ModelProfile:
    """Returns the profile with its tables flattened.

    Args:
        profile: as measured.
        qos_ns: latency target from the arrival; 0 for none.
        priority: the model's weight where a policy knows priorities.
    """
    return sched.ModelProfile(
        qos_ns=qos_ns,
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
        priority=priority,
    )
