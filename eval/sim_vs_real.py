"""The simulator against the server: `python -m veltair.eval.sim_vs_real REPOSITORY`.

The same Poisson arrivals go, when they are due, to a real server, and to the simulator with the
same artifacts, the same policy and the same number of workers. What the server costs is measured
right before each load's runs (`calibration`) and given to the simulator as parameters. Machines
change their speed from one minute to the next, so a run is cut into slices, and before and after
each the server is asked for the time of lone queries and of such that others run beside: by these
the simulator's profile of a slice is scaled. Over a run they tell how much slower a query is for
its neighbours, and how uneven the machine is within a slice: the simulated one's pace varies as
much, and since no pace comes twice, each run is simulated with several. A slice during which the
machine changed, by the queries before and after it, is run again.

That is what can be foretold. A host whose neighbours come and go within a slice makes another pace
of it, and waiting amplifies that: at 0.7 of the capacity a few percent of service time are tens of
percent of waiting. So each run is also simulated at the pace that the machine had meanwhile, as the
record of the server's blocks tells it from step to step: then both sides have the same machine, and
what differs is what the simulator makes of queues, cores, blocks and policies.

Targets are twice those of the artifacts: where a target lies within a model's own spread, as 50 ms
for ResNet-50 on one core here, the satisfied share is a coin's side and not a property of either.
Both sides are judged by one computation (`latency_figures`). Takes about a quarter of an hour; what
has been measured is kept, so that a command that was stopped goes on where it was.
"""

from __future__ import annotations

import math
import time
from collections import ChainMap
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import numpy as np
import typer

from veltair.eval.artifact_copies import check_targets, copy_artifacts
from veltair.eval.benchmark import origin, run_benchmark
from veltair.eval.calibration import (
    Calibration,
    Costs,
    calibrate,
    measure_costs,
    neighbours,
    probe_queries,
    scaled,
    with_levels,
)
from veltair.eval.children import stopped_by_signals
from veltair.eval.latency_figures import Figures, Outcomes, by_model, to_json
from veltair.eval.outcomes import LEAD_NS
from veltair.eval.patience import Patience
from veltair.eval.points import PointStore, circumstances
from veltair.eval.real_runs import ServerPlan, replay, running
from veltair.eval.record import write_result
from veltair.eval.recorded_blocks import machine_pace, predicted_ns, recorded_blocks
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
from veltair.eval.sim_vs_real_report import markdown
from veltair.eval.unevenness import LEAST_MEMORY_NS, ProbeQuery, Unevenness, unevenness
from veltair.eval.workload import Workload, capacity_qps, digests
from veltair.runtime._native import sched
from veltair.runtime.artifact import open_artifact
from veltair.runtime.disturbance import Disturbance
from veltair.runtime.machine import usable_cores
from veltair.runtime.policy_profile import to_profile
from veltair.runtime.simulate.arrivals import Arrivals
from veltair.runtime.simulate.run import SERVED, KnownPace, simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from veltair.eval.capacity.system import Observed
    from veltair.eval.recorded_blocks import Block
    from veltair.runtime.client import LocalClient
    from veltair.runtime.manifest import Manifest

STEM = "sim_vs_real"
SCRATCH = Path("build/sim_vs_real")
SLICE_QUERIES = 120
PROBES = 10  # of each model, alone, and as many beside others
STEADY = 0.1  # of the probes' times, that may change from a slice's begin to its end
TRIES = 3  # of a slice, at most
PACES = 8  # of which each simulated run is
PACE_QUERIES = 400  # that come alone, for what such a pace makes of a query's mean time
PACE_STEP_NS = 20_000_000  # of the machine's pace during a run
EVEN = Unevenness(spread=0.0, memory_ns=LEAST_MEMORY_NS)
_NS_PER_US = 1000
_NS_PER_MS = 1_000_000

Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True)
class Probes:
    """What tells the machine's speed between two slices.

    Attributes:
        alone: queries that nothing ran beside.
        beside: such that others kept the other cores busy meanwhile.
    """

    alone: list[ProbeQuery]
    beside: list[ProbeQuery]

    def alone_ns(self, model: str) -> list[int]:
        """How long each query of the model was served alone."""
        return [each.compute_ns for each in self.alone if each.model == model]

    def beside_ns(self, model: str) -> list[int]:
        """How long each query of the model was served beside others."""
        return [each.compute_ns for each in self.beside if each.model == model]


