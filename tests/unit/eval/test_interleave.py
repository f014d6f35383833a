from __future__ import annotations

import numpy as np
import pytest

from veltair.eval import interleave
from veltair.eval.interleave import Plan, ratios, time_blocks


class Machine:
    """A clock that only sleeping and running move, and engines that take what they are told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 0
        self.order: list[str] = []
        monkeypatch.setattr(interleave.time, "perf_counter_ns", lambda: self.now_ns)
        monkeypatch.setattr(interleave.time, "monotonic_ns", lambda: self.now_ns)
        monkeypatch.setattr(interleave.time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)
        self.order.append("pause")

    def run(self, name: str, ns: int) -> None:
        self.now_ns += ns
        self.order.append(name)


def test_engines_take_turns_and_each_round_begins_with_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(monkeypatch)
    plan = Plan(budget_ns=1, block_runs=2, pause_ns=5, fewest_rounds=3)
    times = time_blocks([lambda: machine.run("a", 10), lambda: machine.run("b", 20)], plan)
    assert times.tolist() == [[[10, 10]] * 3, [[20, 20]] * 3]
    a, b = ["pause", *"aaa"], ["pause", *"bbb"]
    # A first run each and a trial round, then the rounds; in each block one run isn't counted.
    assert machine.order == ["a", "b", *a, *b, *a, *b, *b, *a, *a, *b]


def test_the_budget_decides_the_rounds_within_bounds() -> None:
    plan = Plan(budget_ns=1_000, fewest_rounds=5, most_rounds=40)
    assert plan.rounds(100) == 10
    assert plan.rounds(1_000_000) == 5
    assert plan.rounds(1) == 40
    assert plan.rounds(0) == 40


def test_ratios_pair_the_blocks_of_a_round() -> None:
    # The machine is four times slower in the second round, for both; one outlier a block.
    ours, theirs = [[10, 10, 99], [40, 40, 400]], [[20, 20, 20], [80, 80, 1]]
    assert ratios(np.array([ours, theirs]), 0, 1).tolist() == [0.5, 0.5]
    assert ratios(np.array([ours, theirs]), 1, 0).tolist() == [2.0, 2.0]
