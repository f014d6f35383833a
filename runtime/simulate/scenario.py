"""A simulation's scenario: a TOML file as frozen records.

Each field's type carries its bounds and its meaning (`msgspec.Meta`). An unknown key, a wrong type
or a value out of range is refused before anything runs, with the field's name. Durations are in
milliseconds, microseconds or seconds, as the name says, and become integer nanoseconds here.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Meta

from veltair.runtime.errors import ConfigError, unknown_name
from veltair.runtime.files import read_whole

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_S = TypeVar("_S", bound=msgspec.Struct)
_M = TypeVar("_M", bound="NamedSection")

NS_PER_MS = 1_000_000
_LONGEST_MS = 1e6


LatePercent = Annotated[
    int,
    Meta(
        ge=1,
        le=100,
        description="deadline policies: how many of a model's queries may be late; where more "
        "than four fifths of that are, its queries go ahead of others. 100: all may, and "
        "deadlines alone decide",
    ),
]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the sections: immutable, keyword-only."""


class NamedSection(Section, frozen=True, kw_only=True):
    """Base of `[[model]]`: what every kind of model has."""

    name: Annotated[str, Meta(min_length=1, max_length=255, description="its name in the report")]
    weight: Annotated[
        float, Meta(gt=0, le=1e9, description="its part of the queries, relative to the others")
    ] = 1.0


class MachineSection(Section, frozen=True, kw_only=True):
    """`[machine]`: what is simulated."""

    cores: Annotated[int, Meta(ge=1, le=4096, description="cores of the machine")]
    workers: Annotated[
        int,
        Meta(ge=0, le=65_536, description="tasks amid their layers at once; 0: two a core"),
    ] = 0
    max_queue: Annotated[
        int,
        Meta(ge=1, le=100_000_000, description="tasks that wait; one more is refused"),
    ] = 1_000_000
    conflict_us: Annotated[
        float,
        Meta(ge=0, le=1e6, description="cost to a running block each time that it gains cores"),
    ] = 220.0
    decision_us: Annotated[
        float, Meta(ge=0, le=1e6, description="cost of a decision to the block that it begins")
    ] = 2.0
    pace: Annotated[
        float,
        Meta(ge=0.01, le=100, description="what all takes for what profiles predict, the median"),
    ] = 1.0
    pace_spread: Annotated[
        float,
        Meta(ge=0, le=3, description="standard deviation of the pace's logarithm over time"),
    ] = 0.0
    pace_memory_ms: Annotated[
        float,
        Meta(ge=10, le=1e6, description="how long the pace stays as it is: its time constant"),
    ] = 200.0
    pace_seed: Annotated[
        int, Meta(ge=0, le=2**31 - 1, description="of the pace over time, apart from the arrivals'")
    ] = 1
    expand: Annotated[
        Literal["always", "if_shorter"],
        Meta(description="whether a block takes free cores whose cost makes it end later"),
    ] = "always"
    interference: Annotated[
        Literal["constant", "occupancy", "shared"],
        Meta(
            description="level of interference: `level`; by the share of the cores in use; or, "
            "with model, what blocks do to each other by the L3s and the memory that they share"
        ),
    ] = "constant"
    proxy: Annotated[
        Literal["perfect", "none"],
        Meta(description="shared: whether policies are told the level, or that there is none"),
    ] = "perfect"
    proxy_error: Annotated[
        float,
        Meta(
            ge=0, le=1000, description="shared: standard deviation of the level that they are told"
        ),
    ] = 0.0
    level: Annotated[
        int, Meta(ge=0, le=1000, description="index of the constant level in the profiles")
    ] = 0
    levels: Annotated[
        tuple[float, ...],
        Meta(
            max_length=64,
            description="slow-downs of the reference kernel that the levels stand for, ascending "
            "from 0; left out: those of each artifact's profile, or of the model five",
        ),
    ] = ()
    model: Annotated[
        str,
        Meta(
            description="a machine that is only described: a name in proxy/machines or a file of "
            "`veltair machine`; artifacts then have the times of the machine model"
        ),
    ] = ""
    measured_on: Annotated[
        str,
        Meta(
            description="with model: the machine that the artifacts' profiles were measured on, "
            "for each variant's own share of a core's peak; left out: by algorithm"
        ),
    ] = ""

    def __post_init__(self) -> None:
        """Refuses levels that don't ascend, and half of a model."""
        ascending = all(a < b for a, b in itertools.pairwise(self.levels))
        finite = all(math.isfinite(level) for level in self.levels)
        if self.levels and not (ascending and finite and self.levels[0] == 0):
            raise ValueError(f"levels = {list(self.levels)}: they ascend from 0")
        if self.measured_on and not self.model:
            raise ValueError("measured_on is only for `model`")
        shared = self.interference == "shared"
        if shared and (not self.model or self.levels):
            raise ValueError('interference = "shared" needs `model`, which has its levels')
        if not shared and (self.proxy != "perfect" or self.proxy_error > 0):
            raise ValueError('proxy and proxy_error are only for interference = "shared"')


