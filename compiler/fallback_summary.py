"""What is said of an artifact's layers that aren't compiled, in a few lines."""

from __future__ import annotations

from collections.abc import Iterator

from veltair.runtime.manifest import Manifest

_MOST_LINES = 5  # reasons that are told


def fallback_share(manifest: Manifest) -> float:
    """The part of the one-core time that layers take which fall back."""
    times = [min(v[0][0] for v in layer) for layer in manifest.profile.layer_ns]
    pairs = zip(times, manifest.layers, strict=True)
    fallen = sum(ns for ns, layer in pairs if layer.fallback is not None)
    return fallen / max(sum(times), 1)


def fallback_summary(manifest: Manifest) -> Iterator[str]:
    """Lines for a person: how much falls back to ONNX Runtime, and why; none where nothing does."""
    fallen = [layer for layer in manifest.layers if layer.fallback is not None]
    if not fallen:
        return
    nodes = sum(len(layer.nodes) for layer in fallen)
    total = sum(len(layer.nodes) for layer in manifest.layers)
    reasons = [text for layer in fallen if layer.fallback for text in layer.fallback.reasons]
    yield (
        f"{len(fallen)} of {len(manifest.layers)} layers fall back to ONNX Runtime: {nodes} of "
        f"{total} nodes, {fallback_share(manifest):.1%} of the time on one core"
    )
    for text in reasons[:_MOST_LINES]:
        yield f"  {text}"
    if len(reasons) > _MOST_LINES:
        yield f"  and {len(reasons) - _MOST_LINES} more; `veltair inspect --json` has them all"
