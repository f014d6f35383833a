"""The tables of `eval/results/proxy_accuracy.md`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Result = dict[str, Any]

_INTRODUCTION = """\
# How well counters tell the interference level

Made by `{command}`, revision {revision}.
Every figure is of layers that the model hasn't seen: cross-validated by layer, features and
penalties chosen within the other folds. R2 and mean absolute error (in levels) over all folds, in
brackets the lowest and the highest fold. `two`: the L3's miss rate and accesses, the paper's two
counters. `told`: the level that fits our own blocks, as it is. `chosen`: the best linear model of
at most three features, or what is told, if that does as well. `all`, `ridge`: linear in all
features. `boosted`: trees, the bound of what the data holds.
"""

_SIMULATED = """\
## Simulated: {source}

Drawn layers, levels up to {highest_level:.2f}; `eval/simulated_counters.py` has the model and its
limits: nothing here is measured. `perf-task` counts what the layer does itself, `perf-uncore` what
all do that share its cache.
"""

_MEASURED = """\
## Measured: {cpu}, {cores} cores

Layers of {artifacts} beside {co_runner}, {minutes:.0f} minutes; {rounds_kept} of {rounds} rounds
kept, the control within {drift:.0%}. Levels up to {highest_level:.2f}, off by {noise:.3f}, usually.
"""

_NOT_MEASURED = """\
No calibration's record was given (`--record`), so nothing here is measured.
"""
_SHOWN_LAYERS = 12
_SHOWN_LOADINGS = 4


def report(result: Result) -> str:
    """Returns the page."""
    return "\n".join(_parts(result))


def _parts(result: Result) -> Iterator[str]:
    yield _INTRODUCTION.format(**result)
    here = result["measured"]
    if here is None:
        yield _NOT_MEASURED
    else:
        yield _MEASURED.format(
            **{**here, "artifacts": ", ".join(here["artifacts"])},
            cpu=here["machine"]["cpu"],
            cores=here["machine"]["cores"],
        )
        yield from _sections(here)
        yield from _layer_lines(here)
    for source, found in result["simulated"].items():
        yield _SIMULATED.format(source=source, **found)
        yield from _sections(found)


def _sections(found: Result) -> Iterator[str]:
    for kind, heading in (("single", "single layers"), ("windows", "windows of several layers")):
        part = found[kind]
        sets = "layers" if kind == "single" else "sets of layers"
        yield f"### Rows of {heading}: {part['rows']}, of {part['layers']} {sets}\n"
        yield from _section(part)


def _section(found: Result) -> Iterator[str]:
    yield "| sources | model | R2 | error |"
    yield "|---|---|---|---|"
    for sources, kinds in found["kinds"].items():
        for kind, accuracy in kinds.items():
            named = f"{kind}: {', '.join(found['chosen'][sources])}" if kind == "chosen" else kind
            yield (
                f"| {sources} | {named} | {_folds(accuracy, 'r2', '.2f')} | "
                f"{_folds(accuracy, 'mae', '.3f')} |"
            )
    yield "\n| component | of the features' variance | of the level's | strongest loadings |"
    yield "|---|---|---|---|"
    for number, component in enumerate(found["components"], start=1):
        strongest = sorted(component["loadings"].items(), key=lambda each: -abs(each[1]))
        named = ", ".join(f"{name} {value:+.2f}" for name, value in strongest[:_SHOWN_LOADINGS])
        yield (
            f"| {number} | {component['explained']:.1%} | {component['level_r2']:.1%} | {named} |"
        )
    yield f"\nWhat the chosen features of {found['best']} say, held out:\n"
    yield "| level | rows | told: median | 10th to 90th percentile |"
    yield "|---|---|---|---|"
    for each in found["told"]:
        told = each["told"]
        yield (
            f"| {each['level']:.3f} | {each['rows']} | {told['p50']:.3f} | {told['p10']:.3f} to "
            f"{told['p90']:.3f} |"
        )
    yield ""


def _layer_lines(found: Result) -> Iterator[str]:
    yield "What layers lose beside what disturbs most, over their versions and rounds:\n"
    yield "| layer | slow-down: median | 10th to 90th percentile |"
    yield "|---|---|---|"
    for each in found["slowdowns"][:_SHOWN_LAYERS]:
        lost = each["slowdown"]
        yield (f"| {each['layer']} | {lost['p50']:.1%} | {lost['p10']:.1%} to {lost['p90']:.1%} |")
    yield ""


def _folds(accuracy: Result, what: str, form: str) -> str:
    folds = accuracy[f"{what}_folds"]
    return f"{accuracy[what]:{form}} ({min(folds):{form}} to {max(folds):{form}})"