class PolicySection(Section, frozen=True, kw_only=True):
    """`[policy]`: the three decisions and their parameters."""

    batching: Annotated[
        Literal["none"], Meta(description="none: each query is a task of its own")
    ] = "none"
    scheduling: Annotated[
        str,
        Meta(
            pattern="^(model|layer|block-[1-9][0-9]{0,3}|prema|partition|veltair(-as|-ac)?|"
            "(veltair-)?deadline)$",
            description="model, layer, block-N, prema, partition, veltair-as, veltair-ac, veltair, "
            "deadline, veltair-deadline",
        ),
    ] = "veltair-deadline"
    placement: Annotated[Literal["local"], Meta(description="local: the machine's cores")] = "local"
    max_block_us: Annotated[
        float,
        Meta(ge=1, le=1e9, description="deadline: longest predicted time between boundaries"),
    ] = 500.0
    margin_percent: Annotated[
        int, Meta(ge=1, le=100, description="deadline: part of the time left that a task plans on")
    ] = 75
    late_percent: LatePercent = 5
    refuse_late: Annotated[
        bool,
        Meta(description="deadline policies: refuse what can't be in time any more; else serve it"),
    ] = False
    partition_cores: Annotated[
        int,
        Meta(ge=0, le=4096, description="partition: cores of an instance; 0: by the profiles"),
    ] = 0
    threshold_cores: Annotated[
        int,
        Meta(
            ge=-1,
            le=4096,
            description="veltair-as, veltair, veltair-deadline: a layer that needs so many cores "
            "more than its model on average begins a block; -1: by the load, as in the paper",
        ),
    ] = -1


class ModelSection(NamedSection, frozen=True, kw_only=True):
    """`[[model]]`: one model that queries ask for."""

    profile: Annotated[
        str,
        Meta(
            min_length=1,
            description="a CSV of layer times by cores, or an artifact's folder; relative to the "
            "scenario, or the name of a file of eval/data",
        ),
    ]
    qos_ms: Annotated[
        float | None,
        Meta(description="latency target from the arrival; left out: the artifact's"),
    ] = None
    priority: Annotated[
        int, Meta(ge=1, le=1_000_000, description="prema: weight of a query's waiting time")
    ] = 1
    core_step: Annotated[
        int,
        Meta(
            ge=0,
            le=4096,
            description="0: policies choose among the measured core counts; N: among the multiples "
            "of N, with interpolated times",
        ),
    ] = 0


