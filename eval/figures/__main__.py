"""`python -m veltair.eval.figures`: simulates and writes the figures into `eval/results`.

`veltair_granularity.json` has every number with the scenario and the revision; the CSV and the
Markdown file have them beside the paper's; the SVG files need the extra `figures`.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from veltair.eval.figures import granularity
from veltair.eval.figures.granularity import RATES, Claim, CoreUse, Overhead, Point
from veltair.eval.record import provenance, write_result
from veltair.runtime.errors import VeltairError

RESULTS = Path("eval/results")
COMMAND = "python -m veltair.eval.figures"
STEM = "veltair_granularity"
CO_LOCATED = 3  # the fewest ResNet-50 whose threshold makes several blocks of one

# What the paper's text says of a point of a figure; its plots are not read off.
PAPER = {
    ("layer", 300, "conflict_rate"): ("0.238", "section 3.2"),
    ("layer", 300, "mean_ms"): ("21.4", "section 3.2"),
}
PAPER_MODEL_GAP = 0.47  # model-wise core usage over layer-wise, section 5.4
_METRICS = (("3a", "satisfied"), ("3b", "mean_ms"), ("5a", "conflict_rate"))


def main() -> int:
    """Computes the figures and writes them."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--queries", type=int, default=30_000, help="of each simulation")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder, made if missing")
    options = parser.parse_args()
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        write(options.out, options.queries)
    except VeltairError as error:
        print(f"figures: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def write(folder: Path, queries: int) -> None:
    """Computes everything and writes the files; drawings only where matplotlib is installed."""
    points = granularity.sweep(queries)
    use = granularity.core_use()
    overheads = granularity.overheads(queries)
    steps = {step: granularity.sweep(queries, core_step=step) for step in (1, 2)}
    wider = granularity.sweep_of_model(queries)
    without = next(each for each in overheads if each.conflict_us == 0)
    found = granularity.claims(points, use, without.mean_ms)
    shown = granularity.allocation(CO_LOCATED)
    result: dict[str, Any] = provenance(f"{COMMAND} --queries {queries}") | {
        "scenario": granularity.resolved(granularity.scenario(queries=queries)),
        "seeds": granularity.SEEDS,
        "points": [asdict(point) for point in points],
        "core_use": [asdict(each) for each in use],
        "allocations": [asdict(granularity.allocation(models)) for models in (1, 2, 3, 4)],
        "overheads": [asdict(each) for each in overheads],
        "model_cores": [asdict(point) for point in wider],
        "core_steps": {step: [asdict(p) for p in swept] for step, swept in steps.items()},
        "claims": [asdict(claim) for claim in found],
    }
    write_result(folder / f"{STEM}.json", result)
    _write_csv(folder / f"{STEM}.csv", points, use)
    text = "\n".join(_markdown(result["command"], points, use, found, overheads, wider, steps))
    (folder / f"{STEM}.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    if importlib.util.find_spec("matplotlib") is None:
        print("no drawings: pip install 'veltair[figures]'", file=sys.stderr)
        return
    from veltair.eval.figures import plots  # noqa: PLC0415 # an optional package

    plots.draw_rates(folder, points)
    plots.draw_allocation(folder, shown)
    plots.draw_core_use(folder, use)


def _write_csv(path: Path, points: list[Point], use: list[CoreUse]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("figure", "policy", "rate_qps", "metric", "ours", "paper", "paper_source"))
        for figure, metric in _METRICS:
            for point in points:
                paper = PAPER.get((point.policy, point.rate_qps, metric), ("", ""))
                value = f"{getattr(point, metric):.5g}"
                rows.writerow((figure, point.policy, point.rate_qps, metric, value, *paper))
        for each in use:
            rows.writerow(("10b", each.policy, "", "average_cores", f"{each.average:.4g}", "", ""))
            rows.writerow(("10b", each.policy, "", "maximum_cores", each.maximum, "", ""))


def _markdown(
    command: str,
    points: list[Point],
    use: list[CoreUse],
    found: list[Claim],
    overheads: list[Overhead],
    wider: list[Point],
    steps: dict[int, list[Point]],
) -> list[str]:
    return [
        "# VELTAIR's scheduling granularity, simulated",
        "",
        f"Made by `{command}`. ResNet-50, {granularity.QOS_MS:g} ms, {granularity.CORES} cores, "
        f"arrivals drawn evenly over the run, means over seeds "
        f"{', '.join(map(str, granularity.SEEDS))}; times from "
        "`eval/data/veltair_3990x_resnet50.csv`. The paper's values are from its text (sections "
        "3.2 and 4.2); its plots are not read off.",
        "",
        "## What the paper says, and ours",
        "",
        "| figure | the paper's text | ours | agrees |",
        "|---|---|---|---|",
        *(
            f"| {each.figure} | {each.paper} | {each.ours} | {'yes' if each.holds else 'no'} |"
            for each in found
        ),
        "",
        "## What explains the differences",
        "",
        *_explanations(points, use, overheads, wider),
        "",
        "| layer, 300 queries/s | mean ms | satisfied % | conflicts % | expansions a conflict |",
        "|---|---|---|---|---|",
        *(
            f"| {each.conflict_us:g} us, {each.expand} | {each.mean_ms:.2f} | "
            f"{each.satisfied * 100:.1f} | {each.conflict_rate * 100:.1f} | "
            f"{each.expansions_per_conflict:.2f} |"
            for each in overheads
        ),
        "",
        "## Fig. 3a: satisfied, %",
        *_table(points, "satisfied", 100),
        "",
        "## Fig. 3b: mean latency, ms (the paper's text: layer at 300: 21.4)",
        *_table(points, "mean_ms", 1),
        "",
        "## Fig. 5a: conflict rate, % (the paper's text: layer at 300: 23.8)",
        *_table(points, "conflict_rate", 100),
        "",
        "## Fig. 10b: cores of two ResNet-50",
        "",
        "| policy | average | maximum |",
        "|---|---|---|",
        *(f"| {each.policy} | {each.average:.1f} | {each.maximum} |" for each in use),
        "",
        "## Sensitivity: whole models on a given number of cores: satisfied, %",
        *_table(wider, "satisfied", 100),
        *(line for step, swept in steps.items() for line in _finer(step, swept)),
    ]


def _explanations(
    points: list[Point], use: list[CoreUse], overheads: list[Overhead], wider: list[Point]
) -> list[str]:
    plan = granularity.allocation(1)
    layer_cores = next(each.average for each in use if each.policy == "layer") / 2
    always, _, free, shorter = overheads
    last = {point.policy: point for point in points if point.rate_qps == RATES[-1]}
    expansions = always.conflict_rate * always.expansions_per_conflict * len(plan.demand)
    direct_ms = expansions * always.conflict_us / 1000
    return [
        f"- Model-wise and fixed blocks. The paper's model-wise plan takes {PAPER_MODEL_GAP:.0%} "
        f"more cores than layer-wise (section 5.4, Fig. 14); by this profile, measured in steps of "
        f"8, {plan.average} cores are enough for the whole model, fewer than the "
        f"{layer_cores:.1f} that layers take on average. {granularity.CORES} is "
        f"a multiple, so `model` meets no conflict here ({last['model'].conflict_rate * 100:.1f} % "
        f"at {RATES[-1]}) and ends well before its target, which leaves room to wait. "
        + _at_the_papers_gap(points, wider, layer_cores),
        f"- Layers need {', '.join(map(str, sorted(set(plan.demand))))} cores for their shares "
        "(the paper: some more than 48). Our shares are in proportion to floating-point operations;"
        " the paper does not say by what it divides the target.",
        f"- Layer-wise latency. Without overhead it is {free.mean_ms:.2f} ms (paper: 18.54). The "
        "paper's 21.4 ms is an estimate that adds 220 us for each conflict to the latency without. "
        f"In the simulation most conflicts end before cores come free "
        f"({always.expansions_per_conflict:.2f} expansions a conflict), so the overhead itself is "
        f"only {direct_ms:.2f} ms a query; but it holds cores, and near saturation others wait for "
        f"them: {always.mean_ms:.2f} ms. Where a block takes cores only if it then ends earlier it "
        f"is {shorter.mean_ms:.2f} ms, with the median overhead (100 us) "
        f"{overheads[1].mean_ms:.2f} ms.",
        "- `veltair-as` is as good as the best policy here by forming few blocks: with measured "
        "counts in steps of 8 hardly a layer stands out. With counts in between (below) every "
        "policy plans its queries to end just in time, so any wait is a miss; `block-11` in "
        "steps of 2 leads by ending earlier, for it rounds the cores of each block up. "
        "Its rule that the rest of the model is one block at a threshold of 0 is ours: the paper's "
        "Algorithm 3 taken literally made a block of nearly every layer there and fell below all "
        "fixed blocks at 300 queries/s, and the rule was chosen after seeing that.",
    ]


def _at_the_papers_gap(points: list[Point], wider: list[Point], layer_cores: float) -> str:
    asked = layer_cores * (1 + PAPER_MODEL_GAP)
    cores = min(granularity.MODEL_CORES, key=lambda count: abs(count - asked))
    best = granularity.best_fixed(points)
    margins = [
        best[point.rate_qps] - point.satisfied
        for point in wider
        if point.policy == granularity.on_cores(cores)
    ]
    at = {(point.policy, point.rate_qps): point.satisfied * 100 for point in wider}
    wide = next(c for c in granularity.MODEL_CORES if c > cores and granularity.CORES % c == 0)
    return (
        f"With the paper's gap it would take {asked:.1f}, so {cores}: against blocks that keep the "
        f"profile's cores, model-wise is then behind the best fixed one by "
        f"{', '.join(f'{margin * 100:.1f}' for margin in margins)} points at the six rates (table "
        f"below). Much of that is that {cores} doesn't divide {granularity.CORES}: "
        f"{granularity.CORES // cores} run at a time and {granularity.CORES % cores} cores idle, "
        f"while on {wide}, as many at a time and faster, {at[granularity.on_cores(wide), 200]:.1f} "
        "% are in time at 200. So the order of the paper's figure can come from the cores that "
        "its model-wise plan takes; which those are, and why, the profile doesn't show."
    )


def _finer(step: int, points: list[Point]) -> list[str]:
    return [
        "",
        f"## Sensitivity: core counts in steps of {step}, times interpolated: satisfied, %",
        *_table(points, "satisfied", 100),
    ]


def _table(points: list[Point], metric: str, factor: float) -> list[str]:
    at = {(point.policy, point.rate_qps): getattr(point, metric) * factor for point in points}
    return [
        "",
        "| policy | " + " | ".join(map(str, RATES)) + " |",
        "|---" * (len(RATES) + 1) + "|",
        *(
            f"| {policy} | " + " | ".join(f"{at[policy, rate]:.1f}" for rate in RATES) + " |"
            for policy in dict.fromkeys(point.policy for point in points)
        ),
    ]


if __name__ == "__main__":
    sys.exit(main())
