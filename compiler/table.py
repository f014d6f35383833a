"""The table of an artifact's layers, for `veltair compile` and `veltair inspect`."""

from __future__ import annotations

from rich.table import Table

from veltair.runtime.manifest import Layer, Manifest


def layer_table(manifest: Manifest) -> Table:
    """Layer, operator, shapes, GFLOP, ms at each core count, and share of the one-core time."""
    cores = manifest.profile.cores
    table = Table(title=f"{manifest.name} version {manifest.version}", header_style="bold")
    for name in ("layer", "op"):
        table.add_column(name, overflow="fold")
    table.add_column("shapes", overflow="fold")
    table.add_column("variants", justify="right")
    table.add_column("GFLOP", justify="right")
    for count in cores:
        table.add_column(f"ms, {count} core{'s' if count > 1 else ''}", justify="right")
    table.add_column("share", justify="right")
    times = [_times_ns(manifest, i) for i in range(len(manifest.layers))]
    total = sum(t[0] for t in times) or 1
    for layer, row in zip(manifest.layers, times, strict=True):
        cells = [f"{ns / 1e6:.3f}" for ns in row]
        table.add_row(
            layer.name,
            layer.op,
            shapes_text(layer),
            str(len(layer.variants)),
            f"{layer.flops / 1e9:.3f}",
            *cells,
            f"{row[0] / total:.1%}",
        )
    sums = [f"{sum(t[i] for t in times) / 1e6:.3f}" for i in range(len(cores))]
    gflop = sum(layer.flops for layer in manifest.layers) / 1e9
    table.add_section()
    table.add_row("sum of layers", "", "", "", f"{gflop:.3f}", *sums, "100.0%")
    whole = [f"{row[0] / 1e6:.3f}" for row in manifest.profile.model_ns]
    table.add_row("whole run", "", "", "", "", *whole, "")
    return table


def shapes_text(layer: Layer) -> str:
    """The layer's first input and its output, e.g. `1x64x56x56 -> 1x256x56x56`."""
    first = "x".join(map(str, layer.input_shapes[0])) if layer.input_shapes else "constants"
    outputs = ", ".join("x".join(map(str, s)) or "scalar" for s in layer.output_shapes)
    return f"{first or 'scalar'} -> {outputs}"


def _times_ns(manifest: Manifest, layer: int) -> list[int]:
    """The layer's median time at each core count: first variant, no interference."""
    return [levels[0] for levels in manifest.profile.layer_ns[layer][0]]