@dataclass(frozen=True, kw_only=True)
class Slice:
    """A part of a run, with both ends of it.

    Attributes:
        arrivals: of the part, from 0.
        observed: what became of them.
        zero_ns: its time 0 on the monotonic clock.
        before: right before it.
        after: right after it.
    """

    arrivals: Arrivals
    observed: Observed
    zero_ns: int
    before: Probes
    after: Probes

    def ends(self) -> dict[int, int]:
        """When the served queries ended, by their arrivals, both on the monotonic clock."""
        served = self.observed.outcome == SERVED
        arrival_ns = (self.arrivals.time_ns[served] + self.zero_ns).tolist()
        end_ns = (self.observed.end_ns[served] + self.zero_ns).tolist()
        return dict(zip(arrival_ns, end_ns, strict=True))

    def change(self) -> float:
        """By which factor the probes' times changed meanwhile, less 1, whichever the direction."""
        logs = [
            math.log(np.mean(of(self.after, model)) / np.mean(of(self.before, model)))
            for model in {each.model for each in self.before.alone}
            for of in (Probes.alone_ns, Probes.beside_ns)
        ]
        return math.exp(abs(sum(logs)) / len(logs)) - 1

    def speed(self, model: str, alone_ns: float, beside_ns: float) -> float:
        """How much longer the model's probes took than expected, as much by both kinds.

        Args:
            model: name.
            alone_ns: expected of a query alone.
            beside_ns: expected beside others.
        """
        ends = (self.before, self.after)
        alone = np.concatenate([each.alone_ns(model) for each in ends])
        beside = np.concatenate([each.beside_ns(model) for each in ends])
        return float(alone.mean() / alone_ns + beside.mean() / beside_ns) / 2


def steadiest(run: Callable[[Probes], Slice], before: Probes) -> list[Slice]:
    """Runs a slice again while the machine changes during it, as its probes tell.

    Only they decide, never what became of the slice's own queries.

    Args:
        run: once, after the probes that it is given.
        before: the first time.

    Returns:
        All tries in their order; the one with the least change counts.
    """
    tries: list[Slice] = []
    while len(tries) < TRIES:
        tries.append(run(tries[-1].after if tries else before))
        if tries[-1].change() <= STEADY:
            break
    return tries


@dataclass(frozen=True, kw_only=True)
class Point:
    """One policy at one load, on both sides.

    Attributes:
        policy: of scheduling.
        load: share of the capacity.
        rate_qps: of all models.
        real: figures of the server, by model and of `all`.
        simulated: the same of the simulator, at the pace that the machine had.
        foretold: the same at the pace that the queries between slices foretell.
        late_ms: mean time by which the driver submitted late.
        disturbance: what else ran during the real run.
        pace: of the machine by slice: time of its blocks over what the calibration says.
        over_foretold: time of all blocks over what the queries between slices foretell.
        speed: by model, time of such a query over what the calibration says, by slice.
        beside: by model, time beside others over that alone; at least 1.
        unevenness: of the machine within slices, as the probes tell.
        again: slices that were run again, since the machine changed meanwhile.
        errors: of queries that the server failed.
    """

    policy: str
    load: float
    rate_qps: float
    real: dict[str, Figures]
    simulated: dict[str, Figures]
    foretold: dict[str, Figures]
    late_ms: float
    disturbance: Disturbance
    pace: tuple[float, ...]
    over_foretold: float
    speed: dict[str, tuple[float, ...]]
    beside: dict[str, float]
    unevenness: Unevenness
    again: int
    errors: tuple[str, ...]


