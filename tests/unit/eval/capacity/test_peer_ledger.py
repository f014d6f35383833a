from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
from peer_models import arrivals

from veltair.eval.capacity.peers.ledger import WAITING, Ledger
from veltair.eval.capacity.peers.log import end_of
from veltair.eval.capacity.peers.processor_time import processor_ns, tree, used_ns
from veltair.eval.capacity.system import FAILED
from veltair.eval.outcomes import LEAD_NS, undelayed
from veltair.runtime.simulate.run import QUEUE_FULL, SERVED


def test_each_query_has_the_outcome_and_the_times_that_were_noted() -> None:
    ledger = Ledger(arrivals([0, 5, 9], [0, 1, 0]))
    begin_ns = ledger.due_ns[0]
    assert ledger.due_ns == [begin_ns, begin_ns + 5, begin_ns + 9]
    assert all(ledger.admit(query) for query in range(3))
    assert ledger.left == 3
    ledger.ended(1, begin_ns + 20, begin_ns + 30)
    ledger.ended(0, -1, begin_ns + 40)
    ledger.ended(2, begin_ns + 41, begin_ns + 42, "RuntimeError: no")
    found = ledger.observed(busy_ns=7)
    assert ledger.left == 0
    assert found.start_ns.tolist() == [-1, 20, -1]
    assert found.end_ns.tolist() == [40, 30, 42]
    assert found.outcome.tolist() == [SERVED, SERVED, FAILED]
    assert found.errors == ("RuntimeError: no",)
    assert found.busy_ns == 7


def test_the_run_begins_after_what_has_to_be_prepared() -> None:
    ledger = Ledger(arrivals([0], [0]))
    ledger.admit(0)
    submitted_ns = int(ledger.observed(0).submitted_ns[0])
    assert -LEAD_NS <= submitted_ns < 0  # in its lead, since nothing waited for the time


def test_a_query_too_many_of_a_model_is_refused_and_another_model_is_not() -> None:
    ledger = Ledger(arrivals([0] * (WAITING + 3), [0] * (WAITING + 1) + [1, 0]))
    assert all(ledger.admit(query) for query in range(WAITING))
    assert not ledger.admit(WAITING)
    assert ledger.admit(WAITING + 1)
    ledger.ended(0, -1, ledger.due_ns[0])
    assert ledger.admit(WAITING + 2)
    outcome = ledger.observed(0).outcome
    assert (outcome == QUEUE_FULL).tolist() == [query == WAITING for query in range(WAITING + 3)]
    assert ledger.left == WAITING + 1


def test_collections_wait_until_the_block_has_ended() -> None:
    with undelayed():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_processor_time_counts_what_began_since_and_forgets_what_has_ended() -> None:
    assert used_ns({1: 10, 2: 10}, {1: 15, 3: 4}) == 9
    here = tree(os.getpid())[0]
    before = processor_ns([here, 2**22 + 1])  # above any process that there is
    assert list(before) == [here]
    np.linalg.svd(np.random.default_rng(0).random((200, 200)))
    assert used_ns(before, processor_ns([here])) > 100_000


def test_the_end_of_a_log_is_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    assert end_of(log) == "it wrote nothing"
    log.write_text("")
    assert end_of(log) == "it wrote nothing"
    log.write_text("\n".join(f"line {i}" for i in range(100)))
    assert end_of(log).splitlines()[1:] == [f"line {i}" for i in range(80, 100)]
