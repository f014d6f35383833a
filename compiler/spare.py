"""Removes the versions that a profile shows to be spare: from the manifest, then from the weights.

The kernels stay in `kernels.so`; nothing calls them.

Reference: VELTAIR, section 4.1: versions within 10 % of the full set are removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from veltair.compiler.artifact_writer import digest
from veltair.compiler.binding import Array
from veltair.compiler.search.samples import SEARCH_FILE, LayerSearch, Removed, SearchReport
from veltair.compiler.versions import Kept, best_choices, condition_times, conditions_of, fewest
from veltair.compiler.weights import WeightStore
from veltair.runtime.files import replacing
from veltair.runtime.manifest import WEIGHTS_FILE, Argument, Layer, Manifest


def without_spare(
    manifest: Manifest, search: SearchReport | None = None
) -> tuple[Manifest, tuple[tuple[Removed, ...], ...]]:
    """A manifest that keeps no more versions than it needs under the conditions of its profile.

    Where no level of interference was asked for there is nothing to judge kernels by, and all
    stay. So do those of a layer that lost some before: what it loses by less would add up. Thread
    counts of a layer that falls back cost memory each, and are judged by the times alone too.

    Args:
        manifest: with the profile to judge by.
        search: of the artifact, where it has one.

    Returns:
        The manifest, and what each layer lost.
    """
    judged = manifest.profile.interference is not None
    conditions = conditions_of(manifest.profile)
    trimmed_before = {layer.name for layer in search.layers if layer.removed} if search else set()
    layers, layer_ns, removed = [], [], []
    for layer, tables in zip(manifest.layers, manifest.profile.layer_ns, strict=True):
        times = condition_times(tables, conditions)
        choices = best_choices(times, conditions)
        whole = layer.name in trimmed_before or not (judged or layer.fallback)
        kept = choices[-1] if whole else fewest(choices)
        variants = tuple(layer.variants[v] for v in kept.versions)
        layers.append(msgspec.structs.replace(layer, variants=variants))
        layer_ns.append(tuple(tables[v] for v in kept.versions))
        removed.append(
            tuple(
                Removed(
                    id=layer.variants[v].id,
                    reason=_reason(times[v], kept),
                    layer_ns=tuple(map(tuple, tables[v])),
                )
                for v in range(len(layer.variants))
                if v not in kept.versions
            )
        )
    profile = msgspec.structs.replace(manifest.profile, layer_ns=tuple(layer_ns))
    trimmed = msgspec.structs.replace(manifest, layers=tuple(layers), profile=profile)
    return trimmed, tuple(removed)


def without_spare_of_all(
    manifest: Manifest, search: SearchReport | None = None
) -> tuple[Manifest, tuple[tuple[Removed, ...], ...]]:
    """The same of every number of samples; what the layers of one sample lost."""
    trimmed, removed = without_spare(manifest, search)
    for size in manifest.sizes[1:]:
        trimmed = trimmed.having(size, without_spare(manifest.at(size))[0])
    return trimmed, removed


def no_spare(manifest: Manifest) -> tuple[tuple[Removed, ...], ...]:
    """What each layer loses where none loses anything."""
    return tuple(() for _ in manifest.layers)


def _reason(times: Sequence[int], kept: Kept) -> str:
    gain = max(0.0, *(a / b - 1 for a, b in zip(kept.fastest_ns, times, strict=True)))
    return (
        f"those kept are at most {gain:.1%} slower, on any cores and at any level measured"
        if gain
        else "never faster than those kept, on any cores and at any level measured"
    )


def note_removed(report: SearchReport, removed: Sequence[Sequence[Removed]]) -> SearchReport:
    """Says in a search's report what was removed, in the order of its layers.

    Times of versions that were removed before are of another profile: they go, the versions stay.
    """
    layers = []
    for layer, lost in zip(report.layers, removed, strict=True):
        before = [msgspec.structs.replace(each, layer_ns=()) for each in layer.removed]
        layers.append(_without(layer, (*before, *lost)))
    return msgspec.structs.replace(report, layers=tuple(layers))


def _without(layer: LayerSearch, removed: tuple[Removed, ...]) -> LayerSearch:
    gone = {each.id for each in removed}
    samples = tuple(
        msgspec.structs.replace(s, is_chosen=False) if s.id in gone else s for s in layer.samples
    )
    return msgspec.structs.replace(layer, samples=samples, removed=removed)


def remove_spare(
    folder: Path, manifest: Manifest, search: SearchReport
) -> tuple[Manifest, SearchReport]:
    """Removes a new artifact's spare versions, their weights too; writes all but the manifest."""
    trimmed, removed = without_spare_of_all(manifest)
    if trimmed == manifest:
        return manifest, search
    noted = note_removed(search, removed)
    (folder / SEARCH_FILE).write_bytes(noted.to_json())
    return drop_weights(folder, trimmed), noted


def drop_weights(folder: Path, manifest: Manifest) -> Manifest:
    """Writes `weights.bin` again with only what the versions of the manifest read."""
    path = folder / WEIGHTS_FILE
    data = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)
    store = WeightStore()
    for size in manifest.sizes:
        part = manifest.at(size)
        layers = tuple(_moved(layer, data, store) for layer in part.layers)
        manifest = manifest.having(size, msgspec.structs.replace(part, layers=layers))
    with replacing(path) as target:
        store.write(target)
    files = {**manifest.files, WEIGHTS_FILE: digest(path)}
    return msgspec.structs.replace(manifest, files=files)


def _moved(layer: Layer, data: Array, to: WeightStore) -> Layer:
    def moved(argument: Argument) -> Argument:
        if argument.storage != "weights":
            return argument
        piece = data[argument.offset_bytes : argument.end_bytes]
        return to.add(piece.view(argument.dtype).reshape(argument.shape))

    variants = tuple(
        msgspec.structs.replace(v, arguments=tuple(map(moved, v.arguments))) for v in layer.variants
    )
    return msgspec.structs.replace(layer, variants=variants)
