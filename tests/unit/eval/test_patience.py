"""Only disturbance decides which measurement counts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from veltair.eval import patience
from veltair.eval.patience import Patience
from veltair.runtime.disturbance import Disturbance


def scripted(monkeypatch: pytest.MonkeyPatch, others: list[float]) -> None:
    """Makes the watch see these shares, one measurement after another."""
    shares: Iterator[float] = iter(others)

    class ScriptedWatch:
        def seen(self) -> Disturbance:
            return Disturbance(driver=0.0, others=next(shares), steal=0.0)

    monkeypatch.setattr(patience, "Watch", ScriptedWatch)


@pytest.mark.parametrize(
    ("others", "attempts", "measured", "chosen"),
    [
        ([0.0, 0.5], 3, 1, 0),  # quiet at once
        ([0.5, 0.4, 0.01, 0.0], 4, 3, 2),  # until it is quiet
        ([0.5, 0.2, 0.4], 3, 3, 1),  # never quiet: the least disturbed
        ([0.5], 1, 1, 0),
    ],
)
def test_measures_until_it_is_quiet_and_takes_the_quietest(
    monkeypatch: pytest.MonkeyPatch,
    others: list[float],
    attempts: int,
    measured: int,
    chosen: int,
) -> None:
    scripted(monkeypatch, others)
    calls: list[int] = []

    def measure() -> int:
        calls.append(len(calls))
        return calls[-1]

    found, disturbance = Patience(attempts=attempts, wait_s=0).quietest(measure)
    assert len(calls) == measured
    assert found == chosen
    assert disturbance.others == others[chosen]
