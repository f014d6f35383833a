"""Every scheduling policy on a real server: `python -m veltair.eval.policies REPOSITORY`.

For each pair of models, each policy gets the same Poisson arrivals at loads from light to beyond
capacity, open loop. The capacity is defined once a pair, from profiles measured just before the
first point. All is measured in several rounds, one after the other, and a point's figures are the
medians over them: a machine that shares its host is slower for minutes, and so for some policies of
a round and not for others. Finished points are kept: a command that was stopped goes on where it
was.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
import typer

from veltair.eval.artifact_copies import check_targets, copy_artifacts
from veltair.eval.benchmark import origin, run_benchmark
from veltair.eval.children import stopped_by_signals
from veltair.eval.fresh_profile import profiled
from veltair.eval.latency_figures import Figures, Outcomes, by_model, to_json
from veltair.eval.patience import Patience
from veltair.eval.points import PointStore, circumstances
from veltair.eval.policies_report import markdown
from veltair.eval.real_runs import ServerPlan, replay, running
from veltair.eval.record import write_result
from veltair.eval.run_options import (
    RESULTS,
    Attempts,
    Fresh,
    Out,
    Repository,
    Scratch,
    Seed,
    WaitS,
    Workers,
)
from veltair.eval.workload import Workload, capacity_qps, digests
from veltair.runtime._native import sched
from veltair.runtime.artifact import open_artifact
from veltair.runtime.config import parse_config
from veltair.runtime.disturbance import Disturbance
from veltair.runtime.errors import ConfigError, VeltairError
from veltair.runtime.machine import usable_cores
from veltair.runtime.manifest import Profile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from veltair.runtime.manifest import Manifest

STEM = "policies"
SCRATCH = Path("build/policies")
PAIRS = "resnet50+mobilenet_v2,resnet50+googlenet"
START_S = 6.0  # of a server, its warm-up and its end, for the estimate
ADMISSION = "+admission"


@dataclass(frozen=True, kw_only=True)
class Point:
    """One policy at one load, in one round.

    Attributes:
        pair: the models, joined by `+`.
        policy: of scheduling; with `+admission` where the server refused what it predicted to be
            late.
        load: share of the capacity.
        round: from 0.
        figures: by model, and of `all`.
        disturbance: what else ran.
        errors: of queries that the server failed.
    """

    pair: str
    policy: str
    load: float
    round: int
    figures: dict[str, Figures]
    disturbance: Disturbance
    errors: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to measure, from the command line.

    Attributes:
        policies: of scheduling; each is also run with admission where `admission_loads` says so.
        loads: shares of the capacity.
        admission_loads: those at which policies that refuse nothing are run with admission too.
        queries: of a point, in each round.
        rounds: that all is measured in.
        workers: of the servers.
        slots: a model.
        seed: of the first round's arrivals; each next round's is one higher.
        patience: with other processes.
    """

    policies: tuple[str, ...]
    loads: tuple[float, ...]
    admission_loads: tuple[float, ...]
    queries: int
    rounds: int
    workers: int
    slots: int
    seed: int
    patience: Patience


@dataclass(frozen=True, kw_only=True)
class Server:
    """What one server is asked.

    Attributes:
        policy: of scheduling.
        admission: whether it refuses what it predicts to be late.
        loads: shares of the capacity.
    """

    policy: str
    admission: bool
    loads: tuple[float, ...]

    @property
    def label(self) -> str:
        """The policy's name in the tables."""
        return self.policy + ADMISSION * self.admission


