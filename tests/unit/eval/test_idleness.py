"""Runs after idleness: what is counted, in which order, and what comes of it."""

from __future__ import annotations

import numpy as np
import pytest

from veltair.eval import idleness
from veltair.eval.bench_idle import parse_idle
from veltair.eval.idleness import IdlePlan, summary, time_causes, time_idleness
from veltair.runtime.errors import InputError

MS = 1_000_000


class Machine:
    """A clock that only sleeping and running move, and engines that are slow once they slept."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 0
        self.slept_ns = 0
        self.order: list[str] = []
        monkeypatch.setattr(idleness.time, "perf_counter_ns", self.read)
        monkeypatch.setattr(idleness.time, "monotonic_ns", lambda: self.now_ns)
        monkeypatch.setattr(idleness.time, "sleep", self.sleep)

    def read(self) -> int:
        self.now_ns += 1  # so that spinning ends
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.slept_ns = round(seconds * 1e9)
        self.now_ns += self.slept_ns
        self.order.append(f"{self.slept_ns // MS}")

    def run(self, name: str, ns: int) -> None:
        self.now_ns += ns + self.slept_ns // 100
        self.slept_ns = 0
        self.order.append(name)


def plan(**fields: int) -> IdlePlan:
    return IdlePlan(
        budget_ns=1, idle_ns=(50 * MS, 200 * MS), hot_runs=2, warm_runs=1, fewest_rounds=2, **fields
    )


def test_engines_take_turns_and_runs_after_idleness_are_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(monkeypatch)
    runs = [lambda: machine.run("a", 4 * MS), lambda: machine.run("b", 9 * MS)]
    times = time_idleness(runs, plan())
    millis = np.round(times / MS, 1).tolist()
    assert millis == [[[4.0, 4.5, 6.0]] * 2, [[9.0, 9.5, 11.0]] * 2]
    a, b = ([*"30 # # # # 50 # # 200 #".replace("#", name).split()] for name in "ab")
    assert machine.order == ["a", *a, "b", *b, *a, *b, *b, *a]


def test_a_penalty_is_over_the_same_rounds_runs() -> None:
    times = np.array([[10, 30, 20], [20, 20, 60], [10, 20, 20]])
    result = summary(times, plan())
    assert result["hot_ns"]["p50"] == 10
    assert [after["idle_ns"] for after in result["after"]] == [50 * MS, 200 * MS]
    assert [after["run_ns"]["p50"] for after in result["after"]] == [20, 20]
    assert [after["penalty"]["p50"] for after in result["after"]] == [2.0, 2.0]


def test_causes_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idleness, "_EVICT_BYTES", 1 << 10)
    monkeypatch.setattr(idleness, "_READ_BYTES", 1 << 10)
    machine = Machine(monkeypatch)

    def layers() -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        begin_ns = machine.now_ns
        machine.run("a", 10)
        return np.array([machine.now_ns - begin_ns, 5])

    causes = time_causes(layers, 10_000, rounds=3)
    runs_ns = {kind: cause["run_ns"]["p50"] for kind, cause in causes.items()}
    assert runs_ns == {"hot": 15, "asleep": 115, "awake": 15, "evicted": 15}
    assert causes["asleep"]["layer_ns"] == [110, 5]
    assert all(cause["read_bytes_per_s"]["p50"] > 0 for cause in causes.values())


def test_times_of_idleness_are_parsed() -> None:
    assert parse_idle("50,200") == (50 * MS, 200 * MS)
    for text in ("", "0", "50,", "1.5", "-1", "10001", "a"):
        with pytest.raises(InputError, match="--idle-ms"):
            parse_idle(text)
