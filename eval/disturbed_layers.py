"""What a profile at several levels of interference says of a model's layers and versions.

Reference: VELTAIR, Fig. 6: what the versions of a layer take at each level; Fig. 7: what a model
loses if its layers keep fewer versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from veltair.compiler.versions import model_losses
from veltair.eval.report.layers import model_report

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from veltair.compiler.search.samples import SearchReport
    from veltair.eval.report.layers import LayerReport, ModelReport
    from veltair.runtime.manifest import Manifest

_SHOWN = 3  # layers of a model
_LEAST_SHARE = 0.001  # of the model's time: what is shorter is noise


def disturbed(manifest: Manifest, search: SearchReport | None) -> dict[str, Any] | None:
    """Sums a profile up, on the most cores that were measured beside co-runners.

    Args:
        manifest: of the profile.
        search: of the artifact, which has the versions that the profile showed to be spare.

    Returns:
        `cores`; `model_slowdown`, of a whole run at each level; `layers`, those that lose most at
        the highest level, each with its versions' times; `losses`: float[kept - 1][level], what
        the sum of the layers loses if each keeps so many versions at most. None for a profile of
        one level.
    """
    if len(manifest.profile.levels) < 2:
        return None
    report = model_report(manifest, search)
    column = manifest.profile.cores.index(report.cores)
    shown = [i for i, each in enumerate(report.conditions) if each.cores == column]
    whole = manifest.profile.model_ns[column]
    layers = [each for each in report.layers if each.share >= _LEAST_SHARE]
    layers.sort(key=_slowdown, reverse=True)
    return {
        "cores": report.cores,
        "model_slowdown": [ns / whole[0] - 1 for ns in whole],
        "layers": [_row(each) for each in layers[:_SHOWN]],
        "losses": _losses(report, shown),
    }


def _losses(report: ModelReport, shown: Sequence[int]) -> list[list[float]]:
    rows = model_losses([layer.kept for layer in report.layers])
    return [[row[i] for i in shown] for row in rows]


def _slowdown(layer: LayerReport) -> float:
    """Of the version that is fastest alone, at the highest level."""
    alone = min(layer.versions, key=lambda version: version.disturbed_ns[0])
    return alone.disturbed_ns[-1] / alone.disturbed_ns[0] - 1


def _row(layer: LayerReport) -> dict[str, Any]:
    return {
        "number": layer.number,
        "op": layer.op,
        "share": layer.share,
        "slowdown": _slowdown(layer),
        "versions": [
            {"id": version.id, "ns": list(version.disturbed_ns)} for version in layer.versions
        ],
    }


def disturbed_report(models: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns lines of Markdown on the models that were measured at several levels.

    Args:
        models: each with `model`, `measured_levels`, and what `disturbed` returned.
    """
    told = [model for model in models if model["disturbed_layers"] is not None]
    if not told:
        return []
    lines = [
        "",
        "### What interference costs each network",
        "",
        "| model | cores | whole run longer at the highest level | with one version a layer, "
        "loss alone | at the highest level | with two |",
        "|---|---|---|---|---|---|",
    ]
    for model in told:
        found = model["disturbed_layers"]
        one, two = found["losses"][0], found["losses"][min(1, len(found["losses"]) - 1)]
        lines.append(
            f"| {model['model']} | {found['cores']} | {found['model_slowdown'][-1]:.1%} | "
            f"{one[0]:.2%} | {one[-1]:.2%} | {two[-1]:.2%} |"
        )
    lines += [
        "",
        "The loss is that of all layers' times together over what the best version of each takes "
        "under each condition (Fig. 7 of the paper).",
        "",
        "### The layers that lose most",
        "",
        "Of each network those that are slowed most at the highest level, by the version that is "
        "fastest alone; microseconds at each level by each version (Fig. 6 of the paper).",
        "",
        "| model | layer | of the run | slowed by | versions: us at each level |",
        "|---|---|---|---|---|",
    ]
    for model in told:
        for row in model["disturbed_layers"]["layers"]:
            versions = "<br>".join(
                f"`{version['id']}` {', '.join(f'{ns / 1e3:.0f}' for ns in version['ns'])}"
                for version in row["versions"]
            )
            lines.append(
                f"| {model['model']} | {row['number']} {row['op']} | {row['share']:.1%} | "
                f"{row['slowdown']:.0%} | {versions} |"
            )
    return lines
