"""Draws the figures that `granularity` computes; needs the extra `figures` (matplotlib)."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from veltair.eval.figures.granularity import POLICIES, RATES, Allocation, CoreUse, Point

# Reproducible files: no date, no random identifiers.
mpl.rcParams["svg.hashsalt"] = "veltair"
_METADATA = {"Date": None}


def draw_rates(folder: Path, points: list[Point]) -> None:
    """Fig. 3a, 3b and 5a: satisfaction, latency and conflicts over the rate."""
    figure, axes = _figure(3)
    columns = (
        ("Fig. 3a: satisfied (%)", "satisfied", 100),
        ("Fig. 3b: mean latency (ms)", "mean_ms", 1),
        ("Fig. 5a: conflict rate (%)", "conflict_rate", 100),
    )
    for axis, (title, metric, factor) in zip(axes, columns, strict=True):
        for policy, marker in zip(POLICIES, "osv^D", strict=True):
            heights = [getattr(p, metric) * factor for p in points if p.policy == policy]
            axis.plot(RATES, heights, marker=marker, label=policy, alpha=0.8)
        axis.set_title(title)
        axis.set_xlabel("queries/s")
    # The two values that the paper's text gives.
    axes[1].plot([300], [21.4], "k*", label="paper's text, layer")
    axes[2].plot([300], [23.8], "k*", label="paper's text, layer")
    axes[2].legend()
    axes[1].legend()
    _save(figure, folder / "veltair_fig3_fig5a.svg")


def draw_allocation(folder: Path, shown: Allocation) -> None:
    """Fig. 4b and 10a: cores by layer, and the blocks that the threshold makes of them."""
    figure, (axis,) = _figure(1)
    layers = range(len(shown.demand))
    axis.bar(layers, shown.demand, width=1.0, color="tab:red", alpha=0.4, label="layer-wise")
    axis.axhline(shown.average, color="black", label="model-wise (Avg_C)")
    axis.axhline(
        shown.average + shown.threshold, color="tab:blue", linestyle="--", label="Avg_C + threshold"
    )
    cores = [
        block
        for begin, end, block in zip(
            (0, *shown.ends[:-1]), shown.ends, shown.block_cores, strict=True
        )
        for _ in range(begin, end)
    ]
    axis.step(layers, cores, where="mid", color="tab:orange", label="blocks")
    axis.set_title(f"Fig. 4b, 10a: cores by layer, {shown.models} ResNet-50 at once")
    axis.set_xlabel("layer")
    axis.set_ylabel("cores")
    axis.legend()
    _save(figure, folder / "veltair_fig4b_fig10a.svg")


def draw_core_use(folder: Path, use: list[CoreUse]) -> None:
    """Fig. 10b: average and maximum cores of two models at once."""
    figure, (axis,) = _figure(1)
    places = range(len(use))
    axis.bar([p - 0.2 for p in places], [each.average for each in use], width=0.4, label="average")
    axis.bar([p + 0.2 for p in places], [each.maximum for each in use], width=0.4, label="maximum")
    axis.set_xticks(list(places), [each.policy for each in use])
    axis.set_title("Fig. 10b: cores of two ResNet-50")
    axis.legend()
    _save(figure, folder / "veltair_fig10b.svg")


def _figure(columns: int) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(5.5 * columns, 4), layout="constrained")
    return figure, [figure.add_subplot(1, columns, column + 1) for column in range(columns)]


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, metadata=_METADATA)
