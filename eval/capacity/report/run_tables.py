"""The tables about an evaluation's runs, shown on its page and written as CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING

from veltair.eval.capacity.report.findings import UNDER_LOAD, Findings, median
from veltair.eval.page.table import Table, counts, numbers, shares, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from veltair.eval.capacity.result import Trial
    from veltair.eval.latency_figures import Figures
    from veltair.eval.page.table import Value

    Row = tuple[Value, ...]

AT = {"at_capacity": "capacity", "at_half": "half of it"}

_WORKLOAD, _SYSTEM, _SETTING = words("workload"), words("system"), words("setting")
_MODEL = words("model")
_RATE = numbers("rate_qps", "offered, queries/s")
_FIGURES = (
    counts("queries"),
    counts("served"),
    counts("refused"),
    counts("failed"),
    shares("satisfied_share", "in time"),
    numbers("mean_ms", "mean, ms"),
    numbers("p50_ms", "p50, ms"),
    numbers("p95_ms", "p95, ms"),
    numbers("p99_ms", "p99, ms"),
    numbers("wait_ms", "wait, ms"),
    numbers("service_ms", "service, ms"),
)


def latency(found: Findings) -> Table:
    """Latencies at capacity and at half of it (Fig. 13), the medians of the runs there."""
    target_ms = {
        (each.name, model.name): model.qos_ns / 1e6
        for each in found.result.workloads
        for model in each.models
    }
    rows: list[Row] = []
    for workload, system, purpose, runs in _runs(found, tuple(AT)):
        for model in dict.fromkeys(name for trial in runs for name in trial.figures):
            of_model = [trial.figures[model] for trial in runs if model in trial.figures]
            alone = found.solo(model, system)
            rows.append(
                (
                    workload,
                    system,
                    AT[purpose],
                    model,
                    median(trial.rate_qps for trial in runs),
                    len(of_model),
                    target_ms.get((workload, model)),
                    *_medians(of_model),
                    alone.mean_ms if alone else None,
                    found.over_solo(workload, system, purpose, model),
                )
            )
    return Table(
        name="latency",
        title="Latency (Fig. 13)",
        columns=(
            _WORKLOAD,
            _SYSTEM,
            words("at"),
            _MODEL,
            _RATE,
            counts("runs"),
            numbers("qos_ms", "target, ms"),
            *_FIGURES,
            numbers("solo_mean_ms", "alone, ms"),
            numbers("mean_over_solo", "mean over alone"),
        ),
        rows=tuple(rows),
    )


def core_usage(found: Findings) -> Table:
    """Fig. 14a: what a query costs in cores' time, by load."""
    rows: list[Row] = []
    for workload, system, purpose, runs in _runs(found, UNDER_LOAD):
        for trial in runs:
            cost, load = found.core_ms(trial), found.load(trial)
            row = (workload, system, purpose, trial.rate_qps, load, trial.core_usage, cost)
            rows.append((*row, found.over_layer_wise(trial)))
    return Table(
        name="core_usage",
        title="Core usage (Fig. 14)",
        columns=(
            _WORKLOAD,
            _SYSTEM,
            words("run"),
            _RATE,
            numbers("load", "over its capacity"),
            shares("core_usage_share", "of all cores"),
            numbers("core_ms_per_query", "core ms a query"),
            shares("over_layer_wise_share", "more than layer-wise"),
        ),
        rows=tuple(rows),
    )


def sweep(found: Findings) -> Table:
    """How many queries are in time as the rate rises."""
    rows: list[Row] = []
    for workload, system, _, runs in _runs(found, ("sweep",)):
        for trial in sorted(runs, key=lambda run: run.rate_qps):
            worst, whole = found.worst(trial), trial.figures.get("all")
            rows.append(
                (
                    workload,
                    system,
                    trial.setting,
                    trial.rate_qps,
                    found.load(trial),
                    worst[1] if worst else None,
                    worst[0] if worst else None,
                    whole.satisfied_share if whole else None,
                    whole.satisfied_qps if whole else None,
                    whole.p95_ms if whole else None,
                    whole.p99_ms if whole else None,
                    whole.refused if whole else None,
                )
            )
    return Table(
        name="sweep",
        title="Load sweeps",
        columns=(
            _WORKLOAD,
            _SYSTEM,
            _SETTING,
            _RATE,
            numbers("load", "over its capacity"),
            shares("worst_model_satisfied_share", "in time, worst model"),
            words("worst_model", "which"),
            shares("satisfied_share", "in time, all"),
            numbers("satisfied_qps", "in time, queries/s"),
            numbers("p95_ms", "p95, ms"),
            numbers("p99_ms", "p99, ms"),
            counts("refused"),
        ),
        rows=tuple(rows),
    )


def grid(found: Findings) -> Table:
    """The settings that each system was tried at."""
    rows: list[Row] = []
    for workload, system, _, runs in _runs(found, ("grid",)):
        chosen = found.capacity(workload, system)
        for setting in dict.fromkeys(trial.setting for trial in runs):
            of_setting = [trial for trial in runs if trial.setting == setting]
            met = [trial.rate_qps for trial in of_setting if trial.met]
            missed = [trial.rate_qps for trial in of_setting if not trial.met]
            is_chosen = chosen is not None and chosen.setting == setting
            row = (workload, system, setting, len(of_setting))
            rows.append((*row, max(met, default=None), min(missed, default=None), is_chosen))
    return Table(
        name="grid",
        title="Settings tried",
        columns=(
            _WORKLOAD,
            _SYSTEM,
            _SETTING,
            counts("runs"),
            numbers("highest_met_qps", "highest rate kept, queries/s"),
            numbers("lowest_missed_qps", "lowest rate missed, queries/s"),
            words("chosen"),
        ),
        rows=tuple(rows),
    )


def trials(found: Findings) -> Table:
    """Every run, a row for each model and one for all."""
    rows: list[Row] = []
    for number, trial in enumerate(found.result.trials):
        beside = trial.disturbance
        run = (
            number,
            trial.workload,
            trial.system,
            trial.setting,
            trial.purpose,
            trial.repetition,
            trial.rate_qps,
            trial.seconds,
            trial.met,
            trial.core_usage,
            trial.late_p99_ms,
            beside.others if beside else None,
            beside.steal if beside else None,
        )
        rows += [(*run, model, *_values(figures)) for model, figures in trial.figures.items()]
    return Table(
        name="trials",
        title="Every run",
        columns=(
            counts("run"),
            _WORKLOAD,
            _SYSTEM,
            _SETTING,
            words("purpose"),
            counts("repetition"),
            _RATE,
            numbers("length_s"),
            words("met"),
            shares("core_usage_share"),
            numbers("driver_late_p99_ms"),
            shares("others_cpu_share"),
            shares("steal_cpu_share"),
            _MODEL,
            *_FIGURES,
        ),
        rows=tuple(rows),
    )


def _runs(
    found: Findings, purposes: tuple[str, ...]
) -> Iterator[tuple[str, str, str, list[Trial]]]:
    for workload in found.workloads:
        for system in found.systems:
            for purpose in purposes:
                runs = found.trials(workload, system, purpose)
                if runs:
                    yield workload, system, purpose, runs


def _values(figures: Figures) -> tuple[float, ...]:
    return tuple(getattr(figures, column.key) for column in _FIGURES)


def _medians(several: list[Figures]) -> tuple[float | None, ...]:
    return tuple(median(values) for values in zip(*map(_values, several), strict=True))
