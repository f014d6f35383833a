"""Emulated devices under a simulated clock: what a batching policy keeps of its models' targets.

A device runs one batch at a time; a batch of b queries takes `alpha_ns * b + beta_ns`. The policies
are the native ones that servers use; this module checks what they are given and counts what came
out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veltair.runtime._native import devices as native
from veltair.runtime._native import sched
from veltair.runtime.errors import ConfigError
from veltair.runtime.record import Line, make_batcher_line, make_header, recording
from veltair.runtime.simulate.arrivals import Arrivals

LONGEST_MS = 1_800_000.0
MOST_DEVICES = 1 << 16
_DROPS = {
    "deadline": native.DROPPED_DEADLINE,
    "queue_full": native.DROPPED_QUEUE_FULL,
    "given_up": native.DROPPED_GIVEN_UP,
}


@dataclass(frozen=True, kw_only=True)
class DeviceModel:
    """A model as its devices run it.

    Attributes:
        name: in results.
        alpha_ns: what each query adds to a batch's time, from 0.
        beta_ns: what a batch takes beside that, from 0; not both are 0.
        slo_ns: latency target from the arrival; 0: none.
        weight: its part of the arrivals, compared with the other models'.
        max_batch: the largest batch; None: any.
        timeout_ns: for the policy `timeout`: how long a batch's first query waits for others.
    """

    name: str
    alpha_ns: int
    beta_ns: int
    slo_ns: int
    weight: float = 1.0
    max_batch: int | None = None
    timeout_ns: int = 0

    def __post_init__(self) -> None:
        """Refuses what no device could run, or could never run in time."""
        try:
            fastest_ns = self.cost().time(1)
        except (ValueError, TypeError, OverflowError) as error:
            raise ConfigError(f"model {self.name}: {error}") from error
        if self.slo_ns < 0:
            raise ConfigError(f"model {self.name}: slo_ns = {self.slo_ns}: must not be negative")
        if 0 < self.slo_ns < fastest_ns:
            raise ConfigError(
                f"model {self.name}: slo_ns = {self.slo_ns} is below the time of one query alone, "
                f"{fastest_ns} ns, so none could meet it; raise it"
            )

    def cost(self, least_percent: int = 0) -> sched.BatchCost:
        """Returns what the policies know of it."""
        bounds = {} if self.max_batch is None else {"max_batch": self.max_batch}
        return sched.BatchCost(
            alpha_ns=self.alpha_ns,
            beta_ns=self.beta_ns,
            timeout_ns=self.timeout_ns,
            least_percent=least_percent,
            **bounds,
        )


@dataclass(frozen=True, kw_only=True)
class DevicePolicy:
    """Which policies decide, and their parameters.

    Attributes:
        batching: `none`, `timeout`, `eager` or `deferred`.
        placement: `first-fit`; `local` has no use for a device.
        least_batch_percent: under overload the first queries are given up for batches of at least
            this share of what staggered execution reaches, or of what arrives in time where that
            is less; 0: never. None: 70 for `deferred`, 0 for the others. What it does is in
            eval/results/symphony.md.
        queue_limit: how many queries of a model can wait; more are refused.
    """

    batching: str = "deferred"
    placement: str = "first-fit"
    least_batch_percent: int | None = None
    queue_limit: int = 65_536

    def __post_init__(self) -> None:
        """Refuses unknown names and values out of range."""
        if self.batching not in sched.batching_names():
            known = ", ".join(sched.batching_names())
            raise ConfigError(f"batching = {self.batching!r}: must be one of {known}")
        if self.placement != "first-fit":
            raise ConfigError(f"placement = {self.placement!r}: devices need first-fit")
        if self.least_batch_percent is not None and not 0 <= self.least_batch_percent <= 100:
            raise ConfigError(
                f"least_batch_percent = {self.least_batch_percent}: must be from 0 to 100"
            )
        if not 1 <= self.queue_limit <= 1 << 20:
            raise ConfigError(f"queue_limit = {self.queue_limit}: must be from 1 to {1 << 20}")

    def least_percent(self) -> int:
        """Returns `BatchCost.least_percent`."""
        if self.least_batch_percent is None:
            return 70 if self.batching == "deferred" else 0
        return self.least_batch_percent


@dataclass(frozen=True, kw_only=True)
class DeviceResult:
    """A simulated run.

    Attributes:
        models: that were served.
        arrivals: that they were given.
        devices: how many there were.
        warmup_queries: how many first queries no figure counts.
        run: what happened to each query, and each batch.
    """

    models: Sequence[DeviceModel]
    arrivals: Arrivals
    devices: int
    warmup_queries: int
    run: native.DeviceRun = field(repr=False)

    def summary(self) -> dict[str, Any]:
        """Returns the figures, of all models and under `models.NAME` of each, ready for JSON.

        Rates are over the time from the first to the last arrival that counts. `mean_ms` is over
        what was answered. The percentiles are over all queries, those dropped taken as infinitely
        late: `None` says that too many were dropped for there to be one. A batch counts if one of
        its queries does: once for `batch_size_*`, once for each query for
        `query_batch_size_median`.
        """
        counted = np.arange(len(self.arrivals.model)) >= self.warmup_queries
        whole = self._figures(counted, None)
        whole["device_idle_share"] = self._idle_share()
        whole["models"] = {
            model.name: self._figures(counted & (self.arrivals.model == index), index)
            for index, model in enumerate(self.models)
        }
        return whole

    def satisfied_shares(self) -> NDArray[np.float64]:
        """Returns float64[models]: the share in time; 1 for a model that nobody asked."""
        model = self.arrivals.model[self.warmup_queries :]
        asked = np.bincount(model, minlength=len(self.models))
        good = np.bincount(model[self.satisfied()[self.warmup_queries :]], minlength=asked.size)
        return np.where(asked > 0, good / np.maximum(asked, 1), 1.0)

    def satisfied(self) -> NDArray[np.bool_]:
        """Returns bool[queries]: whether it was answered within its target."""
        slo_ns = np.array([m.slo_ns or np.iinfo(np.int64).max for m in self.models])
        latency_ns = self.run.end_ns - self.arrivals.time_ns
        answered: NDArray[np.bool_] = self.run.outcome == native.ANSWERED
        return answered & (latency_ns <= slo_ns[self.arrivals.model])

    def _figures(self, counted: NDArray[np.bool_], model: int | None) -> dict[str, Any]:
        span_s = float(np.ptp(self.arrivals.time_ns[self.warmup_queries :])) / 1e9
        outcome = self.run.outcome[counted]
        answered = outcome == native.ANSWERED
        latency_ms = np.where(
            answered, (self.run.end_ns - self.arrivals.time_ns)[counted] / 1e6, np.inf
        )
        good = int(self.satisfied()[counted].sum())
        queries_batch = self.run.batch[counted][answered]
        batches = np.unique(queries_batch)
        sizes = self.run.size[batches]
        return {
            "queries": int(counted.sum()),
            "offered_qps": _ratio(counted.sum(), span_s),
            "satisfied_qps": _ratio(good, span_s),
            "satisfied_share": _ratio(good, counted.sum()),
            "mean_ms": float(latency_ms[answered].mean()) if answered.any() else None,
            **{f"p{p}_ms": _percentile(latency_ms, p) for p in (50, 95, 99)},
            "batches": len(batches),
            "batch_size_median": float(np.median(sizes)) if sizes.size else None,
            "batch_size_mean": float(sizes.mean()) if sizes.size else None,
            "query_batch_size_median": (
                float(np.median(self.run.size[queries_batch])) if sizes.size else None
            ),
            "drops": {name: int((outcome == code).sum()) for name, code in _DROPS.items()},
        }

    def _idle_share(self) -> float:
        counted_ns = self.arrivals.time_ns[self.warmup_queries :]
        begin, end = int(counted_ns[0]), int(counted_ns[-1])
        start = np.clip(self.run.start_ns, begin, end)
        busy_ns = (np.clip(self.run.batch_end_ns, begin, end) - start).sum()
        return 1.0 - float(_ratio(busy_ns, self.devices * (end - begin)) or 0.0)


def simulate_devices(
    models: Sequence[DeviceModel],
    arrivals: Arrivals,
    *,
    devices: int,
    policy: DevicePolicy | None = None,
    warmup_queries: int = 0,
    record: Path | None = None,
) -> DeviceResult:
    """Runs arrivals on emulated devices until the last query has ended.

    Args:
        models: that are served; `arrivals.model` are indices into it.
        arrivals: from `generate_arrivals`, or any other ascending times.
        devices: how many there are, each able to run any of the models.
        policy: which policies decide; None: `deferred`, `first-fit`.
        warmup_queries: how many first queries no figure counts.
        record: where to write each event and decision, for `veltair replay`.

    Returns:
        The run; `summary()` has its figures. The same arguments give the same run.

    Raises:
        ConfigError: a count is out of range, or the arrivals name a model that isn't there or are
            not ascending.
        InputError: the record can't be written.
    """
    policy = policy or DevicePolicy()
    if not 1 <= devices <= MOST_DEVICES:
        raise ConfigError(f"devices = {devices}: must be from 1 to {MOST_DEVICES}")
    if not 0 <= warmup_queries < len(arrivals.time_ns):
        raise ConfigError(
            f"warmup_queries = {warmup_queries}: must be from 0 to below the number of queries, "
            f"{len(arrivals.time_ns)}"
        )
    costs = [model.cost(policy.least_percent()) for model in models]

    def run(descriptor: int | None) -> native.DeviceRun:
        return native.run_devices(
            batching=policy.batching,
            placement=policy.placement,
            costs=costs,
            slo_ns=[model.slo_ns for model in models],
            devices=devices,
            queue_limit=policy.queue_limit,
            arrival_ns=arrivals.time_ns,
            model=arrivals.model,
            record=descriptor,
        )

    try:
        if record is None:
            found = run(None)
        else:
            lines = _first_lines(policy, costs, devices)
            with recording(record, lines, field="--record") as descriptor:
                found = run(descriptor)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return DeviceResult(
        models=models, arrivals=arrivals, devices=devices, warmup_queries=warmup_queries, run=found
    )


def _first_lines(
    policy: DevicePolicy, costs: Sequence[sched.BatchCost], devices: int
) -> list[Line]:
    batcher = make_batcher_line(
        policy.batching,
        policy.placement,
        queue_limit=policy.queue_limit,
        costs=costs,
        executors=["device"] * devices,
    )
    return [make_header("simulated"), batcher]


def milliseconds(name: str, value: float) -> int:
    """Returns a time in milliseconds as integer nanoseconds.

    Raises:
        ConfigError: it isn't a number, or is out of range; `name` says of what.
    """
    if not (math.isfinite(value) and 0 <= value <= LONGEST_MS):
        raise ConfigError(f"{name} = {value}: must be a number from 0 to {LONGEST_MS:.0f}")
    return round(value * 1e6)


def _ratio(count: float, of: float) -> float | None:
    return float(count) / float(of) if of else None


def _percentile(latency_ms: NDArray[np.float64], percent: int) -> float | None:
    if latency_ms.size == 0:
        return None
    # A value that occurred, not one between a number and infinity.
    found = float(np.percentile(latency_ms, percent, method="higher"))
    return found if math.isfinite(found) else None
