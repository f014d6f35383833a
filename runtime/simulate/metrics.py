"""What a simulation is judged by, in all and by model."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from veltair.runtime.simulate.run import QUEUE_FULL, REFUSED, SERVED, Simulated
from veltair.runtime.simulate.scenario import NS_PER_MS, Scenario

NS_PER_S = 1_000_000_000
_REASONS = {REFUSED: "deadline", QUEUE_FULL: "queue_full"}


def satisfied(found: Simulated) -> NDArray[np.bool_]:
    """Returns bool[Q]: whether each query ended within its target, counted from its arrival."""
    qos_ns = found.qos_ns[found.arrivals.model]
    in_time = (qos_ns == 0) | (found.end_ns - found.arrivals.time_ns <= qos_ns)
    result: NDArray[np.bool_] = (found.outcome == SERVED) & in_time
    return result


def report(scenario: Scenario, found: Simulated) -> dict[str, Any]:
    """Returns the figures of a simulation, as its JSON has them.

    Shares, rates and latencies are of the queries after the warm-up; latencies of those that were
    served. Sums over blocks (conflicts, cores) are of the whole run. A figure without a query to
    count is None.

    `conflict_rate` is the share of the blocks that began with fewer cores than wanted;
    `average_cores` those in use at once on average, `max_cores` at most; `cores_per_block` the
    average of a running block, `efficiency` its inverse, as VELTAIR §5.1 defines it (the blocks'
    time divided by the sum of cores x time).
    """
    counted = np.arange(len(found.end_ns)) >= scenario.arrivals.warmup_queries
    machine = found.machine
    span_ns = max(machine["last_ns"] - machine["first_ns"], 1)
    whole = _queries(found, counted) | _blocks(found.models, span_ns)
    whole["max_cores"] = machine["max_cores"]
    whole["max_cores_wanted"] = machine["max_cores_wanted"]
    whole["device_idle_share"] = 1 - whole["average_cores"] / scenario.machine.cores
    whole["returns"] = machine["returns"]
    whole["revocations"] = machine["revocations"]
    whole["decisions"] = machine["decisions"]
    whole["models"] = {
        model.name: _queries(found, counted & (found.arrivals.model == index))
        | _blocks([found.models[index]], span_ns)
        for index, model in enumerate(scenario.model)
    }
    whole["scenario"] = {
        key: msgspec.to_builtins(getattr(scenario, key))
        for key in ("machine", "policy", "model", "arrivals")
    }
    return whole


def _queries(found: Simulated, chosen: NDArray[np.bool_]) -> dict[str, Any]:
    times_ns = found.arrivals.time_ns
    served = chosen & (found.outcome == SERVED)
    kept = int((chosen & satisfied(found)).sum())
    count = int(chosen.sum())
    latency_ms = (found.end_ns - times_ns)[served] / NS_PER_MS
    # A rate needs a span: from the first of these arrivals to the last.
    span_s = (times_ns[chosen][-1] - times_ns[chosen][0]) / NS_PER_S if count > 1 else 0
    offered = (count - 1) / span_s if span_s > 0 else None
    share = kept / count if count else None
    return {
        "queries": count,
        "offered_qps": offered,
        "satisfied_qps": None if offered is None or share is None else offered * share,
        "satisfied_share": share,
        "mean_ms": float(latency_ms.mean()) if latency_ms.size else None,
        **{
            f"p{p}_ms": float(np.percentile(latency_ms, p)) if latency_ms.size else None
            for p in (50, 95, 99)
        },
        # Without batching a task is one query.
        "batch_median": 1 if latency_ms.size else None,
        "batch_mean": 1.0 if latency_ms.size else None,
        "drops": {
            name: int((chosen & (found.outcome == reason)).sum())
            for reason, name in _REASONS.items()
        },
    }


def _blocks(models: list[dict[str, int]], span_ns: int) -> dict[str, Any]:
    total = {key: sum(model[key] for model in models) for key in models[0]}
    blocks, busy_ns, core_ns = total["blocks"], total["busy_ns"], total["core_ns"]
    return {
        "blocks": blocks,
        "conflict_rate": total["conflicts"] / blocks if blocks else None,
        "expansions": total["expansions"],
        "average_cores": core_ns / span_ns,
        "cores_per_block": core_ns / busy_ns if busy_ns else None,
        "efficiency": busy_ns / core_ns if core_ns else None,
    }