def command(
    repository: Repository,
    out: Out = RESULTS,
    pairs: Annotated[str, typer.Option(help="Models that are asked for together.")] = PAIRS,
    policies: Annotated[str, typer.Option(help="All that there are, if not set.")] = "",
    loads: Annotated[str, typer.Option(help="Shares of the capacity.")] = "0.3,0.6,0.9,1.2",
    admission_loads: Annotated[
        str, typer.Option(help="Those to repeat with the server's admission; may be empty.")
    ] = "1.2",
    queries: Annotated[int, typer.Option(min=10, help="Of each point, in each round.")] = 160,
    rounds: Annotated[int, typer.Option(min=1, help="To measure all in.")] = 3,
    workers: Workers = None,
    slots: Annotated[int, typer.Option(min=1, help="Queries a model that may wait or run.")] = 64,
    seed: Seed = 1,
    attempts: Attempts = 2,
    wait_s: WaitS = 10.0,
    fresh: Fresh = False,
    scratch: Scratch = SCRATCH,
) -> None:
    """Measure all policies under rising load."""
    out.mkdir(parents=True, exist_ok=True)
    result = origin(STEM)
    store = PointStore(scratch / "points")
    if fresh:
        store.clear()
    plan = Plan(
        policies=_words(policies) or tuple(sched.policy_names()),
        loads=_numbers(loads),
        admission_loads=_numbers(admission_loads),
        queries=queries,
        rounds=rounds,
        workers=workers or usable_cores() + 2,
        slots=slots,
        seed=seed,
        patience=Patience(attempts=attempts, wait_s=wait_s),
    )
    chosen = [tuple(pair.split("+")) for pair in _words(pairs)]
    for models in chosen:
        check_targets(repository, models)
    with stopped_by_signals():
        benches = [Bench(repository, models, plan, scratch, store) for models in chosen]
        print(f"{STEM}: about {sum(each.left_s() for each in benches) / 60:.0f} minutes to go")
        for number in range(rounds):
            for bench in benches:
                bench.measure(number)
    points = [point for bench in benches for point in bench.points]
    result |= {
        "plan": asdict(plan),
        "pairs": {bench.pair: bench.facts() for bench in benches},
        "points": [to_json(asdict(point)) for point in points],
    }
    write_result(out / f"{STEM}.json", result)
    text = markdown(result, points)
    (out / f"{STEM}.md").write_text(text, encoding="utf-8")
    print(text)
    failures = {bench.pair: bench.failures for bench in benches if bench.failures}
    if failures:
        raise VeltairError(f"points are missing, the same command measures them: {failures}")


