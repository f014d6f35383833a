"""Evictors: what is refused, what they throw out, their rest and their end."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from veltair.proxy.co_runners import choose_co_runner
from veltair.proxy.evictors import Evictors, Victim
from veltair.runtime.errors import InputError

CPU = max(os.sched_getaffinity(0))
PAGE = 4096


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "weights.bin"
    path.write_bytes(os.urandom(100 * PAGE + 17))
    return path


def evicted(evictors: Evictors) -> int:
    """Waits until something was."""
    end_s = time.monotonic() + 20
    while not (found := evictors.evicted_bytes()[0]) and time.monotonic() < end_s:
        time.sleep(0.001)
    return found


def test_a_share_is_evicted_until_it_rests(weights: Path) -> None:
    before = weights.read_bytes()
    with Evictors([CPU], [Victim.whole(weights)]) as evictors:
        assert evictors.evicted_bytes() == [0]
        evictors.set_rate(evictors.highest_rate())
        whole = evicted(evictors)
        assert whole % (101 * PAGE) == 0  # of whole sweeps
        assert whole > 0
        evictors.set_rate(500_000)
        half = evicted(evictors)
        assert half % (50 * PAGE) == 0 or half % (51 * PAGE) == 0
        evictors.set_rate(0)
        assert evictors.evicted_bytes() == [0]
    assert weights.read_bytes() == before


def test_only_the_part_is_evicted(weights: Path) -> None:
    part = Victim(path=weights, begin_bytes=PAGE + 1, end_bytes=3 * PAGE)
    with Evictors([CPU], [part, part]) as evictors:
        evictors.set_rate(1_000_000)
        assert evicted(evictors) % (2 * PAGE) == 0


def test_victims_that_are_not_there(weights: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.bin: can't be read"):
        Victim.whole(tmp_path / "gone.bin")
    with pytest.raises(InputError, match="an evictor needs a victim"):
        Evictors([CPU], [])
    beyond = Victim(path=weights, begin_bytes=0, end_bytes=1 << 30)
    with pytest.raises(InputError, match="has no bytes from 0 to 1073741824"):
        Evictors([CPU], [beyond])
    with pytest.raises(InputError, match="cpu 100000 can't be used"):
        Evictors([100_000], [Victim.whole(weights)])


def test_no_thread_is_left(weights: Path) -> None:
    tasks = Path("/proc/self/task")
    before = set(tasks.iterdir())
    with Evictors([CPU], [Victim.whole(weights)]) as evictors:
        evictors.set_rate(1_000_000)
        made = set(tasks.iterdir()) - before
        assert len(made) == 1
    assert not made & set(tasks.iterdir())


def test_kinds_have_names() -> None:
    assert choose_co_runner("bubbles") == "bubbles"
    assert choose_co_runner("evictors") == "evictors"
    with pytest.raises(InputError, match="--co-runner fish: unknown; choose bubbles or evictors"):
        choose_co_runner("fish")
