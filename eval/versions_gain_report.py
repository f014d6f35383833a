"""Which layers gain from a second version, as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from veltair.eval.disturbed_layers import disturbed_report

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SHOWN = 5  # layers of a model and machine


def report(result: Mapping[str, Any]) -> str:
    """Returns the page of a saved result."""
    least = result["least_gain"]
    lines = [
        "# Which layers gain from a second version",
        "",
        f"`{result['command']}`",
        "",
        f"A layer gains where the version that is fastest there is at least {least:.0%} faster",
        "than the one that is fastest alone on as many cores.",
        "",
        f"## Measured on {result['measured_on']}",
        "",
        *_measured(result["models"]),
        *disturbed_report(result["models"]),
    ]
    for name, machine in result["machines"].items():
        lines += [
            "",
            f"## By the machine model: {name}, {machine['cores']} cores, "
            f"{machine['total_gbps']:g} GB/s",
            "",
            f"Levels up to {machine['levels'][-1]:.2f}. A layer is counted at the most bandwidth, "
            "of all and of the parts that were tried, with which it gains on any core count; "
            "`from` is the fewest cores on which it then does.",
            "",
            *_modelled(result["models"], name, result["bandwidths"]),
        ]
    return "\n".join(lines) + "\n"


def _measured(models: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [
        "| model | layers | with several versions | beside | levels | layers that gain | most |",
        "|---|---|---|---|---|---|---|",
    ]
    for model in models:
        found = model["measured"]
        cells = ["not measured", "-"]
        if found is not None:
            cells = [str(len(found)), f"{max((row['gain'] for row in found), default=0.0):.0%}"]
        levels = ", ".join(f"{level:.2f}" for level in model["measured_levels"])
        lines.append(
            f"| {model['model']} | {model['layers']} | {model['several_versions']} | "
            f"{model['co_runner']} | {levels} | " + " | ".join(cells) + " |"
        )
    if any(model["measured"] is None for model in models):
        lines += [
            "",
            "A profile of one level was measured alone: no level could be told apart from it, or "
            "none was asked for, so it says nothing of a second version.",
        ]
    if any(model["co_runner"] == "evictors" for model in models):
        lines += [
            "",
            "Evictors stand in for co-runners where no bubble of the machine's own disturbs "
            "anybody: a share of the weights isn't in any cache when it is read. Activations are, "
            "and memory has all its bandwidth, so other machines' layers may lose more, and gain "
            "more.",
        ]
    disturbed = [model["model"] for model in models if model["disturbed"]]
    if disturbed:
        lines += ["", f"Disturbed while they were measured: {', '.join(disturbed)}."]
    return lines


def _modelled(
    models: Sequence[Mapping[str, Any]], machine: str, bandwidths: Sequence[float]
) -> list[str]:
    heading = " | ".join(f"at {part:g} of it" for part in bandwidths)
    lines = [f"| model | {heading} | none |", "|---" * (len(bandwidths) + 2) + "|"]
    for model in models:
        rows = model["modelled"][machine]
        cells = []
        for part in bandwidths:
            of_part = [row for row in rows if row["bandwidth"] == part]
            fewest = min((row["fewest_cores"] for row in of_part), default=0)
            cells.append(f"{len(of_part)}, from {fewest} cores" if of_part else "0")
        none = model["several_versions"] - len(rows)
        lines.append(f"| {model['model']} | " + " | ".join(cells) + f" | {none} |")
    tops = [(model["model"], row) for model in models for row in model["modelled"][machine]]
    tops.sort(key=lambda top: (-top[1]["bandwidth"], -top[1]["gain"]))
    if tops:
        lines += [
            "",
            "The largest gains at the most bandwidth:",
            "",
            "| model | layer | GB/s | cores | level | gain | alone | beside others |",
            "|---|---|---|---|---|---|---|---|",
            *(
                f"| {model} | {row['layer']} {row['op']} | {row['total_gbps']:g} | "
                f"{row['cores']} | {row['level']:.2f} | {row['gain']:.0%} | "
                f"`{row['alone']}` | `{row['beside']}` |"
                for model, row in tops[:_SHOWN]
            ),
        ]
    return lines
