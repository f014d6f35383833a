"""Our capacities against MLPerf LoadGen's: `python -m veltair.eval.capacity.loadgen_check`.

Each model alone is searched on one server: by LoadGen's Server scenario and its own verdict; by the
same runs of LoadGen's, judged as `veltair eval` judges; and by our load generator. The first two
differ by who times and who judges, and nothing else, so that a machine's ups and downs are the same
in both. The third sends by itself what LoadGen draws from the same seed, in runs of its own, and
unlike LoadGen's driver writes no inputs: as in `veltair eval`, they lie in the slots already.
LoadGen's early stopping is left out of its verdict: it asks for more than the percentile, so as to
be sure of it, and the less so the longer a run is. What is searched takes minutes: each repetition
of a model is kept, and the same command goes on where it was stopped.
"""

from __future__ import annotations

import functools
import os
import shutil
import statistics
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from veltair.eval.benchmark import origin, run_benchmark
from veltair.eval.capacity.models import candidates
from veltair.eval.capacity.ours import POLICIES, Ours
from veltair.eval.capacity.search import FIRST_STEP, LOWEST_QPS, highest_qps
from veltair.eval.capacity.trials import identity
from veltair.eval.capacity.workloads import MEASURED_QOS, read_workload
from veltair.eval.children import stopped_by_signals
from veltair.eval.loadgen_command import SAMPLES, measure
from veltair.eval.loadgen_plan import Plan
from veltair.eval.loadgen_schedule import loadgen_seeds, server_schedule
from veltair.eval.points import PointStore, circumstances
from veltair.eval.record import write_result
from veltair.eval.run_options import Fresh
from veltair.runtime.disturbance import Watch
from veltair.runtime.errors import InputError, VeltairError, unknown_name
from veltair.runtime.simulate.arrivals import Arrivals
from veltair.runtime.simulate.run import SERVED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from veltair.eval.capacity.ours import OursRunning
    from veltair.eval.capacity.result import WorkloadFacts
    from veltair.eval.capacity.system import Candidate
    from veltair.eval.loadgen_report import Report

STEM = "capacity.loadgen_check"
NAME = "loadgen_check"
NEAR_STEP = 1.05  # from our rate to LoadGen's
AGREE = 0.02
EARLY_STOPPING = "early stopping"

_NS_PER_S = 1e9


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One model's highest rates.

    Attributes:
        model: its name.
        qos_ns: its target.
        loadgen_qps: by LoadGen's verdict, of each repetition.
        judged_qps: by our judgement of the same runs, likewise.
        sent_qps: by our load generator in runs of its own, likewise.
        others: what else used the processors meanwhile, as a share of them, on average.
    """

    model: str
    qos_ns: int
    loadgen_qps: tuple[float, ...]
    judged_qps: tuple[float, ...]
    sent_qps: tuple[float, ...]
    others: float

    @property
    def verdict_ratio(self) -> float:
        """LoadGen's verdict over our judgement of the same runs, the median of the repetitions."""
        pairs = zip(self.loadgen_qps, self.judged_qps, strict=True)
        return statistics.median(theirs / ours for theirs, ours in pairs)

    @property
    def ratio(self) -> float:
        """LoadGen's median over our load generator's."""
        return statistics.median(self.loadgen_qps) / statistics.median(self.sent_qps)


