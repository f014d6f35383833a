"""The evaluation's results as its folder keeps them: `result.json`, read by `veltair report-eval`.

Everything in it was measured (or simulated, where it says so); tables and figures are made of it
and of nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from veltair.eval.latency_figures import Figures, to_json
from veltair.eval.record import write_result
from veltair.runtime.disturbance import Disturbance
from veltair.runtime.errors import InputError
from veltair.runtime.files import read_whole

if TYPE_CHECKING:
    from pathlib import Path

RESULT_FILE = "result.json"
SCHEMA = 1

# `unmeetable`: not even at the lowest rate asked for; `failed`: see the system's error; `noisy`:
# repetitions differ by more than they may; `disturbed`: others used the processors; `skipped`: not
# installed.
State = Literal["found", "unmeetable", "failed", "noisy", "disturbed", "skipped"]
MEASURED: frozenset[State] = frozenset({"found", "noisy", "disturbed"})  # rates were found
Purpose = Literal["grid", "search", "at_capacity", "at_half", "sweep", "solo", "gantt"]


@dataclass(frozen=True, kw_only=True)
class ModelTarget:
    """A model of a workload.

    Attributes:
        name: of the model.
        qos_ns: latency target.
        share: of the workload's queries, 0 to 1.
    """

    name: str
    qos_ns: int
    share: float


@dataclass(frozen=True, kw_only=True)
class WorkloadFacts:
    """A workload as it was run.

    Attributes:
        name: `light`, `medium`, `heavy`, `mix` or a file's.
        models: in the order of its file.
        targets: how the targets came about, in a sentence.
    """

    name: str
    models: tuple[ModelTarget, ...]
    targets: str


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One run: a system at a setting, a workload, a rate.

    Attributes:
        workload: its name.
        system: its name.
        setting: the system's.
        purpose: `grid` (looking for the best setting), `search` (bisection), `at_capacity`,
            `at_half`, `sweep` or `solo`.
        repetition: of the search, from 0.
        rate_qps: offered, of all models.
        met: whether each model had its share of queries within its target.
        figures: by model, and of `all`.
        core_usage: processor time of the system over time of all its cores, 0 to 1; None: unknown.
        late_p99_ms: of the driver.
        disturbance: what else ran; None in a simulation.
        seconds: that the run took.
        errors: of queries that the system failed, each text once.
        cut: whether it was ended when so many were late that it could not be met any more; the
            figures are of the queries until then.
    """

    workload: str
    system: str
    setting: str
    purpose: Purpose
    repetition: int
    rate_qps: float
    met: bool
    figures: dict[str, Figures]
    core_usage: float | None
    late_p99_ms: float | None
    disturbance: Disturbance | None
    seconds: float
    errors: tuple[str, ...] = ()
    cut: bool = False


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """The highest rate at which a system keeps a workload's targets.

    Attributes:
        workload: its name.
        system: its name.
        setting: the best in the most repetitions.
        state: `found`, or why there is none.
        qps: of each repetition.
        note: what a reader has to know, in a sentence; empty: nothing.
    """

    workload: str
    system: str
    setting: str
    state: State
    qps: tuple[float, ...]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class SystemFacts:
    """A system of the comparison.

    Attributes:
        name: its name.
        kind: `ours`, `peer`, `null` or `simulated`.
        version: of its package.
        error: why it failed or was skipped; empty: it ran.
        log: path of its log within the folder; empty: none.
    """

    name: str
    kind: str
    version: str
    error: str = ""
    log: str = ""


@dataclass(frozen=True, kw_only=True)
class Solo:
    """Latency of a model alone on all cores, by a system: what Fig. 13 divides by.

    All systems of ours have the same one: a query that gets all cores at once.

    Attributes:
        model: its name.
        system: its name.
        mean_ms: mean latency.
        p50_ms: its median.
    """

    model: str
    system: str
    mean_ms: float
    p50_ms: float


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A block of a second under load, for the Gantt chart.

    Attributes:
        cores: that ran it.
        model: whose.
        query: number of the query.
        layers: first and last.
        version: of its first layer.
        begin_ns: from the second's begin.
        end_ns: the same.
    """

    cores: tuple[int, ...]
    model: str
    query: int
    layers: tuple[int, int]
    version: int
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, kw_only=True)
class Gantt:
    """A second of a system under a workload.

    Attributes:
        workload: its name.
        system: its name.
        rate_qps: offered.
        bars: in the order of their begins.
    """

    workload: str
    system: str
    rate_qps: float
    bars: tuple[Bar, ...]


@dataclass(frozen=True, kw_only=True)
class Result:
    """All of an evaluation.

    Attributes:
        origin: command, version, revision and machine, as `record.provenance` has them.
        simulated: whether the machine is a model; `machine` in `origin` is then the model's name.
        percentile: share of each model's queries that must be within the target, in percent.
        plan: the settings of the evaluation, by the names of the command's options.
        workloads: that were asked for.
        systems: the same.
        trials: all runs, in the order of their measurement.
        capacities: of each workload and system.
        solos: of each model and system.
        gantts: of one second each.
        cores: that the systems shared; 0: those of the machine in `origin`.
        schema: of this file.
    """

    origin: dict[str, Any]
    simulated: bool
    percentile: float
    plan: dict[str, Any]
    workloads: tuple[WorkloadFacts, ...]
    systems: tuple[SystemFacts, ...]
    trials: tuple[Trial, ...]
    capacities: tuple[Capacity, ...]
    solos: tuple[Solo, ...]
    gantts: tuple[Gantt, ...] = field(default=())
    cores: int = 0
    schema: int = SCHEMA


def write(folder: Path, result: Result) -> None:
    """Writes `result.json`, whole or not at all.

    Raises:
        InputError: it can't be written.
    """
    write_result(folder / RESULT_FILE, to_json(msgspec.to_builtins(result)))


def read(folder: Path) -> Result:
    """Reads `result.json`.

    Raises:
        InputError: there is none, it is cut, or of another schema.
    """
    path = folder / RESULT_FILE
    try:
        raw = msgspec.json.decode(read_whole(path))
        found = raw.get("schema") if isinstance(raw, dict) else None
        if found != SCHEMA:
            raise InputError(
                f"{path}: schema {found}, and this version reads {SCHEMA}; run veltair eval again"
            )
        return msgspec.convert(_with_nan(raw), Result)
    except FileNotFoundError as error:
        raise InputError(f"{path}: there is no such file; veltair eval writes it") from error
    except OSError as error:
        raise InputError(f"{path}: can't be read ({error.strerror})") from error
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise InputError(
            f"{path}: not an evaluation's result ({error}); run veltair eval again"
        ) from error


def to_trial(raw: dict[str, Any]) -> Trial:
    """Returns a trial from what `to_json` made of it.

    Raises:
        msgspec.ValidationError: it is none.
    """
    return msgspec.convert(_with_nan({"trials": [raw]})["trials"][0], Trial)


def _with_nan(raw: dict[str, Any]) -> dict[str, Any]:
    """JSON has no nan: figures of no query at all are null there."""
    figures = [trial.get("figures") for trial in _tables(raw.get("trials"))]
    of_models = [each.values() for each in figures if isinstance(each, dict)]
    for table in _tables([*chain.from_iterable(of_models), *_tables(raw.get("solos"))]):
        table.update({key: float("nan") for key, value in table.items() if value is None})
    return raw


def _tables(found: object) -> list[dict[str, Any]]:
    """Those of a list that are tables: what else may be there is told of by the conversion."""
    return [e for e in found if isinstance(e, dict)] if isinstance(found, list) else []
