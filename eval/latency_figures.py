"""What a run is judged by, real or simulated: one computation for both, in all and by model."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from veltair.runtime.simulate.run import QUEUE_FULL, REFUSED, SERVED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_NS_PER_MS = 1e6
_NS_PER_S = 1e9


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Figures of some queries; latencies are of the served ones, nan where there are none.

    Attributes:
        queries: that arrived.
        served: answered, in time or not.
        refused: by admission, by the policy, or for want of a slot.
        failed: accepted and then neither served nor refused.
        offered_qps: of the whole run's span.
        satisfied_qps: of the same span, those within their targets.
        satisfied_share: of those that arrived.
        mean_ms: latency from the arrival that was planned to the end.
        p50_ms: percentiles of it.
        p95_ms: the same.
        p99_ms: the same.
        wait_ms: mean time from that arrival to the begin of the first block, of those of which it
            was told.
        service_ms: mean time from there to the end, of the same.
    """

    queries: int
    served: int
    refused: int
    failed: int
    offered_qps: float
    satisfied_qps: float
    satisfied_share: float
    mean_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    wait_ms: float
    service_ms: float


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """What became of each query.

    Attributes:
        arrival_ns: int64[Q], ascending: when each was due.
        model: int32[Q], index.
        start_ns: int64[Q], of its first block; negative where it was not told. What it is of
            queries that were not served is not looked at.
        end_ns: int64[Q].
        outcome: int64[Q], SERVED, REFUSED, QUEUE_FULL or any other code for failed.
        qos_ns: int64[M], target of each model; 0: none.
    """

    arrival_ns: NDArray[np.int64]
    model: NDArray[np.int32]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    outcome: NDArray[np.int64]
    qos_ns: NDArray[np.int64]


def medians(runs: Sequence[Figures]) -> Figures:
    """Returns the median of each figure over runs of the same; a nan counts as no run."""
    found: dict[str, Any] = {
        field.name: _median([getattr(run, field.name) for run in runs]) for field in fields(Figures)
    }
    for count in ("queries", "served", "refused", "failed"):
        found[count] = round(found[count])
    return Figures(**found)


def _median(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return statistics.median(known) if known else math.nan


def by_model(found: Outcomes, names: Sequence[str]) -> dict[str, Figures]:
    """Returns the figures of all queries under `all`, then of each model under its name."""
    whole = {"all": _figures(found, np.ones(len(found.model), np.bool_))}
    return whole | {name: _figures(found, found.model == index) for index, name in enumerate(names)}


def to_json(value: Any) -> Any:  # noqa: ANN401 # JSON has no narrower type
    """Returns dictionaries and lists with None in place of nan, which JSON doesn't have."""
    if isinstance(value, dict):
        return {key: to_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _figures(found: Outcomes, chosen: NDArray[np.bool_]) -> Figures:
    served = chosen & (found.outcome == SERVED)
    told = served & (found.start_ns >= 0)
    refused = chosen & np.isin(found.outcome, (REFUSED, QUEUE_FULL))
    latency_ns = found.end_ns - found.arrival_ns
    qos_ns = found.qos_ns[found.model]
    satisfied = int((served & ((qos_ns == 0) | (latency_ns <= qos_ns))).sum())
    count = int(chosen.sum())
    span_s = (found.arrival_ns[-1] - found.arrival_ns[0]) / _NS_PER_S
    latency_ms = latency_ns[served] / _NS_PER_MS
    percentiles = [_percentile(latency_ms, point) for point in (50, 95, 99)]
    return Figures(
        queries=count,
        served=int(served.sum()),
        refused=int(refused.sum()),
        failed=count - int(served.sum()) - int(refused.sum()),
        offered_qps=float(count / span_s) if span_s > 0 else float("nan"),
        satisfied_qps=float(satisfied / span_s) if span_s > 0 else float("nan"),
        satisfied_share=satisfied / count if count else float("nan"),
        mean_ms=_mean(latency_ms),
        p50_ms=percentiles[0],
        p95_ms=percentiles[1],
        p99_ms=percentiles[2],
        wait_ms=_mean((found.start_ns - found.arrival_ns)[told] / _NS_PER_MS),
        service_ms=_mean((found.end_ns - found.start_ns)[told] / _NS_PER_MS),
    )


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if values.size else float("nan")


def _percentile(values: NDArray[np.float64], point: int) -> float:
    return float(np.percentile(values, point)) if values.size else float("nan")
