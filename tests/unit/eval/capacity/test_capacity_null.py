"""The null system: it answers every query at once, in the order of its arrivals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from queueing_system import steady_case

from veltair.eval.capacity.null import Null
from veltair.eval.outcomes import Allowance
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


def test_a_lost_run_is_cut(tmp_path: Path) -> None:
    arrivals = Arrivals(
        time_ns=np.arange(QUERIES, dtype=np.int64) * MS // 10,
        model=(np.arange(QUERIES) % 2).astype(np.int32),
    )
    never, soon = 0, 1  # targets: none, and one that nothing keeps
    null = Null()
    with null.running(null.settings(2)[0], steady_case(10, 20).candidates, (0, 1), tmp_path) as run:
        whole = run.replay(arrivals, Allowance(qos_ns=(never, soon), most_late=(0, QUERIES // 2)))
        cut = run.replay(arrivals, Allowance(qos_ns=(never, soon), most_late=(0, 9)))
    assert len(whole.end_ns) == QUERIES
    # The tenth late one is the twentieth query: it is seen at once, or one query later.
    assert 20 <= len(cut.end_ns) <= 22
    assert len(cut.submitted_ns) == len(cut.start_ns) == len(cut.outcome) == len(cut.end_ns)