def command(
    out: Annotated[Path, typer.Option("--output", "-o", help="Folder of the result.")],
    models: Annotated[str, typer.Option(help="Of the workload.  [default: all of it]")] = "",
    workload: Annotated[str, typer.Option(help="Whose targets to take.")] = "mix",
    qos: Annotated[str, typer.Option(help="Which of its targets.")] = MEASURED_QOS,
    policy: Annotated[str, typer.Option(help="Of our server.")] = "veltair-deadline",
    repository: Annotated[
        Path, typer.Option(help="Folder of <model>/<version>/ artifacts.")
    ] = Path("repository"),
    percentile: Annotated[float, typer.Option(min=1, max=99.99, help="That must be in time.")] = (
        95.0
    ),
    seconds: Annotated[float, typer.Option(min=1, help="Of each run.")] = 20.0,
    repetitions: Annotated[int, typer.Option(min=1, help="Of all searches, in turns.")] = 3,
    tolerance: Annotated[
        float, typer.Option(min=0.001, max=0.5, help="How well each finds its rate.")
    ] = 0.01,
    seed: Annotated[int, typer.Option(min=0, help="Of the arrivals.")] = 1,
    fresh: Fresh = False,
    scratch: Annotated[Path, typer.Option(help="For logs, and what was measured.")] = Path(
        "build/loadgen_check"
    ),
) -> None:
    """Compare each model's capacity with LoadGen's verdict.

    What has been measured is kept: the same command goes on where it was stopped.
    """
    if policy not in POLICIES:
        raise InputError(f"--policy {policy}: must be one of {', '.join(POLICIES)}")
    facts = read_workload(workload).facts(qos)
    wanted = [name for name in models.split(",") if name] or [each.name for each in facts.models]
    chosen = _chosen(facts, wanted)
    out.mkdir(parents=True, exist_ok=True)
    result = origin(STEM) | {"policy": policy, "percentile": percentile, "agree": AGREE}
    store = PointStore(scratch / "points")
    if fresh:
        store.clear()
    check = _Check(policy, percentile, seconds, repetitions, tolerance, seed, scratch, store)
    found = []
    with stopped_by_signals():
        for candidate in candidates(chosen, repository, None):
            found.append(check.compare(candidate))
            print(
                f"{candidate.name}: LoadGen's rate is {found[-1].verdict_ratio:.3f} of ours by the "
                f"same runs, and {found[-1].ratio:.3f} of our load generator's",
                flush=True,
            )
            result["models"] = [
                asdict(each) | {"verdict_ratio": each.verdict_ratio, "ratio": each.ratio}
                for each in found
            ]
            write_result(out / f"{NAME}.json", result)
    Console().print(table(found))


def table(found: list[Compared]) -> Table:
    """Returns the rates of each model, and whether LoadGen's agree with ours."""
    rows = Table()
    within = f"within {AGREE:.0%}"
    for name in ("model", "LoadGen", "same runs, ours", within, "our load generator", within):
        rows.add_column(name, justify="left" if name == "model" else "right")
    for each in found:
        rows.add_row(
            each.model,
            _rates(each.loadgen_qps),
            _rates(each.judged_qps),
            _agreement(each.verdict_ratio),
            _rates(each.sent_qps),
            _agreement(each.ratio),
        )
    return rows


