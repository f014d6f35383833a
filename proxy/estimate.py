"""The level as a server believes it: estimates of many moments, the late ones most."""

from __future__ import annotations

from typing import TYPE_CHECKING

from veltair.proxy.proxy_file import Estimate, own_level
from veltair.runtime._native import ipc

if TYPE_CHECKING:
    from collections.abc import Collection

    from veltair.proxy.features import Features
    from veltair.proxy.proxy_file import ProxyFile


def estimate_level(
    file: ProxyFile | None, features: Features, sources: Collection[str]
) -> Estimate:
    """Estimates the level of one moment.

    Args:
        file: the trained models; None: there are none.
        features: of this moment.
        sources: that they are of.

    Returns:
        By the most accurate trained model that can tell, else by our own blocks alone.
    """
    if file is not None:
        trained = file.estimate(features, *sources)
        if trained.confidence > 0:
            return trained
    return own_level(features)


class SmoothLevel:
    """A mean of estimates by their confidence, in which each counts less the older it is.

    Its confidence falls as time passes without one, so that a level that nothing tells any more
    isn't believed for long.
    """

    def __init__(self, now_ns: int) -> None:
        """Begins without knowing anything."""
        self._smooth = ipc.SmoothLevel(now_ns)

    def add(self, estimate: Estimate, now_ns: int, memory_ns: float) -> Estimate:
        """Takes one in, and returns what is believed then.

        Args:
            estimate: one without confidence only lets time pass.
            now_ns: not before that of the last one.
            memory_ns: after which one counts for a third, 1/e.
        """
        believed = self._smooth.add(estimate.level, estimate.confidence, now_ns, memory_ns)
        return Estimate(level=believed.level, confidence=believed.confidence)