def command(
    repository: Repository,
    out: Out = RESULTS,
    models: Annotated[str, typer.Option(help="One or two of the repository.")] = (
        "resnet50,mobilenet_v2"
    ),
    policies: Annotated[str, typer.Option(help="Of scheduling.")] = "model,layer,veltair-as",
    loads: Annotated[str, typer.Option(help="Shares of the capacity.")] = "0.3,0.5,0.7",
    queries: Annotated[int, typer.Option(min=10, help="Of each run.")] = 1800,
    calibration_queries: Annotated[int, typer.Option(min=5, help="Of each measurement.")] = 40,
    qos_scale: Annotated[
        float, typer.Option(min=0.01, help="Targets over those of the artifacts.")
    ] = 2.0,
    workers: Workers = None,
    seed: Seed = 1,
    attempts: Attempts = 2,
    wait_s: WaitS = 10.0,
    fresh: Fresh = False,
    scratch: Scratch = SCRATCH,
) -> None:
    """Compare simulated with real latencies under the same arrivals."""
    out.mkdir(parents=True, exist_ok=True)
    result = origin(STEM)
    asked = [float(load) for load in loads.split(",")]
    store = PointStore(scratch / "points")
    if fresh:
        store.clear()
    workload = Workload(models=tuple(models.split(",")), queries=queries, seed=seed)
    patience = Patience(attempts=attempts, wait_s=wait_s)
    with stopped_by_signals():
        calibrations = []
        points = []
        setting = _Setting(
            repository=repository,
            workload=workload,
            scratch=scratch,
            store=store,
            queries=calibration_queries,
            patience=patience,
        )
        check_targets(repository, workload.models)
        costs = setting.costs()
        for load in asked:
            measured, disturbance = setting.calibration(costs, load)
            bench = _Bench(
                repository, workload, scratch, store, measured, qos_scale, workers, patience
            )
            points += [bench.point(policy, load) for policy in policies.split(",")]
            calibrations.append(
                {
                    "load": load,
                    "capacity_qps": bench.capacity_qps,
                    "measured": msgspec.to_builtins(measured),
                    "disturbance": asdict(disturbance),
                }
            )
    points.sort(key=lambda point: policies.split(",").index(point.policy))
    result |= {
        "workload": asdict(workload),
        "workers": bench.workers,
        "qos_ns": {name: each.qos_ns for name, each in bench.manifests.items()},
        "qos_scale": qos_scale,
        "steady": STEADY,
        "pace_step_ms": PACE_STEP_NS / _NS_PER_MS,
        "calibrations": calibrations,
        "points": [to_json(asdict(point)) for point in points],
    }
    write_result(out / f"{STEM}.json", result)
    text = markdown(result, points)
    (out / f"{STEM}.md").write_text(text, encoding="utf-8")
    print(text)


@dataclass(frozen=True, kw_only=True)
class _Setting:
    """What is measured before the runs, and where it is kept."""

    repository: Path
    workload: Workload
    scratch: Path
    store: PointStore
    queries: int
    patience: Patience

    def costs(self) -> Costs:
        """What no load changes."""

        def measure() -> Costs:
            return measure_costs(
                self.repository,
                self.workload.models,
                self.scratch,
                queries=self.queries,
                say=print,
            )

        return self._kept({"kind": "costs"}, measure, Costs)[0]

    def calibration(self, costs: Costs, load: float) -> tuple[Calibration, Disturbance]:
        """What a load changes, and what else ran while it was measured."""

        def measure() -> Calibration:
            return calibrate(
                self.repository,
                self.workload.models,
                self.scratch,
                costs,
                queries=self.queries,
                load=load,
                say=print,
            )

        what = {"kind": "calibration", "load": load, "costs": msgspec.to_builtins(costs)}
        return self._kept(what, measure, Calibration)

    def _kept(
        self, what: dict[str, Any], measure: Callable[[], Found], form: type[Found]
    ) -> tuple[Found, Disturbance]:
        key = circumstances() | {
            "artifacts": digests(self.repository, self.workload.models),
            "models": self.workload.models,
            "queries": self.queries,
            **what,
        }
        kept = self.store.get(key)
        if kept is None:
            found, disturbance = self.patience.quietest(measure)
            kept = msgspec.to_builtins({"found": found, "disturbance": disturbance})
            self.store.put(key, kept)
        return (
            msgspec.convert(kept["found"], form),
            msgspec.convert(kept["disturbance"], Disturbance),
        )


@dataclass(frozen=True, kw_only=True)
class _Run:
    """A point's real side.

    Attributes:
        slices: that count.
        again: slices that were run again.
    """

    slices: list[Slice]
    again: int


