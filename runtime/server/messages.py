"""What rank 0 and workers say to each other: control only, no data of queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from veltair.runtime.record import ModelRecord


@dataclass(frozen=True, kw_only=True)
class Hello:
    """A worker to rank 0, before anything else.

    Attributes:
        pid: its process.
    """

    pid: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Rank 0 to a worker: what to serve, and as which worker.

    Attributes:
        worker: the worker's place in the segment's table.
        port: the server's HTTP port, by which the segment is found.
        folders: the artifact of each of the segment's models; None: not to be served. Empty with
            the null executor.
        profiles: with the null executor, the profile of each; None: not to be served.
        spin_ns: how long the gang's idle threads spin before they sleep.
        heartbeat_ms: period of the signs of life.
        is_strict: end, instead of serving without a model that can't be loaded.
        record: the file to record decisions in; None: none.
    """

    worker: int
    port: int
    folders: tuple[str | None, ...]
    profiles: tuple[ModelRecord | None, ...] | None
    spin_ns: int
    heartbeat_ms: int
    is_strict: bool
    record: str | None


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A worker to rank 0: it serves from now on.

    Attributes:
        worker: its place.
        errors: why a model could not be loaded, by the model's index.
    """

    worker: int
    errors: dict[int, str]


@dataclass(frozen=True, kw_only=True)
class Stop:
    """Rank 0 to a worker: leave MPI, and serve until the segment says that the server has ended."""
