"""Whether a machine stayed the same while it was measured: a control's rounds against each other.

The control is the reference kernel alone, once or twice in each turn. What slows it, slows
everything, and is no effect of what runs beside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

FEWEST_ROUNDS = 3
_MOST_DRIFT = 0.1  # of a round's control, from that of most rounds
_MOST_LOST = 0.5  # of the rounds


@dataclass(frozen=True, kw_only=True)
class Steadiness:
    """What the control says.

    Attributes:
        kept: rounds whose control was as in most rounds, ascending.
        rounds: how many there were.
        drift: the largest difference of a round's control from the median round's, as a part of it.
    """

    kept: tuple[int, ...]
    rounds: int
    drift: float

    @property
    def is_enough(self) -> bool:
        """Whether enough was kept to be trained on."""
        return len(self.kept) >= max(FEWEST_ROUNDS, self.rounds * (1 - _MOST_LOST))


def steadiness(control_ns: Mapping[int, Sequence[float]]) -> Steadiness:
    """Judges rounds by their control.

    Args:
        control_ns: its times, by round; one at least.
    """
    medians = {number: float(np.median(times)) for number, times in control_ns.items()}
    usual = float(np.median(list(medians.values())))
    off = {number: abs(median / usual - 1) for number, median in medians.items()}
    return Steadiness(
        kept=tuple(sorted(number for number, drift in off.items() if drift <= _MOST_DRIFT)),
        rounds=len(medians),
        drift=max(off.values()),
    )
