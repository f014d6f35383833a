"""Our server as a system of the comparison, once for each scheduling policy."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING

from veltair.eval.artifact_copies import copy_artifact
from veltair.eval.capacity.gantt import SECOND_NS, second
from veltair.eval.capacity.peers.log import LOG_FILE
from veltair.eval.capacity.peers.processor_time import processor_ns, tree, used_ns
from veltair.eval.outcomes import LEAD_NS
from veltair.eval.real_runs import ServerPlan, replay, running_server
from veltair.runtime.artifact import open_artifact
from veltair.runtime.machine import SPARE_WORKERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from veltair.eval.capacity.result import Bar
    from veltair.eval.capacity.system import Candidate, Observed
    from veltair.eval.outcomes import Allowance
    from veltair.eval.served import Served
    from veltair.runtime.client import LocalClient
    from veltair.runtime.simulate.arrivals import Arrivals

POLICIES = (
    "model",
    "layer",
    "block-6",
    "block-11",
    "prema",
    "veltair-as",
    "veltair-ac",
    "veltair",
    "deadline",
    "veltair-deadline",
)


def late_percent(percentile: float) -> int:
    """Returns the `late_percent` of a server of which so many queries in 100 must be in time."""
    return max(1, round(100 - percentile))


class Ours:
    """A real server with one scheduling policy, asked over its shared segment."""

    kind = "ours"

    def __init__(self, policy: str, percentile: float = 95.0) -> None:
        """Takes the policy, whose name the system has, and the share that must be in time."""
        self.name = policy
        self._late_percent = late_percent(percentile)

    def missing(self) -> str | None:
        """Nothing is."""
        return None

    def version(self) -> str:
        """Of this package."""
        return version("veltair")

    def settings(self, cores: int) -> Sequence[str]:
        """Ours are one setting."""
        return (f"{cores + SPARE_WORKERS} workers",)

    @contextmanager
    def running(
        self, setting: str, models: Sequence[Candidate], cpus: Sequence[int], scratch: Path
    ) -> Iterator[OursRunning]:
        """Serves copies of the artifacts that have the workload's targets; see `System.running`."""
        with self._serving(models, cpus, scratch) as (client, server):
            yield OursRunning(client, server, [model.name for model in models])

    def second(
        self, models: Sequence[Candidate], cpus: Sequence[int], scratch: Path, arrivals: Arrivals
    ) -> tuple[Bar, ...]:
        """Returns the blocks of a run's second second; see `Recorded.second`."""
        record = scratch / "decisions.jsonl"
        with self._serving(models, cpus, scratch, record) as (client, _):
            zero_ns = time.monotonic_ns() + LEAD_NS
            observed = replay(client, [model.name for model in models], arrivals, zero_ns)
        return second(record, arrivals, observed, zero_ns=zero_ns, from_ns=SECOND_NS)

    @contextmanager
    def _serving(
        self,
        models: Sequence[Candidate],
        cpus: Sequence[int],
        scratch: Path,
        record: Path | None = None,
    ) -> Iterator[tuple[LocalClient, Served]]:
        """Serves the copies; each decision goes to `record`, where one is named."""
        repository = scratch / "repository"
        for model in models:
            assert model.artifact is not None
            copy_artifact(
                open_artifact(model.artifact, verify=False),
                repository / model.name,
                qos_ns=model.qos_ns,
            )
        plan = ServerPlan(
            repository=repository,
            policy=self.name,
            late_percent=self._late_percent,
            workers=len(cpus) + SPARE_WORKERS,
            cores=tuple(cpus),
            record=record,
            log=scratch / LOG_FILE,
        )
        with running_server(plan, scratch) as served:
            yield served


class OursRunning:
    """Our server, up; a `Running`."""

    def __init__(self, client: LocalClient, server: Served, names: Sequence[str]) -> None:
        """Takes the server, its client, and the models' names in their order."""
        self._client = client
        self._server = server
        self._names = names

    @property
    def address(self) -> str:
        """Of the server's HTTP, by which other clients attach."""
        return self._server.address

    def replay(self, arrivals: Arrivals, allowance: Allowance | None = None) -> Observed:
        """See `Running.replay`."""
        pid = self._server.process.pid
        before = processor_ns(tree(pid))
        observed = replay(self._client, self._names, arrivals, allowance=allowance)
        return replace(observed, busy_ns=used_ns(before, processor_ns(tree(pid))))