class Bench:
    """Measures one pair of models."""

    def __init__(
        self,
        repository: Path,
        models: tuple[str, ...],
        plan: Plan,
        scratch: Path,
        store: PointStore,
    ) -> None:
        """Measures the models' profiles, unless they are kept, and makes the repository."""
        self.pair = "+".join(models)
        self.points: list[Point] = []
        self.profile_disturbances: dict[str, float] = {}
        self.refusals: dict[str, str] = {}
        self.failures: dict[str, str] = {}
        self._plan = plan
        self._scratch = scratch
        self._store = store
        self._cores = usable_cores()
        self._circumstances = circumstances()
        self._workloads = [
            Workload(models=models, queries=plan.queries, seed=plan.seed + number)
            for number in range(plan.rounds)
        ]
        self._served = scratch / self.pair
        profiles = {name: self._profile(repository, name) for name in models}
        self._manifests: dict[str, Manifest] = copy_artifacts(
            repository, self._served, models, profiles=profiles
        )
        self.capacity_qps = capacity_qps(list(profiles.values()), self._cores)

    def facts(self) -> dict[str, Any]:
        """Returns what a report says of the pair beside its points."""
        return {
            "capacity_qps": self.capacity_qps,
            "qos_ns": {name: each.qos_ns for name, each in self._manifests.items()},
            "model_ns": {name: each.profile.model_ns for name, each in self._manifests.items()},
            "others_while_profiling": self.profile_disturbances,
            "not_served": self.refusals,
            "failed": self.failures,
        }

    def left_s(self) -> float:
        """Estimates the time that `measure` takes for all rounds."""
        total_s = 0.0
        for number in range(self._plan.rounds):
            for server in self._servers():
                missing = self._missing(server, number)
                total_s += START_S * bool(missing)
                total_s += sum(self._plan.queries / (load * self.capacity_qps) for load in missing)
        return total_s

    def measure(self, number: int) -> None:
        """Measures all points of a round that are not kept; `points` and `failures` get them."""
        for server in self._servers():
            missing = self._missing(server, number)
            try:
                if missing:
                    self._measure(server, number, missing)
            except VeltairError as error:
                self.failures[server.label] = str(error)
                print(f"{STEM}: {self.pair}: {server.label}: {error}", flush=True)
            kept = (self._store.get(self._key(server, number, load)) for load in server.loads)
            self.points += [msgspec.convert(point, Point) for point in kept if point is not None]

    def _missing(self, server: Server, number: int) -> list[float]:
        """The loads of a round that have not been measured."""
        return [
            load
            for load in server.loads
            if self._store.get(self._key(server, number, load)) is None
        ]

    def _servers(self) -> list[Server]:
        found = []
        for policy in self._plan.policies:
            try:
                parse_config({"scheduling": {"policy": policy}})
            except ConfigError as error:
                self.refusals[policy] = str(error)
                continue
            found.append(Server(policy=policy, admission=False, loads=self._plan.loads))
            if self._plan.admission_loads:
                loads = self._plan.admission_loads
                found.append(Server(policy=policy, admission=True, loads=loads))
        return found

    def _measure(self, server: Server, number: int, loads: Sequence[float]) -> None:
        plan = ServerPlan(
            repository=self._served,
            policy=server.policy,
            workers=self._plan.workers,
            slots=self._plan.slots,
            admission=server.admission,
        )
        workload = self._workloads[number]
        with running(plan, self._scratch) as client:
            for load in loads:
                begun = time.monotonic()
                arrivals = workload.arrivals(load * self.capacity_qps)
                observed, disturbance = self._plan.patience.quietest(
                    partial(replay, client, workload.models, arrivals)
                )
                qos_ns = [each.qos_ns for each in self._manifests.values()]
                outcomes = Outcomes(
                    arrival_ns=arrivals.time_ns,
                    model=arrivals.model,
                    start_ns=observed.start_ns,
                    end_ns=observed.end_ns,
                    outcome=observed.outcome,
                    qos_ns=np.array(qos_ns, np.int64),
                )
                point = Point(
                    pair=self.pair,
                    policy=server.label,
                    load=load,
                    round=number,
                    figures=by_model(outcomes, workload.models),
                    disturbance=disturbance,
                    errors=observed.errors,
                )
                self._store.put(self._key(server, number, load), asdict(point))
                share = point.figures["all"].satisfied_share
                print(
                    f"{STEM}: {self.pair}: round {number + 1}: {point.policy} at {load:g}: "
                    f"{share:.0%} satisfied ({time.monotonic() - begun:.0f} s)",
                    flush=True,
                )

    def _profile(self, repository: Path, name: str) -> Profile:
        key = self._circumstances | {
            "kind": "profile",
            "artifact": digests(repository, [name]),
        }
        kept = self._store.get(key)
        if kept is None:
            print(f"{STEM}: profile of {name}", flush=True)
            folder = open_artifact(repository / name).folder
            found, disturbance = self._plan.patience.quietest(partial(profiled, folder))
            kept = {"profile": found, "disturbance": disturbance}
            kept = msgspec.to_builtins(kept)
            self._store.put(key, kept)
        self.profile_disturbances[name] = kept["disturbance"]["others"]
        return msgspec.convert(kept["profile"], Profile)

    def _key(self, server: Server, number: int, load: float) -> dict[str, Any]:
        key = self._circumstances | {
            "kind": "point",
            "policy": server.policy,
            "admission": server.admission,
            "load": load,
            "workers": self._plan.workers,
            "slots": self._plan.slots,
            "workload": self._workloads[number],
            "manifests": self._manifests,
        }
        built: dict[str, Any] = msgspec.to_builtins(key)
        return built


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(word) for word in _words(text))


if __name__ == "__main__":
    run_benchmark(STEM, command)