class _Bench:
    """Runs points on both sides with one calibration."""

    def __init__(
        self,
        repository: Path,
        workload: Workload,
        scratch: Path,
        store: PointStore,
        measured: Calibration,
        qos_scale: float,
        workers: int | None,
        patience: Patience,
    ) -> None:
        self.cores = usable_cores()
        self.workers = workers or self.cores + 2
        self._patience = patience
        self._workload = workload
        self._scratch = scratch
        self._store = store
        self._measured = measured
        self._circumstances = circumstances()
        self._served = scratch / "served"
        targets = {
            name: round(open_artifact(repository / name, verify=False).manifest.qos_ns * qos_scale)
            for name in workload.models
        }
        self.manifests: dict[str, Manifest] = copy_artifacts(
            repository,
            self._served,
            workload.models,
            profiles=measured.profiles,
            qos_ns=targets,
        )
        self.capacity_qps = capacity_qps(
            [each.profile for each in self.manifests.values()], self.cores
        )

    def point(self, policy: str, load: float) -> Point:
        """Measures a point, unless it is kept, on a server of its own."""
        key = self._key(policy, load)
        kept = self._store.get(key)
        if kept is None:
            record = self._scratch / "record.jsonl"
            record.unlink(missing_ok=True)
            plan = ServerPlan(
                repository=self._served, policy=policy, workers=self.workers, record=record
            )
            with running(plan, self._scratch) as client:
                print(f"{STEM}: {policy} at {load:g} of the capacity", flush=True)
                arrivals = self._workload.arrivals(load * self.capacity_qps)
                run, disturbance = self._patience.quietest(
                    partial(self._replay, client, arrivals, load)
                )
                busy = neighbours(client, self._workload.models).cores
            kept = asdict(self._compare(policy, load, run, record, busy, disturbance))
            self._store.put(key, kept)
            record.unlink()
        return msgspec.convert(kept, Point)

    def _key(self, policy: str, load: float) -> dict[str, Any]:
        key = self._circumstances | {
            "kind": "point",
            "policy": policy,
            "load": load,
            "workers": self.workers,
            "workload": asdict(self._workload),
            "calibration": self._measured,
            "manifests": self.manifests,
        }
        built: dict[str, Any] = msgspec.to_builtins(key)
        return built

    def _replay(self, client: LocalClient, arrivals: Arrivals, load: float) -> _Run:
        slices = []
        again = 0
        before = self._probes(client, load)
        count = -(-len(arrivals.time_ns) // SLICE_QUERIES)
        for part in np.array_split(np.arange(len(arrivals.time_ns)), count):
            sliced = Arrivals(
                time_ns=arrivals.time_ns[part] - arrivals.time_ns[part[0]],
                model=arrivals.model[part],
            )
            tries = steadiest(partial(self._slice, client, sliced, load), before)
            slices.append(min(tries, key=Slice.change))
            again += len(tries) - 1
            before = tries[-1].after
        return _Run(slices=slices, again=again)

    def _slice(self, client: LocalClient, arrivals: Arrivals, load: float, before: Probes) -> Slice:
        zero_ns = time.monotonic_ns() + LEAD_NS
        observed = replay(client, self._workload.models, arrivals, zero_ns)
        return Slice(
            arrivals=arrivals,
            observed=observed,
            zero_ns=zero_ns,
            before=before,
            after=self._probes(client, load),
        )

    def _probes(self, client: LocalClient, load: float) -> Probes:
        names = self._workload.models
        others = neighbours(client, names).queries
        return Probes(
            alone=probe_queries(client, names, PROBES, load),
            beside=probe_queries(client, names, PROBES, load, others),
        )

    def _compare(
        self,
        policy: str,
        load: float,
        run: _Run,
        record: Path,
        busy: float,
        disturbance: Disturbance,
    ) -> Point:
        names = self._workload.models
        slices = run.slices
        uneven = unevenness(
            [(each.before.alone, each.after.alone) for each in slices]
            + [(each.before.beside, each.after.beside) for each in slices]
        )
        beside = slowdown_beside(slices, names)
        # Of one busy core, where there are any; and of all others.
        steps = {name: (beside[name] - 1) / max(busy, 1) for name in names}
        slowdowns = {name: 1 + step * (self.cores - 1) for name, step in steps.items()}
        even = self._profiles(dict.fromkeys(names, 1.0), slowdowns)
        alone_ns = self._predicted_alone_ns(policy, even, uneven)
        beside_ns = {name: alone_ns[name] * beside[name] for name in names}
        speeds = [
            {name: each.speed(name, alone_ns[name], beside_ns[name]) for name in names}
            for each in slices
        ]
        foretold = []
        for index, (each, speed) in enumerate(zip(slices, speeds, strict=True)):
            profiles = self._profiles(speed, slowdowns)
            foretold += [
                self._simulated(policy, each.arrivals, profiles, uneven, index * PACES + draw)
                for draw in range(PACES)
            ]
        ran = self._blocks(record, slices)
        predicted = [self._predicted_ns(blocks, even) for blocks in ran]
        paces = [
            machine_pace(blocks, times, from_ns=each.zero_ns, step_ns=PACE_STEP_NS)
            for each, blocks, times in zip(slices, ran, predicted, strict=True)
        ]
        simulated = [
            self._simulated(
                policy,
                each.arrivals,
                even,
                EVEN,
                known=KnownPace(factors=pace, step_ns=PACE_STEP_NS),
            )
            for each, pace in zip(slices, paces, strict=True)
        ]
        took_ns = [sum(block.took_ns for block in blocks) for blocks in ran]
        foretold_ns = [
            time_ns * speed[block.model]
            for blocks, times, speed in zip(ran, predicted, speeds, strict=True)
            for block, time_ns in zip(blocks, times, strict=True)
        ]
        late_ns = np.concatenate([s.observed.submitted_ns - s.arrivals.time_ns for s in slices])
        real = by_model(_joined([self._real(each) for each in slices]), names)
        return Point(
            policy=policy,
            load=load,
            rate_qps=load * self.capacity_qps,
            real=real,
            simulated=by_model(_joined(simulated), names),
            foretold={
                name: _of_one_run(each) for name, each in by_model(_joined(foretold), names).items()
            },
            late_ms=float(late_ns.mean()) / 1e6,
            disturbance=disturbance,
            pace=tuple(
                ns / sum(times) if times else 1.0
                for ns, times in zip(took_ns, predicted, strict=True)
            ),
            over_foretold=sum(took_ns) / sum(foretold_ns) if foretold_ns else 1.0,
            speed={name: tuple(speed[name] for speed in speeds) for name in names},
            beside=beside,
            unevenness=uneven,
            again=run.again,
            errors=tuple(sorted({error for each in slices for error in each.observed.errors})),
        )

    def _blocks(self, record: Path, slices: Sequence[Slice]) -> list[list[Block]]:
        """Each slice's, as the server recorded them."""
        ends = [each.ends() for each in slices]
        slice_of = {ns: index for index, each in enumerate(ends) for ns in each}
        found: list[list[Block]] = [[] for _ in slices]
        for block in recorded_blocks(record, dict(ChainMap(*ends))):
            found[slice_of[block.arrival_ns]].append(block)
        return found

    def _predicted_ns(
        self, blocks: Sequence[Block], profiles: list[sched.ModelProfile]
    ) -> list[float]:
        """What the simulator takes for blocks on as many cores, beside as many busy ones."""
        plans = {
            name: sched.ModelPlan(profile, self.cores)
            for name, profile in zip(self._workload.models, profiles, strict=True)
        }
        return [
            predicted_ns(
                block,
                plans[block.model],
                boundary_ns=self._measured.costs.boundary_ns,
                gain_ns=self._measured.costs.gain_ns,
            )
            for block in blocks
        ]

    def _real(self, part: Slice) -> Outcomes:
        return Outcomes(
            arrival_ns=part.arrivals.time_ns,
            model=part.arrivals.model,
            start_ns=part.observed.start_ns,
            end_ns=part.observed.end_ns,
            outcome=part.observed.outcome,
            qos_ns=self._qos_ns(),
        )

    def _qos_ns(self) -> NDArray[np.int64]:
        return np.array([self.manifests[name].qos_ns for name in self._workload.models], np.int64)

    def _profiles(
        self, speed: dict[str, float], slowdowns: dict[str, float]
    ) -> list[sched.ModelProfile]:
        """The calibration's, at a speed, with levels for what neighbours cost."""
        return [
            to_profile(
                msgspec.structs.replace(
                    self.manifests[name],
                    profile=with_levels(
                        scaled(self.manifests[name].profile, speed[name]),
                        slowdowns[name],
                        self.cores,
                    ),
                )
            )
            for name in self._workload.models
        ]

    def _predicted_alone_ns(
        self, policy: str, profiles: list[sched.ModelProfile], uneven: Unevenness
    ) -> dict[str, float]:
        """What the simulator says of queries that come alone, the mean by model."""
        found = {}
        for index, name in enumerate(self._workload.models):
            # Far enough from each other that their paces are, too.
            apart_ns = 4 * (uneven.memory_ns + self.manifests[name].profile.model_ns[0][0])
            lone = Arrivals(
                time_ns=np.arange(PACE_QUERIES, dtype=np.int64) * apart_ns,
                model=np.full(PACE_QUERIES, index, np.int32),
            )
            outcome = self._simulated(policy, lone, profiles, uneven)
            found[name] = float((outcome.end_ns - outcome.start_ns).mean())
        return found

    def _simulated(
        self,
        policy: str,
        arrivals: Arrivals,
        profiles: list[sched.ModelProfile],
        uneven: Unevenness,
        pace_seed: int = 1,
        known: KnownPace | None = None,
    ) -> Outcomes:
        """Simulates the same; a query is seen by the server `start_ns` after it is due."""
        seen = Arrivals(
            time_ns=arrivals.time_ns + self._measured.costs.start_ns, model=arrivals.model
        )
        scenario = self._workload.scenario(
            machine={
                "cores": self.cores,
                "workers": self.workers,
                "conflict_us": self._measured.costs.gain_ns / _NS_PER_US,
                "decision_us": self._measured.costs.boundary_ns / _NS_PER_US,
                "interference": "occupancy",
                "pace_spread": uneven.spread,
                "pace_memory_ms": uneven.memory_ns / _NS_PER_MS,
                "pace_seed": pace_seed,
            },
            policy={"scheduling": policy},
        )
        found = simulate(scenario, profiles=profiles, arrivals=seen, pace=known)
        return Outcomes(
            arrival_ns=arrivals.time_ns,
            model=arrivals.model,
            start_ns=found.start_ns,
            end_ns=found.end_ns,
            outcome=found.outcome,
            qos_ns=found.qos_ns,
        )


def slowdown_beside(slices: Sequence[Slice], names: Sequence[str]) -> dict[str, float]:
    """Returns the time of each model's queries beside others over that alone, of a whole run.

    What a slice has of them would be noisier than what is sought.

    Args:
        slices: of the run.
        names: of the models.

    Returns:
        By model; at least 1.
    """
    probes = [end for each in slices for end in (each.before, each.after)]
    found = {}
    for name in names:
        alone = np.concatenate([each.alone_ns(name) for each in probes])
        beside = np.concatenate([each.beside_ns(name) for each in probes])
        found[name] = max(float(beside.mean() / alone.mean()), 1.0)
    return found


def _of_one_run(found: Figures) -> Figures:
    """Counts are the mean over the paces; the other figures are of all of them together."""
    counts = {
        name: round(getattr(found, name) / PACES)
        for name in ("queries", "served", "refused", "failed")
    }
    return replace(found, **counts)


def _joined(parts: Sequence[Outcomes]) -> Outcomes:
    """Puts slices one behind the other; the breaks between them are of no length."""
    moved = []
    begin_ns = 0
    for part in parts:
        moved.append(
            replace(
                part,
                arrival_ns=part.arrival_ns + begin_ns,
                start_ns=np.where(part.start_ns < 0, part.start_ns, part.start_ns + begin_ns),
                end_ns=part.end_ns + begin_ns,
            )
        )
        begin_ns += int(part.end_ns.max())
    return Outcomes(
        arrival_ns=np.concatenate([part.arrival_ns for part in moved]),
        model=np.concatenate([part.model for part in moved]),
        start_ns=np.concatenate([part.start_ns for part in moved]),
        end_ns=np.concatenate([part.end_ns for part in moved]),
        outcome=np.concatenate([part.outcome for part in moved]),
        qos_ns=parts[0].qos_ns,
    )


if __name__ == "__main__":
    run_benchmark(STEM, command)
