from __future__ import annotations

import os
from collections.abc import Iterator

import psutil
import pytest

from veltair.runtime import _native, disturbance
from veltair.runtime.disturbance import Watch, stalled_share


def test_what_a_host_takes_unreported_is_steal(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: Iterator[float] = iter([0.2, 0.4])
    monkeypatch.setattr(disturbance, "stalled_share", lambda: next(looks))
    monkeypatch.setattr(disturbance, "_times", lambda: next(times))
    # the clock of all processors, busy, reported steal, this process, what it started
    times = iter([(100.0, 10.0, 1.0, 4.0, 5.0), (110.0, 18.0, 1.5, 5.0, 8.0)])
    seen = Watch().seen()
    assert seen.steal == pytest.approx(0.05 + 0.3)
    assert seen.others == pytest.approx(0.4)
    assert seen.driver == pytest.approx(0.1)
    assert seen.is_notable


def test_stalls_are_a_share_of_all_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    def shares(cpus: list[int], duration_ns: int) -> list[float]:
        assert cpus == [0, 2]
        assert duration_ns > 0
        return [0.1, 0.3]

    monkeypatch.setattr(_native.proxy, "stalled_shares", shares)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 0})
    monkeypatch.setattr(psutil, "cpu_count", lambda: 4)
    assert stalled_share() == pytest.approx(0.1)


def test_this_machine_can_be_asked() -> None:
    assert 0 <= stalled_share() <= 1
