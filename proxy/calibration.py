"""Measures layers beside what disturbs them, and reads every source meanwhile."""

from __future__ import annotations

import random
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from veltair.proxy.calibration_record import Slot, Turn
from veltair.proxy.levels import LEAST_STEP
from veltair.proxy.observations import noise_of, slot_levels
from veltair.proxy.steadiness import FEWEST_ROUNDS, Steadiness, steadiness
from veltair.runtime.errors import SourceError, VeltairError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from veltair.compiler.progress import Progress
    from veltair.proxy.calibration_record import CalibrationRecord, Header
    from veltair.proxy.disturber import Disturber
    from veltair.proxy.ending import Ended
    from veltair.proxy.sources.reading import Reading, Source
    from veltair.proxy.works import Runner
    from veltair.runtime._native import proxy

WINDOW_S = 0.12  # the probe walks some ten times in it
_SETTLE_S = 0.003  # until the bubbles' memory is where it will stay
_PASSES = 5
_FEWEST_RUNS = 3
_HIGH = 95  # percentile of the levels that must be above the noise
_SLOT_S = WINDOW_S + 0.015  # with what is around it
_PLANNED_ROUNDS = 4
FEWEST_WORKS = 8


class StoppedError(Exception):
    """A signal has come; what is measured is in the record."""


@dataclass(kw_only=True)
class Bench:
    """What measures.

    Attributes:
        runner: of the layers.
        disturber: beside them.
        reference: the kernel whose slow-down is the level.
        sources: that are read, by name; one that fails is closed and goes.
    """

    runner: Runner
    disturber: Disturber
    reference: proxy.Reference
    sources: dict[str, Source]

    def turn(self, header: Header, number: int, work: int) -> Turn:
        """Measures one layer beside every setting, alone first and again among the others."""
        begin_ns = time.monotonic_ns()
        others = [0, *range(1, len(header.settings))]
        random.Random(f"{number} {work}").shuffle(others)  # what drifts is in no setting more
        slots = tuple(self._slot(header, work, setting) for setting in (0, *others))
        self.disturber.rest()
        elapsed_ns = time.monotonic_ns() - begin_ns
        return Turn(round=number, work=work, elapsed_ns=elapsed_ns, slots=slots)

    def _slot(self, header: Header, work: int, setting: int) -> Slot:
        beside, measured = header.settings[setting], header.works[work]
        beside.begin(self.disturber)
        time.sleep(_SETTLE_S)
        before_ns = self._reference_ns()
        if beside.evicted_millionths:  # evictors look for what they throw out
            beside.begin(self.disturber, measured)
            time.sleep(_SETTLE_S)
        self._read()  # what is read next is of the runs alone
        times = self.runner.run(measured, seconds=WINDOW_S, count=_FEWEST_RUNS)
        readings = self._read()
        if beside.evicted_millionths:
            beside.begin(self.disturber)
            time.sleep(_SETTLE_S)
        return Slot(
            setting=setting,
            reference_ns=(before_ns + self._reference_ns()) / 2,
            run_ns=int(np.median(times)),
            total_ns=sum(times),
            runs=len(times),
            readings=readings,
        )

    def _reference_ns(self) -> float:
        pass_ns = np.empty(_PASSES, np.int64)
        self.reference.time(pass_ns)
        return float(np.median(pass_ns))

    def _read(self) -> dict[str, Reading]:
        found: dict[str, Reading] = {}
        for name, source in list(self.sources.items()):
            try:
                found[name] = source.read()
            except SourceError as error:
                print(f"veltair: warning: {name} is left out: {error}", file=sys.stderr)
                source.close()
                del self.sources[name]
        return found


def most_works(settings: int, minutes: float) -> int:
    """How many layers can be measured in so many minutes, often enough."""
    return max(FEWEST_WORKS, int(minutes * 60 / (_PLANNED_ROUNDS * (settings + 1) * _SLOT_S)))


def planned_rounds(header: Header, minutes: float) -> int:
    """How often each layer is measured in so many minutes."""
    round_s = len(header.works) * (len(header.settings) + 1) * _SLOT_S
    return max(FEWEST_ROUNDS, round(minutes * 60 / round_s))


def measure(
    record: CalibrationRecord, bench: Bench, minutes: float, progress: Progress, ended: Ended
) -> Steadiness:
    """Measures what the record lacks, and more while the control says that it isn't enough.

    Args:
        record: where to; what is in it isn't measured again.
        bench: what measures.
        minutes: that it should have taken when it is whole.
        progress: hears of each turn.
        ended: whether to stop.

    Raises:
        StoppedError: a signal came.
        VeltairError: the machine isn't steady enough, even in twice the rounds.
    """
    planned = planned_rounds(record.header, minutes)
    stage = "calibrating"
    for last in range(planned, 2 * planned + 1):
        missing = list(_missing(record, last))
        if missing:
            progress.stage(stage, len(missing))
        for number, work in missing:
            if ended.wait(0):
                raise StoppedError
            record.add(bench.turn(record.header, number, work))
            progress.step(record.header.works[work].name)
        seen = control(record)
        trouble = trouble_of(record, seen)
        if not trouble:
            return seen
        stage = "once more, for noise"
    raise VeltairError(
        f"this machine is too noisy to calibrate: {trouble}; stop what else runs and remove "
        f"{record.path}, or give more --minutes to go on with it"
    )


def control(record: CalibrationRecord) -> Steadiness:
    """Judges a record by its reference kernel alone."""
    times: dict[int, list[float]] = {}
    for turn in record.turns:
        alone = (slot.reference_ns for slot in turn.slots if slot.setting == 0)
        times.setdefault(turn.round, []).extend(alone)
    return steadiness(times)


def trouble_of(record: CalibrationRecord, seen: Steadiness) -> str:
    """Says why a record can't be trained on; empty where it can."""
    if not seen.is_enough:
        return (
            "alone, the reference kernel took about the same time in only "
            f"{len(seen.kept)} of {seen.rounds} rounds, and in others up to {seen.drift:.0%} more "
            "or less"
        )
    turns = [turn for turn in record.turns if turn.round in seen.kept]
    high = float(np.percentile(np.concatenate([slot_levels(turn) for turn in turns]), _HIGH))
    noise = noise_of(turns)
    if high < 2 * max(noise, LEAST_STEP):
        return (
            f"the reference kernel is slower by {high:.1%} where it is disturbed most, and by "
            f"{noise:.1%} more or less with nothing beside, so there are no levels to tell apart"
        )
    return ""


def _missing(record: CalibrationRecord, rounds: int) -> Iterator[tuple[int, int]]:
    """Turns that aren't in the record, round by round, each round in another order."""
    done = {(turn.round, turn.work) for turn in record.turns}
    works: Sequence[int] = range(len(record.header.works))
    for number in range(rounds):
        order = list(works)
        random.Random(number).shuffle(order)
        yield from ((number, work) for work in order if (number, work) not in done)
