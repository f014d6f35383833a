"""The figures of a report: VELTAIR's Fig. 6, 7, 9 and 14c of this artifact, and time by layer."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from veltair.compiler.versions import model_losses
from veltair.eval.page.plot import Plot, colour, doubling, linear, whole
from veltair.eval.page.text import bytes_text, time_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

    from veltair.compiler.search.samples import Sample
    from veltair.eval.report.layers import LayerReport, ModelReport

_WIDE = 960  # of the figure of all layers; a bar has at least _BAR of it
_BAR = 8


def time_by_layer(report: ModelReport) -> Markup:
    """Each layer's fastest version alone, in the order in which they run."""
    column = report.manifest.profile.cores.index(report.cores)
    times = [layer.alone_ns[column] / 1e6 for layer in report.layers]
    plot = Plot(
        title=f"Time by layer on {report.cores} core{'s' if report.cores > 1 else ''}",
        x=whole("layer", len(times), around=0.6),
        y=linear("ms", times, low=0),
        width=max(_WIDE, len(times) * _BAR + 80),
        height=240,
    )
    for layer, ms in zip(report.layers, times, strict=True):
        text = f"{layer.number} {layer.name} ({layer.op}): {ms:.4g} ms, {layer.share:.1%}"
        plot.bar(layer.number - 0.4, layer.number + 0.4, ms, "c0", text)
    return plot.svg()


def versions_per_layer(report: ModelReport) -> Markup:
    """How many layers have how many versions (Fig. 14c)."""
    counts = Counter(len(layer.versions) for layer in report.layers)
    most = max(counts)
    plot = Plot(
        title="Layers by their number of versions",
        x=whole("versions", most, around=0.6),
        y=linear("layers", list(counts.values()), low=0),
    )
    for versions, layers in sorted(counts.items()):
        text = (
            f"{layers} layer{'s' if layers > 1 else ''} with {versions} "
            f"version{'s' if versions > 1 else ''}"
        )
        plot.bar(versions - 0.35, versions + 0.35, layers, "c0", text)
    return plot.svg()


def model_loss(report: ModelReport) -> Markup:
    """What the model loses at each level if no layer keeps more than so many versions (Fig. 7)."""
    column = report.manifest.profile.cores.index(report.cores)
    shown = [i for i, each in enumerate(report.conditions) if each.cores == column]
    losses = [
        [row[i] for i in shown] for row in model_losses([layer.kept for layer in report.layers])
    ]
    plot = Plot(
        title="The model's loss by the versions that a layer keeps",
        x=whole("versions kept, at most", len(losses), around=0.2),
        y=linear("loss, %", [100 * loss for row in losses for loss in row], low=0),
    )
    for level, slowdown in enumerate(report.levels):
        points = [(kept + 1, 100 * row[level]) for kept, row in enumerate(losses)]
        plot.line(points, colour(level))
        for kept, loss in points:
            text = f"{kept:.0f} kept, level {level} (slow-down {slowdown:.3g}): loses {loss:.2f} %"
            plot.mark((kept, loss), colour(level), text, 3.5)
    return plot.svg()


def layer_samples(layer: LayerReport) -> Markup | None:
    """Parallelism against locality of all samples, the frontier and the chosen (Fig. 9b to 9d)."""
    samples = [s for s in layer.samples if s.status != "failed" and s.solo_ns > 0]
    if not samples:
        return None
    plot = Plot(
        title=f"Samples of {layer.name}: parallelism against block size",
        x=doubling("block size", [max(s.block_bytes, 1) for s in samples], text=bytes_text),
        y=doubling("parallelism", [max(s.parallelism, 1) for s in samples]),
    )
    plot.dots([_place(s) for s in samples if s.status == "filtered"], "filtered")
    plot.dots([_place(s) for s in samples if s.status == "ok" and not s.is_frontier], "ok")
    frontier = sorted((s for s in samples if s.is_frontier), key=_place)
    if len(frontier) > 1:
        plot.line([_place(s) for s in frontier], "frontier")
    for sample in frontier:
        plot.mark(_place(sample), "frontier", _describe(sample))
    for sample in samples:
        if sample.is_chosen:
            plot.mark(_place(sample), "chosen", f"chosen: {_describe(sample)}", 7.5)
    return plot.svg()


def layer_levels(layer: LayerReport, levels: Sequence[float]) -> Markup | None:
    """Each version's time at each level (Fig. 6)."""
    if len(levels) == 1:
        return None
    times = [[ns / 1e6 for ns in version.disturbed_ns] for version in layer.versions]
    plot = Plot(
        title=f"Versions of {layer.name} under interference",
        x=linear("interference level (slow-down of the reference kernel)", levels, low=0),
        y=linear("ms", [ms for row in times for ms in row], low=0),
    )
    for number, (version, row) in enumerate(zip(layer.versions, times, strict=True)):
        points = list(zip(levels, row, strict=True))
        plot.line(points, colour(number))
        for (level, ms), ns in zip(points, version.disturbed_ns, strict=True):
            text = f"{version.id} at level {level:.3g}: {time_text(ns)}"
            plot.mark((level, ms), colour(number), text, 3.5)
    return plot.svg()


def layer_loss(layer: LayerReport) -> Markup | None:
    """What the layer loses if it keeps fewer versions, of those removed again too (Fig. 7)."""
    if len(layer.kept) == 1:
        return None
    plot = Plot(
        title=f"Loss of {layer.name} by the versions that it keeps",
        x=whole("versions kept", len(layer.kept), around=0.2),
        y=linear("loss, %", [100 * loss for kept in layer.kept for loss in kept.loss], low=0),
    )
    for style, values in (
        ("c0", [kept.mean_loss for kept in layer.kept]),
        ("c1", [max(kept.loss) for kept in layer.kept]),
    ):
        name = "mean" if style == "c0" else "worst"
        points = [(count + 1, 100 * value) for count, value in enumerate(values)]
        plot.line(points, style)
        for count, loss in points:
            plot.mark((count, loss), style, f"{count:.0f} kept, {name}: loses {loss:.2f} %", 3.5)
    return plot.svg()


def _place(sample: Sample) -> tuple[float, float]:
    return float(max(sample.block_bytes, 1)), float(max(sample.parallelism, 1))


def _describe(sample: Sample) -> str:
    return (
        f"{sample.id}: {time_text(sample.solo_ns)} alone, parallelism {sample.parallelism}, "
        f"block {bytes_text(sample.block_bytes)}"
    )
