"""The search for a highest rate, over questions whose answer is known."""

from __future__ import annotations

import math

import pytest

from veltair.runtime.simulate.bisection import bisect, bracket


@pytest.mark.parametrize("begin", [0.02, 99.0, 100.0, 101.0, 70_000.0])
def test_finds_where_the_answer_turns(begin: float) -> None:
    asked: list[float] = []

    def holds(rate: float) -> bool:
        asked.append(rate)
        return rate <= 100

    low, high = bracket(holds, begin, 1e-3, 1e8)
    assert low <= 100 < high
    assert high / low == pytest.approx(1.5)
    found = bisect(holds, low, high, tolerance=0.01)
    assert 99 <= found <= 100
    assert len(asked) == len(set(asked))  # no rate is simulated twice


@pytest.mark.parametrize("begin", [1.0, 90.0, 110.0, 10_000.0])
def test_small_steps_widen_where_the_begin_was_a_bad_guess(begin: float) -> None:
    asked: list[float] = []

    def holds(rate: float) -> bool:
        asked.append(rate)
        return rate <= 100

    low, high = bracket(holds, begin, 1e-3, 1e8, 1.1)
    assert low <= 100 < high
    assert high / low < 1.51
    assert max(asked[0], asked[1]) / min(asked[0], asked[1]) == pytest.approx(1.1)
    assert len(asked) <= 17  # 50 steps of 1.1 for a factor of 100


def test_says_where_there_is_nothing_to_find() -> None:
    low, high = bracket(lambda rate: False, 5.0, 1e-3, 1e8)
    assert low == 0
    assert 1e-3 < high < 1.5e-3
    low, high = bracket(lambda rate: True, 5.0, 1e-3, 1e8)
    assert math.isinf(high)
    assert 1e8 / 1.5 <= low < 1e8


def test_gives_up_below_the_lowest_rate() -> None:
    asked: list[float] = []

    def holds(rate: float) -> bool:
        asked.append(rate)
        return False

    assert bisect(holds, 0.0, 1000.0, tolerance=0.01, lowest_qps=1.0) == 0
    assert len(asked) == 10
