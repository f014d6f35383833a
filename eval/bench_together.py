"""Several networks in one server: `python -m veltair.eval.bench_together REPOSITORY`.

Every worker runs every network, so that all that a worker will ever need of memory is there when it
is counted: what processes share (weights, kernels, libraries) once, all else for each.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import psutil
import typer

from veltair.eval.bench_server import ask, processes, workers_private_bytes
from veltair.eval.benchmark import origin, run_benchmark
from veltair.eval.record import check_writable, write_result
from veltair.eval.served import served
from veltair.runtime.artifact import find_artifacts
from veltair.runtime.client import LocalClient
from veltair.runtime.errors import InputError
from veltair.runtime.manifest import WEIGHTS_FILE

if TYPE_CHECKING:
    from collections.abc import Iterable

MODULE = "bench_together"
WORKER_BYTES = 150 << 20
_ROUNDS = 3  # each with a query to each model for each worker


def command(
    repository: Annotated[Path, typer.Argument(help="Artifacts to serve.")],
    workers: Annotated[int, typer.Option(min=1, max=64)] = 2,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to save it.")] = None,
) -> None:
    """Measure the memory of a server of all networks of a repository."""
    check_writable(json_file)
    found = find_artifacts(repository, verify=False)
    manifests = [each.artifact.manifest for each in found if each.artifact is not None]
    if len(manifests) < len(found) or not found:
        raise InputError(f"{repository}: not every artifact can be used; see veltair inspect")
    weights = sum(manifest.files[WEIGHTS_FILE].size_bytes for manifest in manifests)
    result = origin(MODULE)
    result |= {"models": [m.name for m in manifests], "workers": workers, "weights_bytes": weights}
    with served(repository, workers=workers) as server, LocalClient.attach(server.address) as own:
        for name in result["models"] * _ROUNDS:
            ask(own, name, 2 * workers)
        result["total_bytes"] = proportional_bytes(processes(server))
        result["workers_private_bytes"] = workers_private_bytes(server)
    result["arenas_bytes"] = sum(manifest.arena_bytes for manifest in manifests)
    result["bound_bytes"] = weights + workers * WORKER_BYTES
    told = ("weights_bytes", "arenas_bytes", "total_bytes", "bound_bytes")
    print(f"{', '.join(result['models'])} on {workers} workers")
    for name in told:
        print(f"{name}: {result[name] / 1e6:.1f} MB")
    for rank, private in result["workers_private_bytes"].items():
        print(f"worker {rank}, by itself: {private / 1e6:.1f} MB")
    if json_file is not None:
        write_result(json_file, result)


def proportional_bytes(running: Iterable[psutil.Process]) -> int:
    """Returns the memory of all processes together; what several share counts once."""
    return sum(process.memory_full_info().pss for process in running)


if __name__ == "__main__":
    run_benchmark(MODULE, command)
