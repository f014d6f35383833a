"""Levels of interference: how fast co-runners run for a reference kernel to slow down by so much.

A level is a slow-down, (time now / time alone) - 1, and has to mean the same for every model. So it
is that of one kernel, which reads memory from the shared cache as a dense layer reads its weights
(`runtime/native/proxy/reference.h`), and what is set is the rate of the co-runners beside it:
of bubbles how fast they move memory, of evictors how much of the kernel's they throw out of the
caches. The levels are spread evenly up to the slow-down that the highest rate causes. A machine
whose cores hardly disturb each other has fewer levels than were asked for: those that can be told
apart.

Reference: VELTAIR, section 4.3: the level is the average slow-down of the layers that run.
Differs: of one kernel, since a level that depends on the model could not be compared between
models.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from veltair.proxy.bubbles import Bubbles
from veltair.proxy.co_runners import BUBBLES
from veltair.proxy.evictors import Evictors, Victim
from veltair.proxy.topology import divided
from veltair.runtime._native import proxy
from veltair.runtime.machine import machine_facts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from veltair.proxy.co_runners import CoRunner, CoRunners
    from veltair.proxy.topology import Sides

LEAST_STEP = 0.01  # between two levels: closer ones decide nothing
_PARTS = 8  # of the highest rate that the sweep looks at
_ROUNDS = 40
_PASSES = 5  # of the reference kernel a round
_SETTLE_S = 0.003  # until the bubbles' memory is where it will stay
_DEFAULT_L2_BYTES = 1 << 20
_DEFAULT_L3_BYTES = 32 << 20
_L2_SIZES = 4  # of the reference kernel's memory: out of the core's own cache
_MOST_FOOTPRINT_BYTES = 128 << 20  # a virtual machine names caches that it shares with many


@dataclass(frozen=True, kw_only=True)
class Curve:
    """What co-runners did to the reference kernel.

    Attributes:
        rates: ascending from 0: bytes a second of each bubble, or millionths of evictors' victims.
        slowdowns: at each rate; 0 at the first.
        noise: what two measurements of the same differ by.
    """

    rates: tuple[int, ...]
    slowdowns: tuple[float, ...]
    noise: float


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The levels that a machine has.

    Attributes:
        kind: of the co-runners.
        footprint_bytes: of each bubble; 0 of evictors.
        reference_bytes: that the reference kernel reads.
        curve: the rate and the slow-down of each level.
        highest: slow-down beside the fastest co-runners.
        sides: where they run, and where is measured.
    """

    kind: CoRunner
    footprint_bytes: int
    reference_bytes: int
    curve: Curve
    highest: float
    sides: Sides

    def co_runners(self, weights: Path) -> CoRunners:
        """Makes what disturbs a model.

        Args:
            weights: the model's, which evictors throw out.

        Raises:
            InputError: there is no memory for bubbles, or no such file.
        """
        if self.kind == BUBBLES:
            return Bubbles(self.sides.bubbles, self.footprint_bytes)
        return Evictors(self.sides.bubbles, [Victim.whole(weights)])


