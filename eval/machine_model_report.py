"""The machine model's errors as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def report(result: Mapping[str, Any]) -> str:
    """Returns the page of a saved result."""
    return "\n".join(
        [
            "# The machine model against measurement",
            "",
            f"`{result['command']}`",
            "",
            "An error is |predicted / measured - 1| of a variant's time on some cores at a level.",
            "What kernels reach of a core's peak is one figure an algorithm, fitted on every",
            f"second layer on {result['fitted_on']}; all errors are those of the other layers.",
            "",
            f"## Here: {result['measured_on']}",
            "",
            *_here(result),
            "",
            f"## The paper's layers on the {result['paper']['machine']}",
            "",
            *_paper(result["paper"]),
            "",
        ]
    )


def _here(result: Mapping[str, Any]) -> list[str]:
    lines = []
    if result["disturbed"]:
        lines += [
            f"Left out of the errors: {', '.join(result['disturbed'])}, whose profiles were "
            "disturbed: a whole run was slower on more cores.",
            "",
        ]
    rows = [{"what": "all", **result["all"]}]
    if result["long"] is not None:
        name = f"layers of at least {result['long_ns'] // 1000} us"
        rows.append({"what": name, **result["long"]})
    levels = {row["nearest_level"] for row in result["by_cores_and_level"]}
    if levels == {0.0}:
        lines += [
            "The profiles have one level, alone, so nothing is said here of times under "
            "interference.",
            "",
        ]
    return [
        *lines,
        *_errors(rows, "what"),
        "",
        *_errors(result["by_cores_and_level"], "cores", "nearest_level"),
        "",
        *_errors(result["by_algorithm"], "algorithm", "cores"),
        "",
        "By what decides in the model:",
        "",
        *_errors(result["by_bound"], "bound", "cores"),
        "",
        "Each model by what the others' kernels reach alone, with all of its layers, but for "
        "algorithms that no other model has. Where the others have one only in layers of another "
        "kind, as matrix products of a single row, the share is of those, and wrong for this one:",
        "",
        *_errors(result["by_left_out_model"], "model", "cores"),
        "",
        "Whole runs, each layer by its first variant (layers fitted on included):",
        "",
        "| model | cores | level | measured ms | predicted ms | ratio |",
        "|---|---|---|---|---|---|",
        *(
            f"| {row['model']} | {row['cores']} | {row['level']:.2f} | "
            f"{row['measured_ns'] / 1e6:.2f} | {row['predicted_ns'] / 1e6:.2f} | "
            f"{row['ratio']:.2f} |"
            for row in result["whole_runs"]
        ),
    ]


def _paper(paper: Mapping[str, Any]) -> list[str]:
    held_out, fitted = paper["held_out"], paper["fitted"]
    return [
        f"Fitted on {paper['fitted_layers']} layers: kernels reach {paper['share']:.2f} of a "
        f"core's peak, a launch costs {paper['launch_core_ns']:.0f} ns for each core beyond the "
        f"first. On the other {paper['held_out_layers']}: median error "
        f"{held_out['error_p50']:.0%}, 90th percentile {held_out['error_p90']:.0%} (on those "
        f"fitted {fitted['error_p50']:.0%}, {fitted['error_p90']:.0%}), without all of the cores, "
        "on which most layers were slower than on fewer. `sum` is the predicted time of the layers "
        "that weren't fitted, together, over the measured one.",
        "",
        "| cores | sum | median error | 90th percentile |",
        "|---|---|---|---|",
        *(
            f"| {row['cores']} | {row['sum_ratio']:.2f} | {row['error_p50']:.0%} | "
            f"{row['error_p90']:.0%} |"
            for row in paper["by_cores"]
        ),
    ]


def _errors(rows: Sequence[Mapping[str, Any]], *names: str) -> list[str]:
    titles = [name.replace("_", " ") for name in names]
    return [
        "| " + " | ".join([*titles, "n", "median error", "90th percentile", "ratio"]) + " |",
        "|---" * (len(names) + 4) + "|",
        *(
            "| "
            + " | ".join(
                [
                    *(f"{row[name]}" for name in names),
                    f"{row['count']}",
                    f"{row['error_p50']:.0%}",
                    f"{row['error_p90']:.0%}",
                    f"{row['ratio_p50']:.2f}",
                ]
            )
            + " |"
            for row in rows
        ),
    ]
