"""What is measured, how often, and when it is enough."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from calibrations import LEVELS, header, record, turn

from veltair.proxy.calibration import (
    FEWEST_WORKS,
    Bench,
    StoppedError,
    measure,
    most_works,
    planned_rounds,
)
from veltair.proxy.calibration_record import CalibrationRecord, Header, Turn
from veltair.runtime.errors import VeltairError


class Silent:
    def __init__(self) -> None:
        self.stages: list[tuple[str, int]] = []

    def stage(self, name: str, total: int) -> None:
        self.stages.append((name, total))

    def step(self, what: str) -> None: ...


class Signals:
    """A signal comes after so many questions."""

    def __init__(self, after: int = 10_000) -> None:
        self._left = after

    def wait(self, seconds: float) -> bool:
        self._left -= 1
        return self._left < 0


def bench(of: Callable[[int, int], Turn] = lambda number, work: turn(number, of=work)) -> Bench:
    """A bench on a machine that is what a test says it is."""

    class Told(Bench):
        def turn(self, header: Header, number: int, work: int) -> Turn:
            return of(number, work)

    return Told(runner=None, disturber=None, reference=None, sources={})  # type: ignore[arg-type]


def begun(tmp_path: Path) -> CalibrationRecord:
    return record(tmp_path / "r", [])


def test_each_layer_is_measured_once_a_round(tmp_path: Path) -> None:
    made, progress = begun(tmp_path), Silent()
    seen = measure(made, bench(), 0.1, progress, Signals())
    assert seen.kept == (0, 1, 2)
    assert sorted((each.round, each.work) for each in made.turns) == [
        (number, work) for number in range(3) for work in range(4)
    ]
    assert progress.stages == [("calibrating", 12)]
    orders = [[each.work for each in made.turns if each.round == number] for number in range(3)]
    assert len({tuple(order) for order in orders}) > 1


def test_a_stop_keeps_what_is_measured_and_the_rest_is_measured_later(tmp_path: Path) -> None:
    made = begun(tmp_path)
    with pytest.raises(StoppedError):
        measure(made, bench(), 0.1, Silent(), Signals(after=5))
    again = CalibrationRecord.read(made.path)
    assert len(again.turns) == 5
    progress = Silent()
    measure(again, bench(), 0.1, progress, Signals())
    assert progress.stages == [("calibrating", 7)]
    assert len({(each.round, each.work) for each in again.turns}) == len(again.turns) == 12
    done = Silent()
    measure(again, bench(), 0.1, done, Signals())
    assert done.stages == []


def test_a_control_that_drifts_extends_the_run(tmp_path: Path) -> None:
    made, progress = begun(tmp_path), Silent()

    def drifting(number: int, work: int) -> Turn:
        return turn(number, of=work, drift=1.5 if number == 1 else 1.0)

    seen = measure(made, bench(drifting), 0.1, progress, Signals())
    assert (seen.kept, seen.rounds) == ((0, 2, 3), 4)
    assert progress.stages == [("calibrating", 12), ("once more, for noise", 4)]


def test_a_machine_that_never_settles_is_refused(tmp_path: Path) -> None:
    made = begun(tmp_path)
    wandering = bench(lambda number, work: turn(number, of=work, drift=1.3**number))
    with pytest.raises(VeltairError, match=r"too noisy.*only 0 of 6 rounds.*more --minutes"):
        measure(made, wandering, 0.1, Silent(), Signals())


def test_levels_that_cannot_be_told_apart_are_refused(tmp_path: Path) -> None:
    made = begun(tmp_path)
    hardly = [level * 0.015 for level in LEVELS]
    flat = bench(lambda number, work: turn(number, of=work, levels=hardly))
    with pytest.raises(VeltairError, match=r"slower by 1\.5%.*by 0\.0% more or less.*no levels"):
        measure(made, flat, 0.1, Silent(), Signals())


def test_more_minutes_measure_more_layers_or_more_often() -> None:
    assert most_works(15, 0.1) == FEWEST_WORKS
    assert most_works(15, 20) == 2 * most_works(15, 10) > 60
    few = header(works=4)
    assert planned_rounds(few, 0.1) == 3
    assert planned_rounds(few, 10) > 20
