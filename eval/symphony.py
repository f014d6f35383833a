"""Symphony's Table 2 and Figures 2, 6a, 6b: `python -m veltair.eval.symphony [--quick]`.

Writes `eval/results/symphony.json`, its tables beside the paper's values in `symphony.md`, and the
points of Figures 6a and 6b in `symphony_fig6?.csv`. It is all simulated, so no figure depends on
the machine; the whole takes some minutes on one core.
"""

from __future__ import annotations

import csv
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from veltair.eval.record import provenance, write_result
from veltair.eval.symphony_profiles import device_model, symphony_profiles
from veltair.eval.symphony_report import report
from veltair.runtime._native import sched
from veltair.runtime.errors import VeltairError
from veltair.runtime.simulate.arrivals import generate_arrivals
from veltair.runtime.simulate.device_capacity import device_capacity
from veltair.runtime.simulate.device_simulation import DeviceModel, DevicePolicy, simulate_devices
from veltair.runtime.simulate.scenario import ArrivalsSection

RESULTS = Path("eval/results")
DEVICES = 8
PERCENT = 70  # DevicePolicy's default for `deferred`
PERCENTS = (0, 50, 60, 70, 80, 90, 100)
TIMEOUT_SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
BETAS_MS = (1, 2, 3, 5, 7, 9, 11, 13, 15)
LOADS = (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0)


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How long and how often each point is simulated.

    Attributes:
        queries: of each run; the first fiftieth is warm-up.
        seeds: how many searches a capacity is the median of.
        tolerance: of a search, as a share of the rate.
    """

    queries: int
    seeds: int
    tolerance: float

    def arrivals(self, rate_qps: float = 1.0) -> ArrivalsSection:
        """Returns what arrives at a rate, from the first seed."""
        return ArrivalsSection(
            rate_qps=rate_qps, queries=self.queries, warmup_queries=self.queries // 50, seed=0
        )

    def capacity(
        self, models: Sequence[DeviceModel], devices: int, policy: DevicePolicy
    ) -> dict[str, Any]:
        """Returns the goodput of a policy, and what its batches were at that rate."""
        found = device_capacity(
            models,
            self.arrivals(),
            devices=devices,
            policy=policy,
            seeds=self.seeds,
            tolerance=self.tolerance,
        )
        figures = [kept.summary() for kept in found.kept]
        names = ("satisfied_qps", "batch_size_median", "query_batch_size_median")
        return {
            "capacity_qps": found.capacity_qps,
            "by_seed_qps": found.by_seed_qps,
            **{name: _median(figures, name) for name in (*names, "device_idle_share")},
        }

    def run(
        self, models: Sequence[DeviceModel], devices: int, policy: DevicePolicy, rate_qps: float
    ) -> dict[str, Any]:
        """Returns the figures at a rate, of all models together."""
        asked = self.arrivals(rate_qps)
        summary = simulate_devices(
            models,
            generate_arrivals(asked, [1] * len(models)),
            devices=devices,
            policy=policy,
            warmup_queries=asked.warmup_queries,
        ).summary()
        del summary["models"]
        return summary


@dataclass(frozen=True, kw_only=True)
class PaperRow:
    """A row of the paper's Table 2.

    Attributes:
        model: with its latency on the paper's GPU and its target.
        no_coordination: batch size and throughput that the paper computes.
        staggered: the same, of staggered execution.
        goodput_qps: that the paper measured, by system.
        batch_size_median: of each system (§2.2).
    """

    model: DeviceModel
    no_coordination: tuple[int, int]
    staggered: tuple[int, int]
    goodput_qps: dict[str, int]
    batch_size_median: dict[str, int]


PAPER = (
    PaperRow(
        model=device_model("ResNet50", 1.053, 5.072, 25),
        no_coordination=(7, 4501),
        staggered=(16, 5839),
        goodput_qps={"Symphony": 5264, "Clockwork": 1358, "Nexus": 4027, "Shepherd": 4445},
        batch_size_median={"Symphony": 14, "Clockwork": 1, "Nexus": 6, "Shepherd": 9},
    ),
    PaperRow(
        model=device_model("InceptionResNetV2", 5.090, 18.368, 70),
        no_coordination=(3, 713),
        staggered=(8, 1083),
        goodput_qps={"Symphony": 926, "Clockwork": 458, "Nexus": 618, "Shepherd": 778},
        batch_size_median={"Symphony": 8, "Clockwork": 1, "Nexus": 2, "Shepherd": 4},
    ),
)


def table2_row(row: PaperRow, effort: Effort) -> dict[str, Any]:
    """Returns one model of Table 2: the paper's values, the two bounds, and our policies."""
    models = [row.model]
    policies = {
        "deferred, giving up": DevicePolicy(),
        "deferred, prefix": DevicePolicy(least_batch_percent=0),
        "eager, giving up": DevicePolicy(batching="eager", least_batch_percent=PERCENT),
        "eager, prefix": DevicePolicy(batching="eager"),
        "none": DevicePolicy(batching="none"),
    }
    paper_qps = row.goodput_qps["Symphony"]
    return {
        "model": row.model.name,
        "paper": {
            "goodput_qps": row.goodput_qps,
            "batch_size_median": row.batch_size_median,
            "no_coordination": row.no_coordination,
            "staggered": row.staggered,
        },
        "bounds": {
            "no_coordination": analysis(row.model, 1),
            "staggered": analysis(row.model, DEVICES),
        },
        "policies": {
            name: effort.capacity(models, DEVICES, policy) for name, policy in policies.items()
        },
        "at_papers_goodput": effort.run(
            models, DEVICES, policies["deferred, giving up"], paper_qps
        ),
        "least_batch_percent": [
            {
                "percent": percent,
                **{
                    batching: effort.capacity(
                        models,
                        DEVICES,
                        DevicePolicy(batching=batching, least_batch_percent=percent),
                    )["capacity_qps"]
                    for batching in ("deferred", "eager")
                },
            }
            for percent in PERCENTS
        ],
        "timeout": timeouts(models, DEVICES, effort),
    }


