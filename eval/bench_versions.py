"""Measures what choosing versions brings: `python -m veltair.eval.bench_versions ARTIFACT...`.

The models are asked for at random times, equally often, on a server beside a co-runner that comes
and goes. In turns, with the same times, by one that measures the interference level and by one that
takes each layer's version for a machine of its own; both schedule by `veltair-ac`. A query is
satisfied if it ends within its target: by default so many times what it takes alone.

With `--wide` a network that memory bounds is there too: fully connected layers, whose weights no
cache holds, of one sample.

Reference: VELTAIR, sections 3.3 and 5.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from veltair.eval.benchmark import origin, run_benchmark
from veltair.eval.level_runs import (
    ComingAndGoing,
    Folders,
    Levels,
    LevelServer,
    Proxy,
    Wide,
    running,
    weights_of,
    with_levels,
)
from veltair.eval.real_runs import closed_loop, prefill, replay
from veltair.eval.record import check_writable, spread, write_result
from veltair.eval.workload import Workload, capacity_qps
from veltair.proxy.co_runners import BUBBLES, CoRunnerOption, choose_co_runner
from veltair.proxy.topology import divided, usable
from veltair.runtime.simulate.run import SERVED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from veltair.eval.capacity.system import Observed
    from veltair.runtime.manifest import Manifest
    from veltair.runtime.simulate.arrivals import Arrivals

MODULE = "bench_versions"
WAYS = {"one version": "none", "by the level": "auto"}
_MS = 1e6


def command(
    folders: Folders = None,
    wide: Wide = 4096,
    proxy: Proxy = None,
    levels: Levels = 4,
    co_runner: CoRunnerOption = BUBBLES,
    load: Annotated[
        float, typer.Option(min=0.01, max=2, help="Rate, of what keeps the cores busy alone.")
    ] = 0.6,
    stretch: Annotated[
        float, typer.Option(min=1, help="Target of a query, over its time alone.")
    ] = 3.0,
    rounds: Annotated[int, typer.Option(min=2, help="Of pairs of runs.")] = 10,
    run_s: Annotated[float, typer.Option(min=1, help="Of each.")] = 20.0,
    period_s: Annotated[float, typer.Option(min=0.1, help="Of the co-runner.")] = 1.0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to save it.")] = None,
) -> None:
    """Measure versions chosen by the level against one version."""
    check_writable(json_file)
    kind = choose_co_runner(co_runner)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        made = with_levels(folders or [], wide, scratch, levels, kind)
        sides = divided(usable())
        rate_qps = load * capacity_qps([each.profile for each in made.values()], len(sides.quiet))
        workload = Workload(models=tuple(made), queries=max(1, round(rate_qps * run_s)), seed=0)
        server = LevelServer(
            repository=scratch / "repository",
            cores=sides.quiet,
            workers=len(sides.quiet) + 1,
            proxy=proxy,
        )
        targets = {
            each: stretch * alone_ns(manifest, len(sides.quiet)) for each, manifest in made.items()
        }
        weights = weights_of(server.repository, made)
        with ComingAndGoing(sides.bubbles, period_s, weights, kind):
            found = compared(server, scratch, workload, rate_qps, targets, rounds)
    result = {
        **origin(MODULE),
        "cores": list(sides.quiet),
        "co_runner": kind,
        "co_runner_cpus": list(sides.bubbles),
        "period_s": period_s,
        "load": load,
        "rate_qps": rate_qps,
        "rounds": rounds,
        "queries": workload.queries,
        "target_ms": {each: target / _MS for each, target in targets.items()},
        "levels": {each: list(manifest.profile.levels) for each, manifest in made.items()},
        **found,
    }
    for name, row in result["models"].items():
        print(f"{name}: {row}", flush=True)
    if json_file is not None:
        write_result(json_file, result)


def alone_ns(manifest: Manifest, cores: int) -> int:
    """Returns the shortest time of a query alone on at most so many cores, by its profile."""
    profile = manifest.profile
    return min(
        row[0] for row, count in zip(profile.model_ns, profile.cores, strict=True) if count <= cores
    )


def compared(
    server: LevelServer,
    scratch: Path,
    workload: Workload,
    rate_qps: float,
    targets_ns: Mapping[str, float],
    rounds: int,
) -> dict[str, Any]:
    """Sends the same arrivals to both servers in turns.

    Returns:
        By model, for both ways the satisfied share and the mean latency, and the spread of what
        the level changes, round by round; how many decisions knew no level; the source.
    """
    latencies: dict[str, list[NDArray[np.float64]]] = {way: [] for way in WAYS}
    names = list(workload.models)
    arrivals = workload.arrivals(rate_qps)
    with ExitStack() as stack:
        clients = {}
        for way, source in WAYS.items():
            each = LevelServer(
                repository=server.repository,
                cores=server.cores,
                workers=server.workers,
                source=source,
                proxy=server.proxy if source != "none" else None,
            )
            clients[way], _ = stack.enter_context(running(each, scratch))
            prefill(clients[way])
            for name in names:
                closed_loop(clients[way], {name: 1}, 5)
        for turn in range(rounds):
            for way in list(WAYS) if turn % 2 == 0 else reversed(WAYS):
                observed = replay(clients[way], names, arrivals)
                latencies[way].append(latencies_ns(observed, arrivals))
        stats = clients["by the level"].stats()
    rows = {
        name: _row(name, np.array(arrivals.model) == index, latencies, targets_ns[name])
        for index, name in enumerate(names)
    }
    return {
        "source": stats.level_source,
        "level_unknown": stats.decisions_unmeasured / max(stats.decisions, 1),
        "models": rows,
    }


def latencies_ns(observed: Observed, arrivals: Arrivals) -> NDArray[np.float64]:
    """Returns the time of each query from its arrival to its end; infinite where none was served.

    Returns:
        float64[Q].
    """
    took = (observed.end_ns - np.asarray(arrivals.time_ns)).astype(np.float64)
    took[observed.outcome != SERVED] = np.inf
    return took


def _row(
    name: str,
    own: NDArray[np.bool_],
    latencies: Mapping[str, list[NDArray[np.float64]]],
    target_ns: float,
) -> dict[str, Any]:
    satisfied, means = {}, {}
    for way, runs in latencies.items():
        times = [run[own] for run in runs]
        satisfied[way] = np.array([np.mean(each <= target_ns) for each in times])
        means[way] = np.array([np.mean(each[np.isfinite(each)]) for each in times]) / _MS
    first, second = WAYS
    return {
        "model": name,
        "satisfied": {way: float(np.mean(shares)) for way, shares in satisfied.items()},
        "mean_ms": {way: spread(each) for way, each in means.items()},
        "satisfied_more": spread(satisfied[second] - satisfied[first]),
        "mean_ratio": spread(means[second] / means[first]),
    }


if __name__ == "__main__":
    run_benchmark(MODULE, command)
