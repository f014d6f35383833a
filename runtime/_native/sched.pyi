import enum
from collections.abc import Sequence

NONE: int

class EventKind(enum.Enum):
    WORKER_IDLE = ...
    BLOCK_END = ...

class CoreNeed(enum.Enum):
    MEETS_TARGET = ...
    OUT_OF_REACH = ...
    NO_TARGET = ...

class ModelProfile:
    def __init__(
        self,
        *,
        qos_ns: int,
        cores: Sequence[int],
        levels: int,
        model_ns: Sequence[int],
        variants: Sequence[int],
        layer_ns: Sequence[int],
    ) -> None: ...

class NeededCores:
    @property
    def cores(self) -> int: ...
    @property
    def expected_ns(self) -> int: ...
    @property
    def need(self) -> CoreNeed: ...

class Task:
    def __init__(
        self,
        *,
        model: int,
        queries: int = 1,
        next_layer: int = 0,
        arrival_ns: int = 0,
        deadline_ns: int = 0,
        order: int = 0,
    ) -> None: ...

class Running:
    def __init__(
        self,
        *,
        task: int = ...,
        layer_begin: int = 0,
        layer_end: int = 0,
        cores_wanted: int = 0,
        cores_held: int = 0,
        started_ns: int = 0,
    ) -> None: ...

class Decision:
    @property
    def task(self) -> int: ...
    @property
    def layer_begin(self) -> int: ...
    @property
    def layer_end(self) -> int: ...
    @property
    def level(self) -> int: ...
    @property
    def cores(self) -> int: ...
    @property
    def reason(self) -> str: ...

class State:
    def __init__(
        self,
        *,
        models: Sequence[ModelProfile],
        tasks: Sequence[Task],
        queue: Sequence[int],
        workers: Sequence[Running],
        total_cores: int,
        free_cores: int,
    ) -> None: ...

class Policy:
    @property
    def name(self) -> str: ...
    def decide(self, state: State, event: EventKind, worker: int, now_ns: int) -> Decision: ...

class BatchingPolicy:
    @property
    def name(self) -> str: ...

class PlacementPolicy:
    @property
    def name(self) -> str: ...

def needed_cores(profile: ModelProfile, total_cores: int) -> NeededCores: ...
def make_policy(name: str, total_cores: int, models: Sequence[ModelProfile]) -> Policy: ...
def make_batching(name: str) -> BatchingPolicy: ...
def make_placement(name: str) -> PlacementPolicy: ...
def policy_names() -> list[str]: ...
