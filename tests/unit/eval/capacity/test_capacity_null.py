"""The null system: it answers every query at once, in the order of its arrivals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from queueing_system import steady_case

from veltair.eval.capacity.null import Null
from veltair.runtime.simulate.arrivals import Arrivals
from veltair.runtime.simulate.run import SERVED

QUERIES = 200
MS = 1_000_000


def test_every_query_is_served_when_it_is_submitted(tmp_path: Path) -> None:
    arrivals = Arrivals(
        time_ns=np.arange(QUERIES, dtype=np.int64) * MS // 10,
        model=(np.arange(QUERIES) % 2).astype(np.int32),
    )
    null = Null()
    models = steady_case(10, 20).candidates
    with null.running(null.settings(2)[0], models, (0, 1), tmp_path) as running:
        found = running.replay(arrivals)
    assert (found.outcome == SERVED).all()
    assert (found.submitted_ns >= arrivals.time_ns).all()
    assert (found.end_ns >= arrivals.time_ns).all()
    assert (found.end_ns <= found.submitted_ns).all()
    assert found.busy_ns == -1  # it has no processes of its own
