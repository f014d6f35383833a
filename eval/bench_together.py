"""Several networks in one server: `python -m veltair.eval.bench_together MODEL...`.

Every worker runs every network, so that all that a worker will ever need of memory is there when it
is counted: what processes share (weights, kernels, libraries) once, all else for each.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import psutil
import typer

from veltair.eval.bench_server import ask, processes, workers_private_bytes
from veltair.eval.benchmark import origin, run_benchmark
from veltair.eval.record import check_writable, write_result
from veltair.eval.served import served
from veltair.runtime.artifact import open_artifact
from veltair.runtime.client import LocalClient
from veltair.runtime.manifest import WEIGHTS_FILE
from veltair.runtime.scratch import scratch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MODULE = "bench_together"
WORKER_BYTES = 150 << 20
_ROUNDS = 3  # each with a query to each model for each worker


def command(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL...", help="<model>/ of each.")],
    workers: Annotated[int, typer.Option(min=1, max=64)] = 2,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to save it.")] = None,
) -> None:
    """Measure the memory of a server of several networks."""
    check_writable(json_file)
    manifests = [open_artifact(model, verify=False).manifest for model in models]
    names = [manifest.name for manifest in manifests]
    result = origin(MODULE)
    result |= {"models": names, "workers": workers, "worker_bytes": WORKER_BYTES}
    result["weights_bytes"] = sum(m.files[WEIGHTS_FILE].size_bytes for m in manifests)
    arena_bytes = max(manifest.arena_bytes for manifest in manifests)  # one for all
    result["activations_bytes"] = arena_bytes + sum(m.bordered_bytes for m in manifests)
    with scratch("together") as repository:
        for name, model in zip(names, models, strict=True):
            (repository / name).symlink_to(model.resolve())
        result |= measured(repository, names, workers)
    print(f"{', '.join(names)} on {workers} workers")
    for name in ("weights_bytes", "activations_bytes", "total_bytes"):
        print(f"{name}: {result[name] / 1e6:.1f} MB")
    for rank, private in result["workers_private_bytes"].items():
        print(f"worker {rank}, by itself: {private / 1e6:.1f} MB")
    if json_file is not None:
        write_result(json_file, result)


def measured(repository: Path, names: Sequence[str], workers: int) -> dict[str, Any]:
    """Returns `total_bytes` of all processes, and `workers_private_bytes` by rank."""
    with served(repository, workers=workers) as server, LocalClient.attach(server.address) as own:
        for name in [*names] * _ROUNDS:
            ask(own, name, 2 * workers)
        return {
            "total_bytes": proportional_bytes(processes(server)),
            "workers_private_bytes": workers_private_bytes(server),
        }


def proportional_bytes(running: Iterable[psutil.Process]) -> int:
    """Returns the memory of all processes together; what several share counts once."""
    return sum(process.memory_full_info().pss for process in running)


if __name__ == "__main__":
    run_benchmark(MODULE, command)
