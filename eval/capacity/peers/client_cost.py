"""What the HTTP client of the comparison costs: `python -m ...client_cost`.

Images go to a server that answers at once, at some rates; what is seen is the client's own.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from veltair.eval.capacity.peers.http_client import Request, connected
from veltair.eval.capacity.peers.products import raw_request
from veltair.eval.capacity.peers.whole_server import (
    ALONE,
    PLAN_FILE,
    kept,
    wait_until_ready,
)
from veltair.eval.ports import HOST, free_port
from veltair.runtime.simulate.arrivals import Arrivals

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_RATES_QPS = (50, 200, 800)
_RUN_S = 4.0
_IMAGE = (1, 3, 224, 224)
_NS_PER_S = 1e9
_NS_PER_US = 1e3


def main() -> None:
    """Prints the cost of a query at each rate."""
    image: Mapping[str, NDArray[np.float32]] = {"image": np.zeros(_IMAGE, np.float32)}
    for rate_qps in _RATES_QPS:
        found = measure(raw_request("null", image), rate_qps, _RUN_S)
        print(f"{rate_qps} queries/s: " + ", ".join(f"{k} {v:.0f}" for k, v in found.items()))


def measure(request: Request, rate_qps: float, run_s: float) -> dict[str, float]:
    """Returns, in microseconds, the client's processor time a query, its lateness, the latency."""
    cpus = sorted(os.sched_getaffinity(0))
    count = int(rate_qps * run_s)
    gaps_ns = np.random.default_rng(0).exponential(_NS_PER_S / rate_qps, count)
    arrivals = Arrivals(
        time_ns=np.cumsum(gaps_ns).astype(np.int64), model=np.zeros(count, np.int32)
    )
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        log, plan_file = folder / "log.txt", folder / PLAN_FILE
        plan_file.write_text(json.dumps({"port": port}))
        command = [sys.executable, str(ALONE / "null_server.py"), str(plan_file)]
        with log.open("a") as output, kept(command, cpus, {}, output, folder) as server:
            wait_until_ready("the null server", server, port, "/", log)
            address = f"http://{HOST}:{port}"
            with connected("the null server", server, address, [request], log) as peer:
                peer.warm_up()
                begin_ns = time.process_time_ns()
                observed = peer.replay(arrivals)
                used_ns = time.process_time_ns() - begin_ns
    late_ns = observed.submitted_ns - arrivals.time_ns
    latency_ns = observed.end_ns - arrivals.time_ns
    return {
        "processor time": used_ns / count / _NS_PER_US,
        "late p50": float(np.percentile(late_ns, 50)) / _NS_PER_US,
        "late p99": float(np.percentile(late_ns, 99)) / _NS_PER_US,
        "latency p50": float(np.percentile(latency_ns, 50)) / _NS_PER_US,
        "latency p99": float(np.percentile(latency_ns, 99)) / _NS_PER_US,
    }


if __name__ == "__main__":
    main()
