"""Measures what a server costs beside its models: `python -m veltair.eval.bench_server REPOSITORY`.

Its start until it is ready, the processor time of all its processes while nobody asks, the time
from a query's submission to its start on a worker that sleeps, and the memory that its workers
share with no other process.
"""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import psutil
import typer

from veltair.eval.benchmark import origin, run_benchmark
from veltair.eval.record import check_writable, spread, write_result
from veltair.eval.served import served
from veltair.runtime.client import LocalClient
from veltair.runtime.errors import VeltairError
from veltair.runtime.manifest import read_manifest
from veltair.runtime.serve_command import RANK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from veltair.eval.served import Served

WORKERS = 2
SETTLE_S = 2.0
QUERIES_A_WORKER = 4
ANSWER_S = 60.0
PAUSE_S = 0.005


def command(
    repository: Annotated[Path, typer.Argument(help="Artifacts to serve.")],
    model: Annotated[str, typer.Option(help="The one to ask.")],
    starts: Annotated[int, typer.Option(min=1)] = 5,
    idle_s: Annotated[float, typer.Option(help="How long nobody asks.", min=1)] = 20.0,
    queries: Annotated[int, typer.Option(min=10, help="Asked one by one.")] = 200,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to save it.")] = None,
) -> None:
    """Measure a server's start, idleness, waking and memory."""
    check_writable(json_file)
    result = origin("bench_server")
    result |= {"model": model, "workers": WORKERS}
    start_ns = []
    for _ in range(starts):
        begun = time.monotonic_ns()
        with served(repository, workers=WORKERS) as server:
            start_ns.append(time.monotonic_ns() - begun)
            if len(start_ns) == starts:
                result["idle_share"] = idle_share(server, idle_s)
                with LocalClient.attach(server.address) as client:
                    ask(client, model, QUERIES_A_WORKER * WORKERS)
                    waits_ns = start_after_idleness_ns(client, model, queries)
                result["queue_ns"] = spread(np.array(waits_ns))
                result["workers_private_bytes"] = workers_private_bytes(server)
    (artifact,) = (repository / model).iterdir()
    result["arena_bytes"] = read_manifest(artifact).activation_bytes
    result["start_ns"] = spread(np.array(start_ns))
    for name in ("start_ns", "idle_share", "queue_ns", "workers_private_bytes", "arena_bytes"):
        print(f"{name}: {result[name]}")
    if json_file is not None:
        write_result(json_file, result)


def processes(server: Served) -> list[psutil.Process]:
    """Returns `veltair serve`, `mpirun`, and the ranks with their guardians."""
    root = psutil.Process(server.process.pid)
    return [root, *root.children(recursive=True)]


def idle_share(server: Served, seconds: float) -> float:
    """Returns the processor time of all processes while nobody asks, in cores."""
    time.sleep(SETTLE_S)
    before, begun = _cpu_s(processes(server)), time.monotonic()
    time.sleep(seconds)
    return (_cpu_s(processes(server)) - before) / (time.monotonic() - begun)


def ask(client: LocalClient, model: str, queries: int) -> list[int]:
    """Sends queries all at once and returns how long each waited for its start, ns.

    Raises:
        VeltairError: one was not answered.
    """
    slots = [client.allocate(model) for _ in range(queries)]
    for slot in slots:
        for values in slot.inputs.values():
            values[...] = 0
    patient_ns = time.monotonic_ns() + int(ANSWER_S * 1e9)  # none is refused for being late
    for slot in slots:
        client.submit(slot, deadline_ns=patient_ns)
    queued_ns: list[int] = []
    while len(queued_ns) < queries:
        completed = client.wait(ANSWER_S)
        if not completed or not all(completion.ok for completion in completed):
            raise VeltairError(f"{model}: a query was not answered within {ANSWER_S} s")
        queued_ns += [completion.queue_ns for completion in completed]
    for slot in slots:
        slot.release()
    return queued_ns


def start_after_idleness_ns(client: LocalClient, model: str, queries: int) -> list[int]:
    """Returns the times from submission to start of single queries to workers that sleep, ns."""
    waits_ns = []
    for _ in range(queries):
        time.sleep(PAUSE_S)
        waits_ns += ask(client, model, 1)
    return waits_ns


def workers_private_bytes(server: Served) -> dict[int, int]:
    """Returns the memory that each worker rank shares with no other process, by rank."""
    private: dict[int, int] = defaultdict(int)
    for process in processes(server):
        with suppress(psutil.NoSuchProcess):
            rank = int(process.environ().get(RANK, "0"))
            if rank > 0:  # the rank and its guardian
                private[rank] += process.memory_full_info().uss
    return dict(private)


def _cpu_s(running: Iterable[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in running)


if __name__ == "__main__":
    run_benchmark("bench_server", command)