@dataclass(frozen=True)
class _Check:
    """How the searches are done."""

    policy: str
    percentile: float
    seconds: float
    repetitions: int
    tolerance: float
    seed: int
    scratch: Path
    store: PointStore

    def compare(self, model: Candidate) -> Compared:
        """Searches one model.

        Raises:
            VeltairError: some search finds no rate.
        """
        folder = self.scratch / "logs" / model.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        cpus = sorted(os.sched_getaffinity(0))
        system = Ours(self.policy, self.percentile)
        known = circumstances() | {
            "kind": "check against LoadGen",
            "system": [system.name, system.version()],
            "loadgen": version("mlcommons-loadgen"),
            "model": identity(model),
            "cpus": cpus,
            "runs": [self.percentile, self.seconds, self.tolerance],
        }
        sent: list[float] = []
        points: list[dict[str, float]] = []
        with ExitStack() as stack:
            running: OursRunning | None = None
            for repetition in range(self.repetitions):
                seed = self.seed + repetition
                key = known | {"seed": seed, "sent_before_qps": sent.copy()}
                point = self.store.get(key)
                if point is None:
                    if running is None:
                        setting = system.settings(len(cpus))[0]
                        up = system.running(setting, [model], cpus, folder)
                        running = stack.enter_context(up)
                    point = self._search(running, model, seed, sent, folder)
                    self.store.put(key, point)
                sent.append(point["sent_qps"])
                points.append(point)
        return Compared(
            model=model.name,
            qos_ns=model.qos_ns,
            loadgen_qps=tuple(each["loadgen_qps"] for each in points),
            judged_qps=tuple(each["judged_qps"] for each in points),
            sent_qps=tuple(sent),
            others=statistics.fmean(each["others"] for each in points),
        )

    def _search(
        self, running: OursRunning, model: Candidate, seed: int, before: list[float], folder: Path
    ) -> dict[str, float]:
        """Searches once; `before` are the rates that our load generator found in other runs."""
        watch = Watch()
        sent_qps = self._sent(running, model, seed, before)
        loadgen_qps, judged_qps = self._loadgen(running, model, seed, sent_qps, folder)
        if not all((sent_qps, loadgen_qps, judged_qps)):
            raise VeltairError(f"{model.name}: not even {LOWEST_QPS:g} query a second is in time")
        seen = watch.seen()
        return {
            "loadgen_qps": loadgen_qps,
            "judged_qps": judged_qps,
            "sent_qps": sent_qps,
            "others": seen.others + seen.steal,
        }

    def _sent(self, running: OursRunning, model: Candidate, seed: int, found: list[float]) -> float:
        def holds(rate_qps: float) -> bool:
            time_ns = due_ns(seed, rate_qps, self.seconds)
            arrivals = Arrivals(time_ns=time_ns, model=np.zeros(len(time_ns), np.int32))
            observed = running.replay(arrivals)
            in_time = (observed.outcome == SERVED) & (observed.end_ns - time_ns <= model.qos_ns)
            return float(in_time.mean()) * 100 >= self.percentile

        begin = found[-1] if found else 1.5 * _NS_PER_S / model.qos_ns
        step = NEAR_STEP if found else FIRST_STEP
        return highest_qps(holds, begin, step=step, tolerance=self.tolerance)

    def _loadgen(
        self, running: OursRunning, model: Candidate, seed: int, begin_qps: float, folder: Path
    ) -> tuple[float, float]:
        """Returns the highest rates by LoadGen's verdict and by our judgement, of one set of runs.

        Both searches ask for the same rates until they judge one differently.
        """

        @functools.cache
        def run(rate_qps: float) -> Report:
            return measure(
                Plan(
                    scenario="Server",
                    qps=rate_qps,
                    duration_ns=round(self.seconds * _NS_PER_S),
                    latency_ns=model.qos_ns,
                    percentile=self.percentile,
                    seed=seed,
                    model=model.name,
                    address=running.address,
                    expected_ns=0,
                    samples=SAMPLES,
                    log_folder=str(folder.resolve()),
                )
            )

        def holds_for_loadgen(rate_qps: float) -> bool:
            unmet = run(rate_qps).loadgen.unmet
            return all(EARLY_STOPPING in each.lower() for each in unmet)

        def holds_for_us(rate_qps: float) -> bool:
            return run(rate_qps).in_time * 100 >= self.percentile

        theirs, ours = (
            highest_qps(holds, begin_qps, step=NEAR_STEP, tolerance=self.tolerance)
            for holds in (holds_for_loadgen, holds_for_us)
        )
        return theirs, ours


def due_ns(seed: int, rate_qps: float, seconds: float) -> NDArray[np.int64]:
    """Returns when LoadGen's Server scenario wants the queries of a run with a plan's seed."""
    most = round(2 * rate_qps * seconds) + 100
    found = server_schedule(loadgen_seeds(seed)[0], rate_qps, most)
    return found[found < seconds * _NS_PER_S]


def _chosen(facts: WorkloadFacts, names: list[str]) -> WorkloadFacts:
    known = [each.name for each in facts.models]
    for name in names:
        if name not in known:
            raise InputError(unknown_name("--models", f"model {name!r}", name, known))
    return replace(facts, models=tuple(each for each in facts.models if each.name in names))


def _agreement(ratio: float) -> str:
    return f"{ratio:.3f} {'yes' if abs(ratio - 1) <= AGREE else 'no'}"


def _rates(found: tuple[float, ...]) -> str:
    return f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


if __name__ == "__main__":
    run_benchmark(STEM, command)
