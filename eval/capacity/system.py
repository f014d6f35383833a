"""What is compared: a system, the settings that it is tried at, and what a run of it says."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from veltair.eval.capacity.result import Bar
    from veltair.eval.outcomes import Allowance
    from veltair.runtime.simulate.arrivals import Arrivals


FAILED = 3  # beside SERVED, REFUSED and QUEUE_FULL of the simulator: accepted, and not answered


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A model as the systems get it.

    Attributes:
        name: as workloads name it.
        onnx: its ONNX file, for peers; None where only its artifact is at hand.
        artifact: folder of its artifact, for ours; None where no system of ours is asked for.
        shapes: of its inputs, by name, with a batch of one.
        dtypes: of its inputs, by name, as NumPy names them.
        qos_ns: latency target.
    """

    name: str
    onnx: Path | None
    artifact: Path | None
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    qos_ns: int


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What became of each query of a run; times from the run's time 0.

    Q is the number of arrivals, or, where the run was cut, of those that were sent before.

    Attributes:
        submitted_ns: int64[Q], when the driver had handed it over: the rest of it after the arrival
            is the driver's lateness.
        start_ns: int64[Q], of its first block, or when its inference began; -1: none, or not told.
        end_ns: int64[Q], or when it was refused.
        outcome: int64[Q], SERVED, REFUSED, QUEUE_FULL (of `runtime.simulate.run`) or FAILED.
        errors: of the queries that failed, each text once.
        busy_ns: processor time of all the system's processes during the run; -1: not told.
    """

    submitted_ns: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    outcome: NDArray[np.int64]
    errors: tuple[str, ...]
    busy_ns: int = -1


class Running(Protocol):
    """A system that is up, has every model loaded and warm, and serves."""

    def replay(self, arrivals: Arrivals, allowance: Allowance | None = None) -> Observed:
        """Sends every query when it is due, open loop, and waits for the last one's end.

        Models are numbered as `System.running` was given them. Once more queries are late than the
        allowance has, no further ones are sent.

        Raises:
            VeltairError: the system died, or a query was not answered in time.
        """


class System(Protocol):
    """One of the systems that are compared.

    Attributes:
        name: as `--systems` and the results name it.
        kind: `ours`, `peer` or `null`.
    """

    name: str
    kind: str

    def missing(self) -> str | None:
        """Why it can't run here and what would help, in a sentence; None if it can."""

    def version(self) -> str:
        """Of the package that it comes from."""

    def settings(self, cores: int) -> Sequence[str]:
        """The grid of settings to try on so many cores, best guess first; ours have one."""

    def running(
        self, setting: str, models: Sequence[Candidate], cpus: Sequence[int], scratch: Path
    ) -> AbstractContextManager[Running]:
        """Starts it and stops it at the end of the block, whatever happens inside.

        Args:
            setting: one of `settings`.
            models: what it serves.
            cpus: processors that it may use.
            scratch: an empty folder of its own; its output goes to `log.txt` there.

        Raises:
            VeltairError: it does not start, with the end of its log.
        """


@runtime_checkable
class Recorded(Protocol):
    """A system that can tell which cores ran which block."""

    def second(
        self, models: Sequence[Candidate], cpus: Sequence[int], scratch: Path, arrivals: Arrivals
    ) -> tuple[Bar, ...]:
        """Serves a run of at least three seconds and returns the blocks of the second one.

        Args:
            models: as of `System.running`.
            cpus: the same.
            scratch: the same.
            arrivals: of the run.

        Raises:
            VeltairError: it does not start, or died.
        """
