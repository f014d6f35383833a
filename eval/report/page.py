"""Renders a report as one HTML page that needs nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from veltair.compiler.fallback_summary import fallback_share
from veltair.compiler.versions import MOST_LOSS, MOST_LOSS_ALONE
from veltair.eval.page import document
from veltair.eval.report import figures

if TYPE_CHECKING:
    from veltair.eval.report.layers import ModelReport


def render(report: ModelReport) -> str:
    """Returns the page: style, script and figures are in it, and it may fetch nothing."""
    manifest, profile = report.manifest, report.manifest.profile
    several = any(len(layer.kept) > 1 for layer in report.layers)
    return document.render(
        "veltair.eval.report",
        report=report,
        manifest=manifest,
        fallen=[layer for layer in manifest.layers if layer.fallback is not None],
        fallen_share=fallback_share(manifest),
        profile=profile,
        estimated=profile.interference is not None
        and profile.interference.measured_cores < profile.cores[-1],
        most_loss=MOST_LOSS,
        most_loss_alone=MOST_LOSS_ALONE,
        largest_share=max(layer.share for layer in report.layers),
        figures={
            "time": figures.time_by_layer(report),
            "versions": figures.versions_per_layer(report),
            "loss": figures.model_loss(report) if several else None,
        },
        layer_figures=[
            {
                "samples": figures.layer_samples(layer),
                "levels": figures.layer_levels(layer, report.levels),
                "loss": figures.layer_loss(layer),
            }
            for layer in report.layers
        ],
        numbers={
            "samples": sum(len(layer.samples) for layer in report.layers),
            "dropped": sum(layer.search.dropped for layer in report.layers if layer.search),
            "failed": sum(s.status == "failed" for layer in report.layers for s in layer.samples),
            "filtered": sum(
                s.status == "filtered" for layer in report.layers for s in layer.samples
            ),
            "frontier": sum(len(layer.frontier) for layer in report.layers),
            "chosen": sum(s.is_chosen for layer in report.layers for s in layer.samples),
            "removed": sum(len(layer.removed) for layer in report.layers),
            "versions": sum(len(layer.versions) for layer in report.layers),
        },
    )
