"""Measures the interference level at run time: `python -m veltair.eval.bench_level ARTIFACT...`.

What it costs: a block's share of it (its sample, and reading the level for the next one), a look of
the workers, an idle server, and the throughput of a server while it measures in turns with while it
doesn't. And how fast it follows a co-runner that comes and goes: from the change until the level
has passed the middle between what it is beside the co-runner and without.

By default one of the models is a network that memory bounds, which shows a co-runner best.
"""

from __future__ import annotations

import tempfile
import threading
import time
from contextlib import ExitStack
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from veltair.eval.bench_server import idle_share
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
from veltair.eval.real_runs import closed_loop, prefill
from veltair.eval.record import check_writable, spread, write_result
from veltair.eval.served import served
from veltair.proxy.co_runners import BUBBLES, CoRunnerOption, choose_co_runner
from veltair.proxy.proxy_file import ProxyFile
from veltair.proxy.sampler import OWN, PERIOD_NS, LevelSampler, Sampling, own_models
from veltair.proxy.sources.computer import Computer
from veltair.proxy.topology import divided, usable
from veltair.runtime._native import ipc, sched

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from veltair.runtime.client import LocalClient

MODULE = "bench_level"
BLOCK_BOUND_NS = 10_000
THROUGHPUT_BOUND = 0.005
FOLLOW_BOUND_NS = 50_000_000
_MS = 1_000_000
_LAYERS = 1_000
_CALLS = 900
_LOOK_S = 0.001
_APART = 3.0  # levels beside and without a co-runner differ by so many times what each varies by


