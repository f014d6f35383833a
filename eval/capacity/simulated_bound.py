"""The least processor time in which a query can end within its target, whatever the policy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import minimize_scalar

if TYPE_CHECKING:
    from veltair.runtime._native import sched

_DEAREST = 1e6  # of a unit of time, in cores


def least_core_ns(profile: sched.ModelProfile, total_cores: int, target_ns: float) -> float:
    """Returns a bound that no choice of versions and core counts stays below.

    Each layer has a version and a core count of its own, undisturbed. That the times of all end
    within the target is a constraint on their sum, which a Lagrange multiplier puts a price on: for
    any price the cheapest choice of each layer bounds the constrained problem from below, and the
    best price gives the highest bound. It is what choices that change from query to query reach.

    Args:
        profile: of the model.
        total_cores: of the machine; a layer has from 1 to all of them.
        target_ns: for all layers; may be infinite.

    Returns:
        Nanoseconds of cores; infinite where even the fastest choice is beyond the target.
    """
    whole = profile.resampled(range(1, total_cores + 1))
    cores = np.arange(1, total_cores + 1)
    table = np.array(whole.layer_ns, dtype=float).reshape(-1, total_cores, whole.levels)
    first = np.cumsum([0, *whole.variants[:-1]])
    # [layer, cores]: with the version that is the fastest there.
    fastest = np.minimum.reduceat(table[:, :, 0], first, axis=0)
    if math.isinf(target_ns):
        return float((cores * fastest).min(axis=1).sum())
    if fastest.min(axis=1).sum() > target_ns:
        return math.inf

    def bound(price: float) -> float:
        return float(((cores + price) * fastest).min(axis=1).sum() - price * target_ns)

    best = minimize_scalar(
        lambda power: -bound(math.exp(power)),
        bounds=(math.log(1e-3), math.log(_DEAREST)),
        method="bounded",
    )
    return max(bound(0.0), bound(math.exp(best.x)))