def analysis(model: DeviceModel, executors: int) -> dict[str, float]:
    """Returns the paper's analysis: batch size, and throughput of all devices at that size."""
    size = sched.staggered_batch(model.cost(), slo_ns=model.slo_ns, executors=executors)
    return {"batch_size": size, "qps": DEVICES * size * 1e9 / model.cost().time(size)}


def timeouts(models: Sequence[DeviceModel], devices: int, effort: Effort) -> list[dict[str, Any]]:
    """Returns the goodput of `timeout` at several timeouts, each a share of a model's target."""
    found = []
    for share in TIMEOUT_SHARES:
        timed = [replace(model, timeout_ns=round(share * model.slo_ns)) for model in models]
        point: dict[str, Any] = {"timeout_share": share}
        for name, least in (("prefix", 0), ("giving_up", PERCENT)):
            policy = DevicePolicy(batching="timeout", least_batch_percent=least)
            point[name] = effort.capacity(timed, devices, policy)["capacity_qps"]
        found.append(point)
    return found


def figure_6a(effort: Effort) -> list[dict[str, Any]]:
    """Returns eager's goodput beside deferred's: 10 models of alpha 1 ms, 32 devices."""
    points = []
    for beta_ms in BETAS_MS:
        model = device_model("synthetic", 1, beta_ms, 2 * (8 + beta_ms))
        models = [replace(model, name=f"synthetic{i}") for i in range(10)]
        point: dict[str, Any] = {"beta_over_alpha": beta_ms}
        for batching in ("deferred", "eager"):
            for name, least in (("prefix", 0), ("giving_up", PERCENT)):
                policy = DevicePolicy(batching=batching, least_batch_percent=least)
                found = effort.capacity(models, 32, policy)
                point[f"{batching}_{name}_qps"] = found["capacity_qps"]
        for name in ("prefix", "giving_up"):
            point[f"ratio_{name}"] = point[f"eager_{name}_qps"] / point[f"deferred_{name}_qps"]
        points.append(point)
    return points