class ArrivalsSection(Section, frozen=True, kw_only=True):
    """`[arrivals]`: when queries arrive."""

    process: Annotated[
        Literal["poisson", "gamma", "uniform", "diurnal", "file"],
        Meta(
            description="poisson; gamma: intervals of that distribution; uniform: times drawn "
            "evenly over the whole run; diurnal: Poisson at a rate that rises and falls; file"
        ),
    ] = "poisson"
    rate_qps: Annotated[
        float, Meta(gt=0, le=1e9, description="mean rate over all models; a file has its own")
    ] = 100.0
    queries: Annotated[
        int, Meta(ge=1, le=100_000_000, description="how many; of a file at most that many")
    ] = 30_000
    warmup_queries: Annotated[
        int, Meta(ge=0, le=100_000_000, description="the first ones, which no figure counts")
    ] = 0
    seed: Annotated[
        int, Meta(ge=0, le=2**63 - 1, description="where every model's own seed comes from")
    ] = 1
    shape: Annotated[
        float, Meta(ge=1e-3, le=1e9, description="gamma: 1 is Poisson, less is burstier")
    ] = 1.0
    period_s: Annotated[
        float, Meta(gt=0, le=1e9, description="diurnal: time of one rise and fall")
    ] = 86_400.0
    amplitude: Annotated[
        float,
        Meta(ge=0, le=1, description="diurnal: the rate goes from 1 - a to 1 + a of the mean"),
    ] = 0.5
    file: Annotated[
        str, Meta(description="file: CSV with a line `arrival_ns,model` and a line a query")
    ] = ""

    def __post_init__(self) -> None:
        """Refuses a warm-up that would leave nothing to count, and a file without a name."""
        if self.warmup_queries >= self.queries:
            raise ValueError("warmup_queries must be less than queries")
        if (self.process == "file") != bool(self.file):
            raise ValueError('`file` and process = "file" go together')


class Scenario(Section, frozen=True, kw_only=True):
    """The whole scenario.

    Attributes:
        folder: where relative paths begin.
    """

    machine: MachineSection
    policy: PolicySection
    model: tuple[ModelSection, ...]
    arrivals: ArrivalsSection
    folder: Path


def read_scenario(path: Path, overrides: Sequence[str] = ()) -> Scenario:
    """Reads and checks a scenario of cores; arguments and errors as `read_table` has them."""
    return parse_scenario(read_table(path, overrides), folder=path.parent, source=str(path))


