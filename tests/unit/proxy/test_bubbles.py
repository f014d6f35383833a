"""Bubbles: what is refused, their memory, their pace, their end."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest

from veltair.proxy.bubbles import Bubbles, check_memory, settings_of
from veltair.runtime.errors import InputError

CPU = max(os.sched_getaffinity(0))
MB = 1_000_000


def test_settings_are_whole_pages_and_bytes() -> None:
    settings = settings_of(1.5, 0.25)
    assert settings.footprint_bytes == 1_499_136  # 366 pages of 4 KiB
    assert settings.bytes_per_s == 250_000_000


@pytest.mark.parametrize(
    ("footprint_mb", "gbps", "part"),
    [
        (0, 1, "--footprint-mb 0:"),
        (-3, 1, "--footprint-mb -3:"),
        (float("nan"), 1, "--footprint-mb nan:"),
        (float("inf"), 1, "--footprint-mb inf:"),
        (0.004, 1, "whole pages; give a number from 0.004096"),
        (8, 0, "--gbps 0:"),
        (8, -1, "--gbps -1:"),
        (8, float("nan"), "--gbps nan:"),
        (8, float("inf"), "--gbps inf:"),
    ],
)
def test_settings_that_make_no_sense(footprint_mb: float, gbps: float, part: str) -> None:
    with pytest.raises(InputError, match=part):
        settings_of(footprint_mb, gbps)


def test_memory_that_is_not_there() -> None:
    with pytest.raises(InputError, match=r"2 bubbles of .* the memory has room for"):
        check_memory(2, psutil.virtual_memory().total // 2)
    with pytest.raises(InputError, match="the memory has room for"):
        Bubbles([CPU], psutil.virtual_memory().total)


def test_a_processor_that_is_not_there() -> None:
    with pytest.raises(InputError, match="cpu 100000 can't be used"):
        Bubbles([100_000], MB)


def test_the_footprint_is_there_and_goes_again() -> None:
    this = psutil.Process()
    before = this.memory_info().rss
    with Bubbles([CPU], 64 * MB):
        grown = this.memory_info().rss - before
        assert 64 * MB - 4096 <= grown < 68 * MB
    assert this.memory_info().rss - before < 4 * MB


def test_a_rate_that_any_machine_has_is_kept() -> None:
    """Beside others a bubble may miss a part of its schedule; it says so, and keeps the rest."""
    wanted = 20 * MB
    with Bubbles([CPU], 4 * MB) as bubbles:
        bubbles.set_rate(wanted)
        time.sleep(0.5)
        (done,) = bubbles.achieved()
    kept = done.elapsed_ns - done.missed_ns
    assert done.elapsed_ns >= 0.5e9
    assert done.bytes <= wanted * kept / 1e9 * 1.001 + 2 * 8192
    # 20 ms that are still to be made up for, and a page that is not yet due.
    assert done.bytes >= wanted * (kept - 25e6) / 1e9 - 2 * 8192
    assert done.bytes_per_s == pytest.approx(wanted, rel=0.6)


def test_rest_and_a_new_rate() -> None:
    with Bubbles([CPU], 4 * MB) as bubbles:
        assert bubbles.achieved()[0].bytes == 0
        bubbles.set_rate(50 * MB)
        time.sleep(0.1)
        assert bubbles.achieved()[0].bytes > 0
        bubbles.set_rate(0)
        time.sleep(0.01)
        assert bubbles.achieved()[0].bytes == 0


def test_a_rate_beyond_the_machine_is_missed_not_refused() -> None:
    with Bubbles([CPU], 32 * MB) as bubbles:
        bubbles.set_rate(10**15)
        time.sleep(0.1)
        (done,) = bubbles.achieved()
    assert done.missed_ns > done.elapsed_ns / 2
    assert 0 < done.bytes_per_s < 1e15


def test_no_thread_is_left() -> None:
    tasks = Path("/proc/self/task")
    before = set(tasks.iterdir())  # of other tests, and some may end meanwhile
    with Bubbles([CPU], MB) as bubbles:
        bubbles.set_rate(MB)
        made = set(tasks.iterdir()) - before
        assert len(made) == 1
    assert not made & set(tasks.iterdir())
