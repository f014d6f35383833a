from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import sched

class SharedMemory:
    def __init__(
        self,
        *,
        gbps: float,
        pushed: float,
        highest: float,
        told: bool = True,
        error: float = 0.0,
    ) -> None: ...
    def slowdown(self, busy: float, wanted_gbps: float) -> float: ...

class Pace:
    def __init__(
        self,
        *,
        pace: float,
        spread: float,
        memory_ns: int,
        seed: int,
        known: Sequence[float] = ...,
        known_step_ns: int = ...,
    ) -> None: ...

def simulate(
    *,
    models: Sequence[sched.ModelProfile],
    policy: sched.Policy,
    arrival_ns: NDArray[np.int64],
    model: NDArray[np.int32],
    cores: int,
    workers: int,
    max_queue: int,
    conflict_ns: int,
    decision_ns: int,
    expand_if_shorter: bool,
    level: int | None,
    memory: SharedMemory | None = None,
    pace: Pace | None = None,
    trace: bool,
    record: int | None = None,
) -> dict[str, Any]: ...
