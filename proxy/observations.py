"""What training learns from: features beside the level that was there, one row a slot.

The level of a slot is the slow-down of the reference kernel in it: what disturbs isn't always the
same, since a hypervisor moves its virtual processors, which then share a cache or don't.

`self` isn't read while a record is made: what a server's own blocks would have told is reckoned
here, from the layer's time in the slot against its profile. The profile of a layer is its time
alone and what a level adds to it, in other rounds than the slot's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from veltair.proxy.features import FEATURES, features
from veltair.proxy.sources.own import Blocks, reading

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from veltair.proxy.calibration_record import CalibrationRecord, Slot, Turn
    from veltair.proxy.sources.reading import Reading

OWN = "self"
_OWN_BLOCKS = "own blocks"


@dataclass(frozen=True, kw_only=True)
class Observation:
    """One layer beside one setting, once; or several, one after the other.

    Attributes:
        layer: the same for all its versions, and for layers that are alike.
        round: of the record.
        setting: number of what was beside; 0 is nothing.
        level: slow-down of the reference kernel beside it.
        slowdown: of the layer.
        readings: what each source said, by its name.
        own: what our own blocks would have told; None if their profile isn't known.
    """

    layer: str
    round: int
    setting: int
    level: float
    slowdown: float
    readings: Mapping[str, Reading]
    own: Blocks | None = None

    @property
    def told(self) -> Mapping[str, Reading]:
        """The readings, and that of our own blocks."""
        if self.own is None:
            return self.readings
        return {**self.readings, OWN: reading({_OWN_BLOCKS: self.own}, time_ns=0, elapsed_ns=0)}


@dataclass(frozen=True, kw_only=True)
class Table:
    """Observations as training takes them.

    Attributes:
        features: names of the columns.
        sources: of each column, the source that it is of.
        values: float64[rows, columns]; NaN where it can't be told.
        confidence: float64[rows, columns]; 0 there.
        level: float64[rows].
        layer: int64[rows], a number for each layer.
        alone: bool[rows], whether there was nothing beside.
    """

    features: tuple[str, ...]
    sources: tuple[str, ...]
    values: NDArray[np.float64]
    confidence: NDArray[np.float64]
    level: NDArray[np.float64]
    layer: NDArray[np.int64]
    alone: NDArray[np.bool_]


def table_of(observations: Sequence[Observation]) -> Table:
    """Makes the features of each observation."""
    rows = [
        {
            name: (feature, source)
            for source, told in each.told.items()
            for name, feature in features([told]).items()
        }
        for each in observations
    ]
    source_of = {name: source for row in rows for name, (_, source) in row.items()}
    names = tuple(name for name in FEATURES if name in source_of)
    values = np.full((len(rows), len(names)), np.nan)
    confidence = np.zeros((len(rows), len(names)))
    for index, row in enumerate(rows):
        for column, name in enumerate(names):
            if name in row:
                feature = row[name][0]
                values[index, column] = feature.value
                confidence[index, column] = feature.confidence
    layers = sorted({each.layer for each in observations})
    return Table(
        features=names,
        sources=tuple(source_of[name] for name in names),
        values=values,
        confidence=confidence,
        level=np.array([each.level for each in observations]),
        layer=np.array([layers.index(each.layer) for each in observations]),
        alone=np.array([each.setting == 0 for each in observations]),
    )


def observations_of(record: CalibrationRecord, rounds: Iterable[int]) -> list[Observation]:
    """Returns what some rounds of a record say, a row for each slot.

    Args:
        record: of two rounds at least.
        rounds: that are used.
    """
    chosen = set(rounds)
    turns = [turn for turn in record.turns if turn.round in chosen]
    profiles = _Profiles(turns)
    found = []
    for turn in turns:
        layer = record.header.works[turn.work].key
        for slot, level in zip(turn.slots, slot_levels(turn), strict=True):
            found.append(
                Observation(
                    layer=layer,
                    round=turn.round,
                    setting=slot.setting,
                    level=float(level),
                    slowdown=slot.run_ns / _alone(turn, "run_ns") - 1,
                    readings=slot.readings,
                    own=profiles.own_blocks(turn, slot),
                )
            )
    return found


def slot_levels(turn: Turn) -> NDArray[np.float64]:
    """Returns the level of each slot: what slowed the reference kernel in it, 0 at least."""
    reference = np.array([slot.reference_ns for slot in turn.slots])
    levels = (reference / _alone(turn, "reference_ns") - 1).clip(min=0.0)
    levels[[slot.setting == 0 for slot in turn.slots]] = 0.0
    return levels


def levels_of(turns: Sequence[Turn], settings: int) -> NDArray[np.float64]:
    """Returns the usual level of each setting: the median over turns, 0 at least."""
    ratios: list[list[float]] = [[] for _ in range(settings)]
    for turn in turns:
        alone = _alone(turn, "reference_ns")
        for slot in turn.slots:
            ratios[slot.setting].append(slot.reference_ns / alone)
    levels = np.array([np.median(each) - 1 for each in ratios])
    levels[0] = 0.0
    return levels.clip(min=0.0)


def noise_of(turns: Sequence[Turn]) -> float:
    """Returns by how much a slot's level is off, usually: by the slots with nothing beside."""
    ratios = []
    for turn in turns:
        first, second = (slot.reference_ns for slot in turn.slots if slot.setting == 0)
        ratios.append(second / first)
    low, high = np.percentile(ratios, [10, 90])
    return float(high - low) / 2


class _Profiles:
    """Times of each layer alone and what a level adds, without the round that is asked about."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._seen: dict[int, dict[int, tuple[float, float, float]]] = {}
        for turn in turns:
            alone_ns = _alone(turn, "mean_ns")
            levels = slot_levels(turn)
            added = [slot.total_ns / slot.runs - alone_ns for slot in turn.slots]
            sums = (alone_ns, float(levels @ np.array(added)), float(levels @ levels))
            self._seen.setdefault(turn.work, {})[turn.round] = sums

    def own_blocks(self, turn: Turn, slot: Slot) -> Blocks | None:
        """What a server's blocks would have told; None without a profile, or a level in it."""
        others = np.array(
            [sums for number, sums in self._seen[turn.work].items() if number != turn.round]
        )
        if not len(others) or others[:, 2].sum() <= 0:
            return None
        alone_ns = float(np.median(others[:, 0]))
        # Of a run, by how much it is longer at a slow-down of 1; one that is shorter says nothing.
        sensitivity_ns = max(float(others[:, 1].sum() / others[:, 2].sum()), 0.0)
        return Blocks(
            blocks=slot.runs,
            took_ns=slot.total_ns,
            alone_ns=round(slot.runs * alone_ns),
            excess=(slot.total_ns - slot.runs * alone_ns) * sensitivity_ns,
            weight=slot.runs * sensitivity_ns**2,
        )


def _alone(turn: Turn, what: str) -> float:
    """The mean of the turn's slots with nothing beside."""
    times: list[Any] = [
        slot.total_ns / slot.runs if what == "mean_ns" else getattr(slot, what)
        for slot in turn.slots
        if slot.setting == 0
    ]
    return float(np.mean(times))