def figure_6b(effort: Effort) -> dict[str, Any]:
    """Returns timeout's goodput beside deferred's: one model on 8 devices, 37 on 64."""
    cases = {
        "ResNet50, 50 ms, 8 devices": ([device_model("ResNet50", 1.053, 5.072, 50)], DEVICES),
        "37 models, 64 devices": (symphony_profiles("a100"), 64),
    }
    return {
        name: {
            "deferred": effort.capacity(models, devices, DevicePolicy()),
            "deferred_prefix": effort.capacity(
                models, devices, DevicePolicy(least_batch_percent=0)
            ),
            "timeout": timeouts(models, devices, effort),
        }
        for name, (models, devices) in cases.items()
    }


def figure_2(effort: Effort) -> dict[str, Any]:
    """Returns goodput and idle devices over the load: 10 ResNet-50, 100 ms, 24 devices (A100)."""
    resnet = next(model for model in symphony_profiles("a100") if model.name == "ResNet50")
    models = [replace(resnet, name=f"ResNet50.{i}", slo_ns=100_000_000) for i in range(10)]
    policies = {
        "deferred, giving up": DevicePolicy(),
        "eager, prefix": DevicePolicy(batching="eager"),
    }
    peak_qps = effort.capacity(models, 24, policies["deferred, giving up"])["capacity_qps"]
    points = []
    for load in LOADS:
        point: dict[str, Any] = {"load": load, "offered_qps": load * peak_qps}
        for name, policy in policies.items():
            found = effort.run(models, 24, policy, load * peak_qps)
            point[name] = {k: found[k] for k in ("satisfied_share", "device_idle_share")}
        points.append(point)
    return {"capacity_qps": peak_qps, "points": points}


def command(
    quick: Annotated[bool, typer.Option(help="Shorter runs, one seed: for a look.")] = False,
    folder: Annotated[Path, typer.Option(help="Where to write the results.")] = RESULTS,
) -> None:
    """Simulate Symphony's Table 2 and Figures 2, 6a and 6b."""
    folder.mkdir(parents=True, exist_ok=True)
    effort = Effort(queries=300_000, seeds=3, tolerance=0.005)
    if quick:
        effort = Effort(queries=30_000, seeds=1, tolerance=0.02)
    result = provenance(shlex.join(["python", "-m", "veltair.eval.symphony", *sys.argv[1:]]))
    result["effort"] = vars(effort)
    result["table_2"] = [table2_row(row, effort) for row in PAPER]
    result["figure_6a"] = figure_6a(effort)
    result["figure_6b"] = figure_6b(effort)
    result["figure_2"] = figure_2(effort)
    write_result(folder / "symphony.json", result)
    _write_points(folder / "symphony_fig6a.csv", result["figure_6a"])
    _write_points(
        folder / "symphony_fig6b.csv",
        (
            {"case": name, "deferred_qps": case["deferred"]["capacity_qps"], **point}
            for name, case in result["figure_6b"].items()
            for point in case["timeout"]
        ),
    )
    text = report(result)
    (folder / "symphony.md").write_text(text, encoding="utf-8")
    print(text)


def _median(figures: Sequence[dict[str, Any]], name: str) -> float | None:
    return float(np.median([each[name] for each in figures])) if figures else None


def _write_points(path: Path, points: Iterable[dict[str, Any]]) -> None:
    rows = list(points)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    """Entry point of `python -m veltair.eval.symphony`."""
    try:
        typer.run(command)
    except VeltairError as error:
        print(f"symphony: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