def read_table(path: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Reads a scenario's file and overrides its fields; nothing is checked yet.

    Args:
        path: the TOML file.
        overrides: `section.key=value` each, as `--set` takes them; a model's key is
            `model.NAME.key`, or `model.key` where there is one model.

    Raises:
        ConfigError: the file can't be read or parsed, or an override names no field.
    """
    try:
        table = tomllib.loads(read_whole(path).decode("utf-8-sig"))  # some editors write a mark
    except OSError as error:
        raise ConfigError(
            f"{path}: the scenario can't be read ({error.strerror}); name a TOML file that exists"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}; correct that place") from error
    for override in overrides:
        _override(table, override)
    return table


def parse_scenario(
    table: Mapping[str, Any], folder: Path = Path(), source: str = "scenario"
) -> Scenario:
    """Checks a table, as `tomllib` returns it.

    Args:
        table: section name to a table of keys; `model` to a list of tables.
        folder: where relative paths begin.
        source: named at the front of an error message.

    Raises:
        ConfigError: a field breaks its rule.
    """
    sections = parse_models(ModelSection, table, source)
    check_targets(sections, source)
    return Scenario(
        machine=parse_section(MachineSection, table.get("machine", {}), f"{source}: machine"),
        policy=parse_section(PolicySection, table.get("policy", {}), f"{source}: policy"),
        model=sections,
        arrivals=parse_section(ArrivalsSection, table.get("arrivals", {}), f"{source}: arrivals"),
        folder=folder,
    )


def check_targets(sections: Sequence[ModelSection], source: str) -> None:
    """Checks the latency targets of models.

    Raises:
        ConfigError: one is no time that a query can be asked to take.
    """
    for index, section in enumerate(sections):
        qos_ms = section.qos_ms
        if qos_ms is not None and not (0 < qos_ms <= _LONGEST_MS):  # NaN too
            raise ConfigError(
                f"{source}: model[{index}].qos_ms = {qos_ms}: a latency target is above 0 and at "
                f"most {_LONGEST_MS:.0f} ms; leave it out for the artifact's own"
            )


def parse_models(kind: type[_M], table: Mapping[str, Any], source: str) -> tuple[_M, ...]:
    """Checks a scenario's list of sections and its models.

    Args:
        kind: a model's record.
        table: the whole scenario.
        source: named at the front of an error message.

    Raises:
        ConfigError: a section is unknown, there is no model, or one breaks its rules.
    """
    known = ["machine", "policy", "model", "arrivals"]
    for name in table:
        if name not in known:
            raise ConfigError(unknown_name(f"{source}: [{name}]", "section", name, known))
    models = table.get("model", [])
    if not isinstance(models, list) or not models:
        raise ConfigError(f"{source}: no [[model]]; a scenario has at least one")
    return parse_model_list(kind, models, source)


def parse_model_list(kind: type[_M], models: Sequence[object], source: str) -> tuple[_M, ...]:
    """Checks a list of models; arguments and errors as `parse_models` has them."""
    sections = tuple(
        parse_section(kind, each, f"{source}: model[{index}]") for index, each in enumerate(models)
    )
    names = [section.name for section in sections]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{source}: model name = {name!r} twice; give each model its own")
    return sections


def parse_section(kind: type[_S], table: object, where: str) -> _S:
    """Checks one section.

    Args:
        kind: the section's record.
        table: its keys and values.
        where: named at the front of an error message.

    Raises:
        ConfigError: a key is unknown or missing, or a value breaks its rule.
    """
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where} = {table!r}: a section; write its keys under its heading")
    hints = get_type_hints(kind, include_extras=True)
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in hints:
            raise ConfigError(unknown_name(f"{where}.{key}", "field", key, list(hints)))
        try:
            if isinstance(value, float) and not math.isfinite(value):
                raise msgspec.ValidationError("Expected a finite number")
            values[key] = msgspec.convert(value, hints[key])
        except msgspec.ValidationError as error:
            meta = next(extra for extra in hints[key].__metadata__ if isinstance(extra, Meta))
            raise ConfigError(
                f"{where}.{key} = {value!r}: {_rule(hints[key], error)} ({meta.description})"
            ) from error
    missing = [f.name for f in msgspec.structs.fields(kind) if f.required and f.name not in values]
    if missing:
        raise ConfigError(f"{where}.{missing[0]} is missing; set it")
    try:
        return kind(**values)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}; change one of them") from error


def _rule(hint: Any, error: msgspec.ValidationError) -> str:  # noqa: ANN401 # any type there is
    choices = [c for c in get_args(get_args(hint)[0]) if isinstance(c, str)]
    return f"expected one of {', '.join(map(repr, choices))}" if choices else str(error)


def _override(table: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    section, _, key = path.strip().partition(".")
    if not equals or not key:
        raise ConfigError(
            f"--set {override}: expected section.key=value, as in policy.max_block_us=500"
        )
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = text  # a bare word is a string
    if section == "model":
        target, key = _model_table(table, key, override)
    else:
        target = table.setdefault(section, {})
    if not isinstance(target, dict):
        raise ConfigError(f"--set {override}: {section} is no section")
    target[key] = value


def _model_table(table: dict[str, Any], key: str, override: str) -> tuple[dict[str, Any], str]:
    models = [each for each in table.get("model", []) if isinstance(each, dict)]
    name, dot, rest = key.rpartition(".")
    found = [each for each in models if each.get("name") == name] if dot else models
    if len(found) != 1:
        raise ConfigError(
            f"--set {override}: {len(found)} models are meant; write model.NAME.key with one of "
            f"{', '.join(str(each.get('name')) for each in models)}"
        )
    return found[0], rest if dot else key