def calibrate(cpus: Sequence[int], wanted: int, kind: CoRunner = BUBBLES) -> Calibration:
    """Finds `wanted` levels on this machine, or as many as it has.

    Args:
        cpus: processors that may be used.
        wanted: levels, the one alone included; at least 2.
        kind: of what disturbs.

    Raises:
        InputError: there is no processor for a co-runner, or no memory.
    """
    assert wanted >= 2
    sides = divided(cpus)
    facts = machine_facts()
    footprint_bytes = 0
    with ExitStack() as held:
        reference = held.enter_context(reference_beside(kind, facts, sides.quiet[0]))
        disturbing: CoRunners
        if kind == BUBBLES:
            footprint_bytes = min(l3_bytes_of(facts) // sides.per_cache, _MOST_FOOTPRINT_BYTES)
            disturbing = held.enter_context(Bubbles(sides.bubbles, footprint_bytes))
        else:
            disturbing = held.enter_context(Evictors(sides.bubbles, reference.victims))
        sweep = _measured(disturbing, reference.kernel, _sweep_rates(disturbing))
        chosen = _measured(disturbing, reference.kernel, rates_for(sweep, wanted))
    return Calibration(
        kind=kind,
        footprint_bytes=footprint_bytes,
        reference_bytes=reference.kernel.working_set_bytes,
        curve=told_apart(chosen),
        highest=max(*sweep.slowdowns, *chosen.slowdowns),
        sides=sides,
    )


@dataclass(frozen=True, kw_only=True)
class LevelReference:
    """The kernel whose slow-down is the level.

    Attributes:
        kernel: itself.
        victims: what it reads, for evictors, also of other processes; none beside bubbles, which
            reach it wherever it is.
    """

    kernel: proxy.Reference
    victims: tuple[Victim, ...] = ()


@contextmanager
def reference_beside(
    kind: CoRunner, facts: Mapping[str, str | int], cpu: int
) -> Iterator[LevelReference]:
    """Makes the reference kernel; its memory goes at the end of the block.

    Args:
        kind: of what disturbs.
        facts: of the machine.
        cpu: where it runs.
    """
    l2_bytes = int(facts.get("l2_bytes", _DEFAULT_L2_BYTES))
    size = min(l2_bytes * _L2_SIZES, l3_bytes_of(facts))
    if kind == BUBBLES:
        yield LevelReference(kernel=proxy.Reference(cpu, size))
        return
    file = os.memfd_create("veltair-reference")
    try:
        os.posix_fallocate(file, 0, size)
        path = Path(f"/proc/{os.getpid()}/fd/{file}")
        kernel = proxy.Reference(cpu, str(path), size)
        yield LevelReference(kernel=kernel, victims=(Victim.whole(path),))
    finally:
        os.close(file)


def l3_bytes_of(facts: Mapping[str, str | int]) -> int:
    """Returns the size of a shared cache, usual where the machine doesn't say."""
    return int(facts.get("l3_bytes", _DEFAULT_L3_BYTES))


def rates_for(curve: Curve, wanted: int) -> tuple[int, ...]:
    """Returns rates at which the slow-downs are evenly spread up to the curve's highest.

    The curve is read where it first reaches a slow-down, since more traffic disturbs no less: where
    it falls again that is noise.
    """
    rising = np.maximum.accumulate(np.asarray(curve.slowdowns))
    targets = rising[-1] * np.arange(1, wanted) / (wanted - 1)
    first = np.concatenate(([True], np.diff(rising) > 0))
    rates = np.interp(targets, rising[first], np.asarray(curve.rates)[first])
    found = sorted({round(float(rate)) for rate in rates} - {0})
    return (0, *found)


def told_apart(curve: Curve) -> Curve:
    """Returns the curve without the points that aren't clearly above the one before them."""
    kept = [0]
    step = max(LEAST_STEP, curve.noise)
    for index in range(1, len(curve.rates)):
        if curve.slowdowns[index] >= curve.slowdowns[kept[-1]] + step:
            kept.append(index)
    return Curve(
        rates=tuple(curve.rates[i] for i in kept),
        slowdowns=tuple(curve.slowdowns[i] for i in kept),
        noise=curve.noise,
    )


def _sweep_rates(disturbing: CoRunners) -> tuple[int, ...]:
    """Even parts of the highest rate."""
    highest = disturbing.highest_rate()
    return tuple(round(highest * part / _PARTS) for part in range(_PARTS + 1))


def _measured(disturbing: CoRunners, reference: proxy.Reference, rates: Sequence[int]) -> Curve:
    """Each rate once a round, and alone twice, so that what the machine does falls out."""
    settings = (0, *rates)
    times_ns = np.empty((_ROUNDS, len(settings)))
    pass_ns = np.empty(_PASSES, np.int64)
    for row in times_ns:
        for column, rate in enumerate(settings):
            disturbing.set_rate(rate)
            time.sleep(_SETTLE_S)
            reference.time(pass_ns)
            row[column] = np.median(pass_ns)
    disturbing.set_rate(0)
    return curve_of(tuple(rates), times_ns)


def curve_of(rates: tuple[int, ...], times_ns: NDArray[np.float64]) -> Curve:
    """Returns the slow-downs of a sweep.

    Args:
        rates: the first is 0.
        times_ns: float64[rounds, 1 + len(rates)]: the first two columns are both alone.
    """
    ratios = times_ns[:, 1:] / times_ns[:, :1]
    low, high = np.percentile(ratios[:, 0], [10, 90])
    return Curve(
        rates=rates,
        slowdowns=(0.0, *(float(np.median(column)) - 1 for column in ratios[:, 1:].T)),
        # About twice the standard error of a median.
        noise=float((high - low) / np.sqrt(len(times_ns))),
    )