def command(
    folders: Folders = None,
    wide: Wide = 4096,
    proxy: Proxy = None,
    levels: Levels = 4,
    co_runner: CoRunnerOption = BUBBLES,
    rounds: Annotated[int, typer.Option(min=2, help="Of both ways.")] = 20,
    window_s: Annotated[float, typer.Option(min=0.1, help="Of each way.")] = 3.0,
    changes: Annotated[int, typer.Option(min=4, help="Of the co-runner.")] = 40,
    period_s: Annotated[float, typer.Option(min=0.1, help="Between two of them.")] = 1.0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where to save it.")] = None,
) -> None:
    """Measure what measuring the interference level costs, and how fast it follows."""
    check_writable(json_file)
    kind = choose_co_runner(co_runner)
    sides = divided(usable())
    result = {
        **origin(MODULE),
        "co_runner": kind,
        "block": block_costs(),
        "throughput": [],
        "follow": [],
    }
    print(f"block: {result['block']}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        made = with_levels(folders or [], wide, scratch, levels, kind)
        repository = scratch / "repository"
        beside = LevelServer(repository=repository, cores=sides.quiet, workers=1, proxy=proxy)
        whole = LevelServer(repository=repository, cores=usable(), workers=1, proxy=proxy)
        result["idle_share"] = idle(whole, scratch)
        for name, manifest in made.items():
            about = {"model": name, "levels": list(manifest.profile.levels)}
            row = about | throughput(whole, scratch, name, rounds, window_s)
            result["throughput"].append(row)
            print(f"throughput: {row}", flush=True)
            runner = ComingAndGoing(sides.bubbles, period_s, weights_of(repository, [name]), kind)
            row = about | follow(beside, scratch, name, runner, changes)
            result["follow"].append(row)
            print(f"follow: {row}", flush=True)
    if json_file is not None:
        write_result(json_file, result)


def block_costs(samples: int = 100) -> dict[str, Any]:
    """Times what a block pays: its end with a sample and a level, in turns with one without."""
    profile = sched.ModelProfile(
        qos_ns=_MS,
        cores=[1],
        levels=2,
        slowdowns=[0.0, 0.5],
        model_ns=[_MS, 2 * _MS],
        variants=[1] * _LAYERS,
        layer_ns=[1000, 2000] * _LAYERS,
    )
    segment = _one_model()
    board = ipc.Board(segment)
    board.set_model_state(0, ipc.ModelState.READY, "")
    board.set_state(ipc.ServerState.SERVING)
    board.join(0, 1, 0)
    client = ipc.Client(segment)
    sample = ipc.BlockSample(
        core=0, took_ns=1500, alone_ns=1000, sensitivity_ns=2000, highest_slowdown=0.5
    )
    plain = ipc.Scheduler("layer", 1, [profile])
    measured = ipc.Scheduler("layer", 1, [profile], measured=segment)
    times_ns = np.empty((samples, 2))
    for row in times_ns:
        for column, (scheduler, took) in enumerate(((plain, None), (measured, sample))):
            _, query = client.allocate(0)
            client.submit(query, 0, 0, 0)
            board.take(0, scheduler, 0)
            begun_ns = time.perf_counter_ns()
            for layer in range(1, _CALLS + 1):
                board.next_block(0, scheduler, layer, layer, took)
            row[column] = (time.perf_counter_ns() - begun_ns) / _CALLS
            board.complete(0, "", 0)
            client.poll(1)
            client.release(query)
    return {
        "bound_ns": BLOCK_BOUND_NS,
        "without_ns": spread(times_ns[:, 0]),
        "with_ns": spread(times_ns[:, 1]),
        "more_ns": spread(times_ns[:, 1] - times_ns[:, 0]),
        "look_ns": spread(_looks(segment, samples)),
    }


def _one_model() -> ipc.Segment:
    model = ipc.ModelSpec(
        name="m",
        version=1,
        input_bytes=[1],
        output_bytes=[1],
        slots=2,
        qos_ns=0,
        needed_cores=1,
        expected_ns=_MS,
        metadata=b"",
    )
    policies = ipc.Policies(scheduling="layer", measured=True)
    return ipc.Segment.create(cpus=[0], workers=1, policies=policies, models=[model])


def _looks(segment: ipc.Segment, samples: int) -> NDArray[np.int64]:
    """Times what the sampler does each time, own blocks alone."""
    sampler = LevelSampler(
        segment, Sampling(cpus=[0], complexes=[0], computer=Computer(), source="self")
    )
    times_ns = np.empty(samples, np.int64)
    for index in range(samples):
        begun_ns = time.perf_counter_ns()
        for _ in repeat(None, 10):
            sampler.sample()
        times_ns[index] = (time.perf_counter_ns() - begun_ns) // 10
    return times_ns


def idle(server: LevelServer, scratch: Path, seconds: float = 5.0) -> float:
    """Returns what a server that measures takes while nobody asks, in cores."""
    config = scratch / "idle.toml"
    config.write_text(server.config())
    with served(server.repository, workers=server.workers, config=config) as running_server:
        return idle_share(running_server, seconds)


def throughput(
    server: LevelServer, scratch: Path, model: str, rounds: int, window_s: float
) -> dict[str, Any]:
    """Asks a server while it measures and while it doesn't in turns, as fast as it answers.

    It is one server, whose workers look or don't: of two alike, one is up to 2 % faster for as long
    as they run, by where their memory happens to lie. (That each block adds its times to sums is
    in both; `block` has what it costs.) Where a thread reads another source, it is two servers,
    started anew in each round.

    Returns:
        Queries a second of both, and the spread of their ratio, round by round.
    """
    with running(server, scratch) as (client, segment):
        prefill(client)
        board = ipc.Board(segment)
        one = board.level_report().source == OWN
        if one:
            rates = switched(board, server, client, model, rounds, window_s)
    if not one:
        rates = restarted(server, scratch, model, rounds, window_s)
    ratio = rates[:, 1] / rates[:, 0]
    return {
        "bound": THROUGHPUT_BOUND,
        "servers": 1 if one else 2,
        "rounds": rounds,
        "window_s": window_s,
        "qps_without": spread(rates[:, 0]),
        "qps_with": spread(rates[:, 1]),
        "ratio": spread(ratio),
        # About twice the standard error of the median.
        "ratio_error": float(np.subtract(*np.percentile(ratio, [90, 10])) / np.sqrt(rounds)),
    }


def switched(
    board: ipc.Board,
    server: LevelServer,
    client: LocalClient,
    model: str,
    rounds: int,
    window_s: float,
) -> NDArray[np.float64]:
    """Returns queries a second of a server whose workers don't look, and look, in each round."""
    models = own_models(None if server.proxy is None else ProxyFile.read(server.proxy))

    def rate(column: int) -> float:
        board.measure_by_blocks(models, PERIOD_NS * column, time.monotonic_ns())
        _rate(client, model, 2 * ipc.STALE_NS / 1e9)  # until the last level is forgotten
        return _rate(client, model, window_s / 2)

    return np.array([_in_turns(rate, _order(turn)) for turn in range(rounds)])


def restarted(
    server: LevelServer, scratch: Path, model: str, rounds: int, window_s: float
) -> NDArray[np.float64]:
    """Returns queries a second of a server that doesn't measure, and one that does, likewise."""
    without = LevelServer(
        repository=server.repository, cores=server.cores, workers=server.workers, source="none"
    )
    pair = (without, server)
    clients: dict[int, LocalClient] = {}
    rates = []
    for turn in range(rounds):
        with ExitStack() as stack:
            for column in _order(turn):
                clients[column], _ = stack.enter_context(running(pair[column], scratch))
                prefill(clients[column])
                closed_loop(clients[column], {model: 1}, 5)
            rate = partial(_rate_of, clients, model, window_s / 2)
            rates.append(_in_turns(rate, _order(turn)))
    return np.array(rates)


def _order(turn: int) -> tuple[int, int]:
    return (0, 1) if turn % 2 == 0 else (1, 0)  # neither is always the first


def _in_turns(rate: Callable[[int], float], order: tuple[int, int]) -> list[float]:
    """Both ways' rates, each the mean of two: there and back, so that a drift falls out."""
    found: dict[int, list[float]] = {0: [], 1: []}
    for column in (*order, *reversed(order)):
        found[column].append(rate(column))
    return [float(np.mean(found[column])) for column in (0, 1)]


def _rate_of(clients: Mapping[int, LocalClient], model: str, window_s: float, column: int) -> float:
    return _rate(clients[column], model, window_s)


def _rate(client: LocalClient, model: str, window_s: float) -> float:
    count, begun = 0, time.monotonic()
    while time.monotonic() - begun < window_s:
        count += len(closed_loop(client, {model: 2}, 10)[model])
    return count / (time.monotonic() - begun)


def follow(
    server: LevelServer,
    scratch: Path,
    model: str,
    runner: ComingAndGoing,
    changes: int,
) -> dict[str, Any]:
    """Watches the level of a busy server while a co-runner comes and goes."""
    looks: list[tuple[int, float, float]] = []
    with running(server, scratch) as (client, segment):
        prefill(client)
        ended = threading.Event()

        def ask() -> None:
            while not ended.is_set():
                closed_loop(client, {model: 1}, 10)

        asking = threading.Thread(target=ask, name="asking")
        asking.start()
        try:
            with runner:
                while len(runner.changes) < changes:
                    level = segment.level()
                    known = level.is_known(time.monotonic_ns())
                    slowdown = level.slowdown / ipc.MILLION if known else np.nan
                    looks.append((time.monotonic_ns(), slowdown, level.confidence / ipc.MILLION))
                    time.sleep(_LOOK_S)
        finally:
            ended.set()
            asking.join()
        source = client.stats().level_source
    return {"source": source} | followed(np.array(looks), runner.changes, runner.period_s)


def followed(
    looks: NDArray[np.float64], changes: Sequence[tuple[int, bool]], period_s: float
) -> dict[str, Any]:
    """Sums up how a level followed changes.

    Args:
        looks: float64[looks, 3]: when (ns), the level (NaN where it wasn't known), its confidence.
        changes: when a co-runner came or went.
        period_s: between two of them.

    Returns:
        The level beside the co-runner and without, over the later half of each time; and, where
        they are clearly apart, the times from each change until the level had passed the middle.
    """
    period_ns = period_s * 1e9
    halves: dict[bool, list[float]] = {True: [], False: []}
    for at_ns, came in changes:
        later = (looks[:, 0] > at_ns + period_ns / 2) & (looks[:, 0] < at_ns + period_ns)
        if np.isfinite(looks[later, 1]).any():
            halves[came].append(float(np.nanmedian(looks[later, 1])))
    result: dict[str, Any] = {
        "bound_ns": FOLLOW_BOUND_NS,
        "known": float(np.mean(np.isfinite(looks[:, 1]))),
        "confidence": spread(looks[:, 2]),
    }
    if not (halves[True] and halves[False]):
        return result | {"apart": False}
    beside, without = np.array(halves[True]), np.array(halves[False])
    result |= {"beside": spread(beside), "without": spread(without)}
    middle = (np.median(beside) + np.median(without)) / 2
    noise = max(np.std(beside), np.std(without))
    if np.median(beside) - np.median(without) <= _APART * noise:
        return result | {"apart": False}
    times: dict[bool, list[float]] = {True: [], False: []}
    for at_ns, came in changes:
        after = looks[(looks[:, 0] >= at_ns) & (looks[:, 0] < at_ns + period_ns)]
        passed = after[(after[:, 1] > middle) == came]
        passed = passed[np.isfinite(passed[:, 1])]
        times[came].append(passed[0, 0] - at_ns if len(passed) else period_ns)
    return result | {
        "apart": True,
        "rise_ns": spread(np.array(times[True], dtype=np.int64)),
        "fall_ns": spread(np.array(times[False], dtype=np.int64)),
    }


if __name__ == "__main__":
    run_benchmark(MODULE, command)
