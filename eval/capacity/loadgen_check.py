"""Our capacities against MLPerf LoadGen's: `python -m veltair.eval.capacity.loadgen_check`.

Each model alone is searched twice on one server: by our load generator, which judges as `veltair
eval` does, and by LoadGen's Server scenario and its own verdict. Both send the arrivals that
LoadGen draws from one seed, so that what differs is who sends, who times and who judges. LoadGen's
early stopping is left out of its verdict: it asks for more than the percentile, so as to be sure of
it, and the less so the longer a run is.
"""

from __future__ import annotations

import os
import shutil
import statistics
from dataclasses import asdict, dataclass, replace
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
from veltair.eval.capacity.workloads import MEASURED_QOS, read_workload
from veltair.eval.children import stopped_by_signals
from veltair.eval.loadgen_command import SAMPLES, measure
from veltair.eval.loadgen_plan import Plan
from veltair.eval.loadgen_schedule import loadgen_seeds, server_schedule
from veltair.eval.record import write_result
from veltair.runtime.disturbance import Watch
from veltair.runtime.errors import InputError, VeltairError, unknown_name
from veltair.runtime.simulate.arrivals import Arrivals
from veltair.runtime.simulate.run import SERVED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from veltair.eval.capacity.ours import OursRunning
    from veltair.eval.capacity.result import WorkloadFacts
    from veltair.eval.capacity.system import Candidate

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
        ours_qps: by our load generator, of each repetition.
        loadgen_qps: by LoadGen, likewise.
        others: what else used the processors meanwhile, as a share of them.
    """

    model: str
    qos_ns: int
    ours_qps: tuple[float, ...]
    loadgen_qps: tuple[float, ...]
    others: float

    @property
    def ratio(self) -> float:
        """LoadGen's median over ours."""
        return statistics.median(self.loadgen_qps) / statistics.median(self.ours_qps)


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
    repetitions: Annotated[int, typer.Option(min=1, help="Of both searches, in turns.")] = 3,
    tolerance: Annotated[
        float, typer.Option(min=0.001, max=0.5, help="How well each finds its rate.")
    ] = 0.01,
    seed: Annotated[int, typer.Option(min=0, help="Of the arrivals.")] = 1,
    scratch: Annotated[Path, typer.Option(help="For logs.")] = Path("build/loadgen_check"),
) -> None:
    """Compare each model's capacity with LoadGen's verdict."""
    if policy not in POLICIES:
        raise InputError(f"--policy {policy}: must be one of {', '.join(POLICIES)}")
    facts = read_workload(workload).facts(qos)
    wanted = [name for name in models.split(",") if name] or [each.name for each in facts.models]
    chosen = _chosen(facts, wanted)
    out.mkdir(parents=True, exist_ok=True)
    result = origin(STEM) | {"policy": policy, "percentile": percentile}
    check = _Check(policy, percentile, seconds, repetitions, tolerance, seed, scratch)
    found = []
    with stopped_by_signals():
        for candidate in candidates(chosen, repository, None):
            found.append(check.compare(candidate))
            ratio = found[-1].ratio
            print(f"{candidate.name}: LoadGen's rate is {ratio:.3f} of ours", flush=True)
            result["models"] = [asdict(each) | {"ratio": each.ratio} for each in found]
            write_result(out / f"{NAME}.json", result)
    Console().print(table(found))


def table(found: list[Compared]) -> Table:
    """Returns both rates of each model, and whether they agree."""
    rows = Table()
    for name in ("model", "ours", "LoadGen", "ratio", f"within {AGREE:.0%}"):
        rows.add_column(name, justify="left" if name == "model" else "right")
    for each in found:
        cells = [_rates(each.ours_qps), _rates(each.loadgen_qps), f"{each.ratio:.3f}"]
        rows.add_row(each.model, *cells, "yes" if abs(each.ratio - 1) <= AGREE else "no")
    return rows


@dataclass(frozen=True)
class _Check:
    """How both searches are done."""

    policy: str
    percentile: float
    seconds: float
    repetitions: int
    tolerance: float
    seed: int
    scratch: Path

    def compare(self, model: Candidate) -> Compared:
        """Searches one model by both.

        Raises:
            VeltairError: neither finds a rate.
        """
        folder = self.scratch / model.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        cpus = sorted(os.sched_getaffinity(0))
        system = Ours(self.policy)
        ours: list[float] = []
        theirs: list[float] = []
        watch = Watch()
        with system.running(system.settings(len(cpus))[0], [model], cpus, folder) as running:
            for repetition in range(self.repetitions):
                seed = self.seed + repetition
                ours.append(self._ours(running, model, seed, ours))
                theirs.append(self._loadgen(running, model, seed, ours[-1], folder))
        if not all(ours) or not all(theirs):
            raise VeltairError(f"{model.name}: not even {LOWEST_QPS:g} query a second is in time")
        seen = watch.seen()
        return Compared(
            model=model.name,
            qos_ns=model.qos_ns,
            ours_qps=tuple(ours),
            loadgen_qps=tuple(theirs),
            others=seen.others + seen.steal,
        )

    def _ours(self, running: OursRunning, model: Candidate, seed: int, found: list[float]) -> float:
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
    ) -> float:
        def holds(rate_qps: float) -> bool:
            report = measure(
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
            unmet = [each for each in report.loadgen.unmet if EARLY_STOPPING not in each.lower()]
            return not unmet

        return highest_qps(holds, begin_qps, step=NEAR_STEP, tolerance=self.tolerance)


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


def _rates(found: tuple[float, ...]) -> str:
    return f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


if __name__ == "__main__":
    run_benchmark(STEM, command)
