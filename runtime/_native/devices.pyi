from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .sched import BatchCost

# Values of `DeviceRun.outcome`.
ANSWERED: int
DROPPED_DEADLINE: int
DROPPED_QUEUE_FULL: int
DROPPED_GIVEN_UP: int

class DeviceRun:
    @property
    def events(self) -> int: ...

    # by query
    @property
    def outcome(self) -> NDArray[np.uint8]: ...
    @property
    def end_ns(self) -> NDArray[np.int64]: ...
    @property
    def batch(self) -> NDArray[np.int32]: ...

    # by batch
    @property
    def start_ns(self) -> NDArray[np.int64]: ...
    @property
    def batch_end_ns(self) -> NDArray[np.int64]: ...
    @property
    def model(self) -> NDArray[np.int32]: ...
    @property
    def device(self) -> NDArray[np.int32]: ...
    @property
    def size(self) -> NDArray[np.int32]: ...

def run_devices(
    *,
    batching: str,
    placement: str,
    costs: Sequence[BatchCost],
    slo_ns: Sequence[int],
    devices: int,
    queue_limit: int,
    arrival_ns: NDArray[np.int64],
    model: NDArray[np.int32],
    record: int | None = None,
) -> DeviceRun: ...
