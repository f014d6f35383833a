"""A system that answers at once: what is measured with it is the load generator itself."""

from __future__ import annotations

import time
from collections import deque
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING

from veltair.eval.real_runs import replay
from veltair.runtime.client import Completion, Slot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from veltair.eval.capacity.system import Candidate, Observed
    from veltair.eval.outcomes import Allowance
    from veltair.runtime.simulate.arrivals import Arrivals


class Null:
    """The null system: our load generator with nothing behind it."""

    name = "null"
    kind = "null"

    def missing(self) -> str | None:
        """Nothing is."""
        return None

    def version(self) -> str:
        """Of this package."""
        return version("veltair")

    def settings(self, cores: int) -> Sequence[str]:
        """There is one."""
        return ("answers at once",)

    @contextmanager
    def running(
        self, setting: str, models: Sequence[Candidate], cpus: Sequence[int], scratch: Path
    ) -> Iterator[_Running]:
        """Needs no start; see `System.running`."""
        yield _Running([model.name for model in models])


class _Running:
    """The load generator with `_Client`."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def replay(self, arrivals: Arrivals, allowance: Allowance | None = None) -> Observed:
        return replay(_Client(), self._names, arrivals, allowance=allowance)


class _Slot(Slot):
    """A slot that is of no server."""

    __slots__ = ()

    def __init__(self, model: str) -> None:
        self.model = model

    def release(self) -> None:
        pass


class _Client:
    """Completes each query when it is submitted."""

    def __init__(self) -> None:
        self._completed: deque[Completion] = deque()

    def allocate(self, model: str) -> Slot:
        return _Slot(model)

    def submit(self, slot: Slot, *, arrival_ns: int | None = None, tag: int = 0) -> None:
        self._completed.append(
            Completion(
                slot=slot,
                tag=tag,
                ok=True,
                error="",
                reason="",
                queue_ns=0,
                compute_ns=0,
                end_ns=time.monotonic_ns(),
            )
        )

    def poll(self, limit: int = 1024) -> list[Completion]:
        count = min(limit, len(self._completed))
        return [self._completed.popleft() for _ in range(count)]

    def wait(self, timeout_s: float | None = None) -> list[Completion]:
        return self.poll()
