"""The table of an artifact's layers, for `veltair compile` and `veltair inspect`."""

from __future__ import annotations

import sys

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from veltair.runtime.manifest import Interference, Layer, Manifest

_WIDE = 160  # columns


def layer_table(manifest: Manifest) -> Table:
    """Layer, operator, shapes, GFLOP, ms at each core count, and share of the one-core time."""
    cores = manifest.profile.cores
    table = Table(
        title=f"{manifest.name} version {manifest.version}",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        header_style="bold",
    )
    for name in ("layer", "op", "shapes"):  # the widest of these gives way, not the numbers
        table.add_column(name)
    table.add_column("GFLOP", justify="right", no_wrap=True)
    for count in cores:
        table.add_column(f"ms/{count}", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    times = [_times_ns(manifest, i) for i in range(len(manifest.layers))]
    total = sum(t[0] for t in times) or 1
    for layer, row in zip(manifest.layers, times, strict=True):
        count = len(layer.variants)
        table.add_row(
            _line(layer.name),
            _line(layer.op if count == 1 else f"{layer.op} ({count} variants)"),
            _line(shapes_text(layer)),
            f"{layer.flops / 1e9:.3f}",
            *(f"{ns / 1e6:.3f}" for ns in row),
            f"{row[0] / total:.1%}",
        )
    sums = [f"{sum(t[i] for t in times) / 1e6:.3f}" for i in range(len(cores))]
    gflop = sum(layer.flops for layer in manifest.layers) / 1e9
    table.add_section()
    table.add_row(_line("sum of layers"), "", "", f"{gflop:.3f}", *sums, "100.0%")
    whole = [f"{row[0] / 1e6:.3f}" for row in manifest.profile.model_ns]
    table.add_row(_line("whole run"), "", "", "", *whole, "")
    table.caption = f"ms/N: median on N cores of {manifest.profile.machine.get('cpu', '?')}"
    return table


def levels_text(manifest: Manifest) -> list[str]:
    """A line for each interference level of the profile and what was measured; none for one."""
    profile = manifest.profile
    if len(profile.levels) == 1:
        return []
    lines = []
    made = profile.interference
    for level, slowdown in enumerate(profile.levels):
        times = ", ".join(
            f"{row[level] / 1e6:.3f} ms on {count}"
            for count, row in zip(profile.cores, profile.model_ns, strict=True)
        )
        rate = f", {_rate(made, level)}" if made else ""
        lines.append(f"level {level} (slow-down {slowdown:.3f}{rate}): whole run {times}")
    if made and made.measured_cores < profile.cores[-1]:
        lines.append(
            f"on more than {made.measured_cores} cores, times above level 0 are estimated: slowed "
            f"as on {made.measured_cores}"
        )
    return lines


def _rate(made: Interference, level: int) -> str:
    if made.evicted_share:
        return f"evictors of {made.evicted_share[level]:.0%} of the weights"
    return f"bubbles at {made.bytes_per_s[level] / 1e9:.2f} GB/s"


def batches_text(manifest: Manifest) -> list[str]:
    """A line for each batch: its time a sample, and that over one sample's; none without."""
    lines = []
    cores, alone = manifest.profile.cores, manifest.profile.model_ns
    for batch in manifest.batches:
        times = ", ".join(
            f"{row[0] / batch.size / 1e6:.3f} ms on {count} ({row[0] / batch.size / one[0]:.2f})"
            for count, row, one in zip(cores, batch.profile.model_ns, alone, strict=True)
        )
        lines.append(f"batch {batch.size}: a sample takes {times} of a sample's time alone")
    return lines


def table_console() -> Console:
    """A console as wide as the terminal; wide enough for every column where there is none."""
    return Console() if sys.stdout.isatty() else Console(width=_WIDE)


def shapes_text(layer: Layer) -> str:
    """The layer's first input and its output, e.g. `1x64x56x56 -> 1x256x56x56`; `?` is any size."""
    first = _sizes(layer.input_shapes[0]) if layer.input_shapes else "constants"
    return f"{first} -> {', '.join(map(_sizes, layer.output_shapes))}"


def _line(text: str) -> Text:
    """The text on one line, which ends with an ellipsis where there is no room for all of it."""
    return Text(text, no_wrap=True, overflow="ellipsis")


def _sizes(shape: tuple[int, ...]) -> str:
    return "x".join("?" if size < 0 else str(size) for size in shape) or "scalar"


def _times_ns(manifest: Manifest, layer: int) -> list[int]:
    """The layer's median time at each core count: first variant, no interference."""
    return [levels[0] for levels in manifest.profile.layer_ns[layer][0]]
