"""What a report says about an artifact: the manifest and the search, joined layer by layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from veltair.compiler.table import shapes_text
from veltair.compiler.versions import (
    Condition,
    Kept,
    best_choices,
    condition_times,
    conditions_of,
)
from veltair.runtime.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from veltair.compiler.search.samples import LayerSearch, Removed, Sample, SearchReport
    from veltair.runtime.manifest import Manifest, Profile

    Table = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Version:
    """One variant of a layer.

    Attributes:
        id: self-describing.
        algorithm: how it computes.
        parallel_extent: most cores that it can use.
        tile_bytes: its working set.
        alone_ns: on each core count, without interference.
        disturbed_ns: at each level, on the report's core count.
    """

    id: str
    algorithm: str
    parallel_extent: int
    tile_bytes: int
    alone_ns: tuple[int, ...]
    disturbed_ns: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class LayerReport:
    """One layer.

    Attributes:
        number: from 1, in the order in which layers run.
        shapes: input and output.
        share: of the time of all layers, each by its fastest version alone on the report's cores.
        versions: in the manifest's order.
        kept: the best choice of 1, 2, ... versions, those included that were measured and removed.
        search: its samples, or None.
    """

    number: int
    name: str
    op: str
    shapes: str
    flops: int
    alone_ns: tuple[int, ...]
    share: float
    versions: tuple[Version, ...]
    kept: tuple[Kept, ...]
    search: LayerSearch | None

    @property
    def samples(self) -> tuple[Sample, ...]:
        """Of the search; none where there was none."""
        return self.search.samples if self.search else ()

    @property
    def removed(self) -> tuple[Removed, ...]:
        """Versions that were chosen and found spare."""
        return self.search.removed if self.search else ()

    @property
    def frontier(self) -> tuple[Sample, ...]:
        """The samples on the frontier."""
        return tuple(sample for sample in self.samples if sample.is_frontier)


@dataclass(frozen=True, kw_only=True)
class ModelReport:
    """All that a page is made of.

    Attributes:
        manifest: of the artifact.
        search: of its compile, or None.
        cores: the core count of the figures: the most that was measured under interference.
        conditions: under which versions were measured, those of `LayerReport.kept`.
        layers: in the order in which they run.
        missing: what the page can't show and what would make it, a sentence each.
    """

    manifest: Manifest
    search: SearchReport | None
    cores: int
    conditions: tuple[Condition, ...]
    layers: tuple[LayerReport, ...]
    missing: tuple[str, ...]

    @property
    def levels(self) -> tuple[float, ...]:
        """Of the profile."""
        return self.manifest.profile.levels


def model_report(manifest: Manifest, search: SearchReport | None) -> ModelReport:
    """Joins what is known.

    Raises:
        ArtifactError: the search is of another model.
    """
    profile = manifest.profile
    made = profile.interference
    cores = made.measured_cores if made else profile.cores[-1]
    conditions = conditions_of(profile)
    found = _searches(manifest, search)
    column = profile.cores.index(cores)
    fastest = [min(v[column][0] for v in layer) for layer in profile.layer_ns]
    total_ns = sum(fastest)
    layers = []
    for i, layer in enumerate(manifest.layers):
        searched = found.get(layer.name)
        tables = (*profile.layer_ns[i], *_removed_times(profile, searched))
        layers.append(
            LayerReport(
                number=i + 1,
                name=layer.name,
                op=layer.op,
                shapes=shapes_text(layer),
                flops=layer.flops,
                alone_ns=tuple(min(column) for column in zip(*_alone(manifest, i), strict=True)),
                share=fastest[i] / total_ns,
                versions=tuple(
                    Version(
                        id=variant.id,
                        algorithm=variant.algorithm,
                        parallel_extent=variant.parallel_extent,
                        tile_bytes=variant.tile_bytes,
                        alone_ns=_alone(manifest, i)[v],
                        disturbed_ns=profile.layer_ns[i][v][column],
                    )
                    for v, variant in enumerate(layer.variants)
                ),
                kept=best_choices(condition_times(tables, conditions), conditions),
                search=searched,
            )
        )
    return ModelReport(
        manifest=manifest,
        search=search,
        cores=cores,
        conditions=conditions,
        layers=tuple(layers),
        missing=tuple(_missing(manifest, search)),
    )


def _removed_times(profile: Profile, search: LayerSearch | None) -> Iterator[Table]:
    """Of a layer's versions that were measured in this profile and removed: [cores][levels]."""
    for each in search.removed if search else ():
        if tuple(map(len, each.layer_ns)) == (len(profile.levels),) * len(profile.cores):
            yield each.layer_ns


def _alone(manifest: Manifest, layer: int) -> list[tuple[int, ...]]:
    """[variant][cores]: the layer's times without interference."""
    return [tuple(row[0] for row in table) for table in manifest.profile.layer_ns[layer]]


def _searches(manifest: Manifest, search: SearchReport | None) -> dict[str, LayerSearch]:
    if search is None:
        return {}
    names = [layer.name for layer in manifest.layers]
    found = [layer.name for layer in search.layers]
    if found != names:
        raise ArtifactError(
            f"{manifest.name}: search.json is of another model: it has {len(found)} layers "
            f"({', '.join(found[:3])}, ...), the manifest {len(names)} ({', '.join(names[:3])}, "
            "...); compile the model again"
        )
    return {layer.name: layer for layer in search.layers}


def _missing(manifest: Manifest, search: SearchReport | None) -> Iterator[str]:
    if search is None:
        yield (
            "The samples of the search: this artifact has no search.json, which a compile that "
            "searches writes (veltair compile --trials N)."
        )
    if len(manifest.profile.levels) == 1:
        made = manifest.profile.interference
        yield (
            "Times under interference: the profile has one level, alone"
            + (
                f"; on its machine the fastest bubbles slowed the reference kernel by "
                f"{made.highest:.1%} only."
                if made
                else " (veltair profile DIR --levels N measures more)."
            )
        )
    if all(len(layer.variants) == 1 for layer in manifest.layers):
        yield "A choice between versions: each layer has one."
