from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import sched

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
    trace: bool,
    record: int | None = None,
) -> dict[str, Any]: ...
