"""Workloads: `eval/workloads/NAME.toml`, their targets, and when their queries arrive."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta
from msgspec.structs import replace

from veltair.eval.capacity.result import ModelTarget, WorkloadFacts
from veltair.runtime.errors import ConfigError, InputError, unknown_name
from veltair.runtime.simulate.arrivals import Arrivals, generate_arrivals
from veltair.runtime.simulate.scenario import ArrivalsSection, Section, parse_section, read_table

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = Path(__file__).resolve().parents[1] / "workloads"
WORKLOADS = "light,medium,heavy,mix"  # the paper's, in its order
MEASURED_QOS = "small"  # the set that `veltair.eval.capacity.targets` measures

_NS_PER_MS = 1_000_000


class MixSection(Section, frozen=True, kw_only=True):
    """`[workload]`: what is asked for."""

    models: Annotated[
        tuple[str, ...], Meta(min_length=1, max_length=1000, description="names in the repository")
    ]
    shares: Annotated[
        Literal["equal", "inverse_qos"],
        Meta(description="equal: each as often; inverse_qos: in proportion to 1 / its target"),
    ] = "equal"


class RunSection(Section, frozen=True, kw_only=True):
    """`[run]`: how long a run at one rate is: both minima hold, unless it would take too long."""

    seed: Annotated[int, Meta(ge=0, le=2**31, description="of the arrivals of repetition 0")] = 1
    min_seconds: Annotated[
        float, Meta(gt=0, le=86_400, description="time over which queries arrive, at least")
    ] = 15.0
    min_queries: Annotated[
        int, Meta(ge=1, le=10_000_000, description="expected of the rarest model, at least")
    ] = 30
    max_seconds: Annotated[
        float,
        Meta(
            gt=0,
            le=86_400,
            description="time over which queries arrive, at most; four times as long where too "
            "few queries of a rare network, by chance perhaps, are all that speaks against a rate",
        ),
    ] = 120.0


class QosSection(Section, frozen=True, kw_only=True):
    """`[qos.NAME]`: targets for one kind of machine."""

    how: Annotated[str, Meta(min_length=1, description="how the targets came about, a sentence")]
    ms: Annotated[dict[str, float], Meta(description="target of each model, milliseconds")]


@dataclass(frozen=True, kw_only=True)
class WorkloadFile:
    """A workload as its file has it.

    Attributes:
        name: the file's, without its ending.
        path: of the file.
        mix: what is asked for.
        run: how long.
        qos: targets by the name of their set.
    """

    name: str
    path: Path
    mix: MixSection
    run: RunSection
    qos: Mapping[str, QosSection]

    def facts(self, qos: str) -> WorkloadFacts:
        """Returns the workload with one set of targets.

        Raises:
            ConfigError: the file has no such set.
        """
        if qos not in self.qos:
            remedy = (
                "python -m veltair.eval.capacity.targets measures it"
                if qos == MEASURED_QOS
                else f"it has {', '.join(self.qos) or 'none'}"
            )
            raise ConfigError(f"{self.path}: no targets [qos.{qos}]; {remedy}")
        section = self.qos[qos]
        weights = [
            1.0 if self.mix.shares == "equal" else 1 / section.ms[name] for name in self.mix.models
        ]
        return WorkloadFacts(
            name=self.name,
            models=tuple(
                ModelTarget(
                    name=name,
                    qos_ns=round(section.ms[name] * _NS_PER_MS),
                    share=weight / sum(weights),
                )
                for name, weight in zip(self.mix.models, weights, strict=True)
            ),
            targets=section.how,
        )


def read_workload(name: str) -> WorkloadFile:
    """Reads one of the workloads that come with the package, or a TOML file.

    Args:
        name: `light`, or the path of a file that ends in `.toml`.

    Raises:
        ConfigError: there is none, or a field breaks its rule.
    """
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if path.parent == FOLDER and not path.is_file():
        known = sorted(each.stem for each in FOLDER.glob("*.toml"))
        raise ConfigError(
            unknown_name("--workloads", f"workload {name!r}", name, known)
            + "; or give the path of a .toml file"
        )
    return parse_workload(read_table(path), path)


def parse_workload(table: Mapping[str, Any], path: Path) -> WorkloadFile:
    """Checks a table as `tomllib` returns it.

    Raises:
        ConfigError: a field breaks its rule.
    """
    known = ["workload", "run", "qos"]
    for section in table:
        if section not in known:
            raise ConfigError(unknown_name(f"{path}: [{section}]", "section", section, known))
    mix = parse_section(MixSection, table.get("workload", {}), f"{path}: workload")
    for name in mix.models:
        if mix.models.count(name) > 1:
            raise ConfigError(f"{path}: workload.models names {name!r} twice; once is enough")
    sets = table.get("qos", {})
    if not isinstance(sets, dict):
        raise ConfigError(f"{path}: qos = {sets!r}: sections; write each as [qos.NAME]")
    return WorkloadFile(
        name=path.stem,
        path=path,
        mix=mix,
        run=_parse_run(table.get("run", {}), path),
        qos={name: _parse_qos(each, mix, f"{path}: qos.{name}") for name, each in sets.items()},
    )


def changed_run(
    run: RunSection,
    *,
    seed: int | None = None,
    min_seconds: float | None = None,
    min_queries: int | None = None,
    max_seconds: float | None = None,
) -> RunSection:
    """Returns the section with what the command line set.

    Raises:
        InputError: the minimum would be above the maximum.
    """
    changed = replace(
        run,
        seed=run.seed if seed is None else seed,
        min_seconds=min_seconds or run.min_seconds,
        min_queries=min_queries or run.min_queries,
        max_seconds=max_seconds or run.max_seconds,
    )
    if changed.min_seconds > changed.max_seconds:
        raise InputError(
            f"--min-seconds is {changed.min_seconds:g} and --max-seconds {changed.max_seconds:g}; "
            "give both so that a run has room"
        )
    return changed


def planned_seconds(facts: WorkloadFacts, run: RunSection, rate_qps: float) -> float:
    """Returns for how long queries arrive at a rate."""
    rarest = min(model.share for model in facts.models)
    return min(max(run.min_seconds, run.min_queries / (rate_qps * rarest)), run.max_seconds)


def poisson(
    facts: WorkloadFacts, run: RunSection, rate_qps: float, repetition: int = 0
) -> Arrivals:
    """Draws a run's arrivals; at another rate they are the same ones, faster or slower."""
    queries = math.ceil(rate_qps * planned_seconds(facts, run, rate_qps))
    section = ArrivalsSection(
        process="poisson",
        rate_qps=rate_qps,
        queries=max(queries, len(facts.models)),
        seed=run.seed + repetition,
    )
    return generate_arrivals(section, [model.share for model in facts.models])


def _parse_run(table: object, path: Path) -> RunSection:
    run = parse_section(RunSection, table, f"{path}: run")
    if run.min_seconds > run.max_seconds:
        raise ConfigError(
            f"{path}: run.min_seconds = {run.min_seconds:g} is above run.max_seconds = "
            f"{run.max_seconds:g}; change one of them"
        )
    return run


def _parse_qos(table: object, mix: MixSection, where: str) -> QosSection:
    section = parse_section(QosSection, table, where)
    for name, ms in section.ms.items():
        if name not in mix.models:
            raise ConfigError(unknown_name(f"{where}.ms.{name}", "model", name, list(mix.models)))
        if not 0 < ms <= 1e6:  # NaN too
            raise ConfigError(
                f"{where}.ms.{name} = {ms}: a latency target is above 0 and at most 1e6 ms"
            )
    missing = [name for name in mix.models if name not in section.ms]
    if missing:
        raise ConfigError(f"{where}.ms: no target of {', '.join(missing)}; give each model one")
    return section
