"""The server's configuration: `serve.toml` as frozen records.

Each field's type carries its bounds and its meaning (`msgspec.Meta`), so the check, the error
message and the documentation have one source. An unknown key, a wrong type or a value out of range
is refused before anything starts.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Meta

from veltair.runtime.errors import ConfigError, unknown_name
from veltair.runtime.files import read_whole
from veltair.runtime.simulate.scenario import (
    LatePercent,
    ModelSection,
    check_targets,
    parse_model_list,
)

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_S = TypeVar("_S", bound=msgspec.Struct)

Core = Annotated[int, Meta(ge=0, le=1_048_575)]


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the sections: immutable, keyword-only."""


class ServerConfig(_Section, frozen=True, kw_only=True):
    """`[server]`: the HTTP front end on rank 0."""

    http_host: Annotated[
        str, Meta(min_length=1, max_length=255, description="address or name to listen on")
    ] = "127.0.0.1"
    http_port: Annotated[
        int, Meta(ge=0, le=65_535, description="TCP port to listen on; 0 takes any free one")
    ] = 8000
    max_body_bytes: Annotated[
        int,
        Meta(ge=1024, le=2**40, description="largest request body; a larger one is refused (413)"),
    ] = 64 * 2**20
    max_buffered_bytes: Annotated[
        int,
        Meta(ge=1024, le=2**50, description="memory for unfinished bodies, all connections"),
    ] = 2**30
    max_connections: Annotated[
        int,
        Meta(ge=1, le=1_000_000, description="open connections; one more is refused (503)"),
    ] = 4096
    header_timeout_ms: Annotated[
        int,
        Meta(ge=1, le=3_600_000, description="time from a request's first byte to its whole head"),
    ] = 10_000
    body_timeout_ms: Annotated[
        int,
        Meta(ge=1, le=3_600_000, description="time from a request's head to the end of its body"),
    ] = 30_000
    keepalive_timeout_ms: Annotated[
        int,
        Meta(ge=1, le=86_400_000, description="idle time after which a connection is closed"),
    ] = 75_000
    drain_timeout_ms: Annotated[
        int,
        Meta(ge=0, le=3_600_000, description="time that accepted queries have to end at a stop"),
    ] = 30_000
    record: Annotated[
        str,
        Meta(
            max_length=4096,
            description="file that gets a line for each scheduling decision, for `veltair replay`, "
            "after those of earlier runs; empty: none",
        ),
    ] = ""


class QueueConfig(_Section, frozen=True, kw_only=True):
    """`[queue]`: how many queries wait, and which are refused at once."""

    max_queries: Annotated[
        int,
        Meta(
            ge=1,
            le=65_536,
            description="slots a model: queries waiting, running, unanswered; where none is left, "
            "those that wait and are late already make room",
        ),
    ] = 64
    admission: Annotated[
        bool,
        Meta(description="refuse at once (503) a query whose QoS target can't be met any more"),
    ] = False


class SchedulingConfig(_Section, frozen=True, kw_only=True):
    """`[scheduling]`: cores, layers and variants of the next block."""

    policy: Annotated[
        str,
        Meta(
            pattern="^(model|layer|block-[1-9][0-9]{0,3}|prema|partition|veltair(-as|-ac)?|"
            "(veltair-)?deadline)$",
            description="model: whole models; layer, block-N: blocks of 1 or N layers; prema: one "
            "task at a time, by tokens; partition: fixed core sets; veltair-as, veltair-ac, "
            "veltair: adaptive blocks, versions, both; deadline: earliest deadline first; "
            "veltair-deadline: the same over adaptive blocks and versions",
        ),
    ] = "veltair-deadline"
    max_block_ms: Annotated[
        float,
        Meta(
            ge=0.001,
            le=10_000,
            description="deadline policies: longest predicted time between two block boundaries",
        ),
    ] = 0.5
    margin_percent: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="deadline policies: how much of the time left a query plans to use",
        ),
    ] = 75
    late_percent: LatePercent = 5
    refuse_late: Annotated[
        bool,
        Meta(
            description="deadline policies: refuse (503) a query that waits, or end one that runs, "
            "once it can't be in time any more; else it is served by the cores that no other needs"
        ),
    ] = False
    partition_cores: Annotated[
        int,
        Meta(
            ge=0,
            le=1_048_576,
            description="partition: cores of each instance; 0: chosen by the profiles",
        ),
    ] = 0
    threshold_cores: Annotated[
        int,
        Meta(
            ge=-1,
            le=1_048_576,
            description="veltair-as, veltair, veltair-deadline: a layer that needs so many cores "
            "more than its model on average begins a block; -1: by the load, as in the paper",
        ),
    ] = -1
    level: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description="interference level, as an index into the profiles' levels, while none is "
            "measured or known",
        ),
    ] = 0


class InterferenceConfig(_Section, frozen=True, kw_only=True):
    """`[interference]`: by what the interference level is measured, for policies with versions."""

    source: Annotated[
        Literal["auto", "none", "self", "perf-task", "perf-uncore", "resctrl", "probe"],
        Meta(
            description="auto: the best that works here and that `proxy` has a model for (with the "
            "null executor: none); none: `scheduling.level` is taken; self: our own blocks alone; "
            "or one of `veltair counters`. Our own blocks are always added"
        ),
    ] = "auto"
    proxy: Annotated[
        str,
        Meta(
            max_length=4096,
            description="models from counts to the level, as `veltair calibrate` writes them; "
            "empty: our own blocks alone tell it",
        ),
    ] = ""


class BatchingConfig(_Section, frozen=True, kw_only=True):
    """`[batching]`: which queries become a task, and when."""

    policy: Annotated[
        Literal["none", "eager", "timeout", "deferred"],
        Meta(
            description="none: each query is a task of its own; eager: all that wait, at once; "
            "timeout: once the first has waited; deferred: as late as all can still be in time"
        ),
    ] = "none"
    timeout_ms: Annotated[
        float,
        Meta(ge=0, le=3_600_000, description="timeout: how long a query waits for others"),
    ] = 5.0
    max_batch: Annotated[int, Meta(ge=1, le=65_536, description="queries of a task, at most")] = 8
    least_percent: Annotated[
        int,
        Meta(
            ge=0,
            le=100,
            description="deferred, eager: under overload, the share of the best batch size below "
            "which first queries are given up; 0: never",
        ),
    ] = 0
    executors: Annotated[
        int,
        Meta(
            ge=0,
            le=65_536,
            description="tasks under way at a time; 0: as many as the cores can run",
        ),
    ] = 0


class PlacementConfig(_Section, frozen=True, kw_only=True):
    """`[placement]`: on which executor a task runs."""

    policy: Annotated[
        Literal["local", "first-fit"],
        Meta(
            description="local: this node's cores; first-fit: the first executor with room, which "
            "is the same while a node has cores only"
        ),
    ] = "local"


class EngineConfig(_Section, frozen=True, kw_only=True):
    """`[engine]`: what runs the layers, and on which cores."""

    executor: Annotated[
        Literal["kernels", "null"],
        Meta(
            description="kernels: the artifacts' kernels, on pinned threads; null: nothing, a "
            "block only takes the time that its profile says, to try schedules"
        ),
    ] = "kernels"
    virtual_cores: Annotated[
        int,
        Meta(
            ge=0,
            le=4096,
            description="null executor: cores that are served on, 0 to N-1, which need not be "
            "there; 0: as `cores` says",
        ),
    ] = 0
    cores: Annotated[
        tuple[Core, ...],
        Meta(max_length=65_536, description="cores to serve on; empty: all that the process may"),
    ] = ()
    spin_us: Annotated[
        int,
        Meta(ge=0, le=1_000_000, description="how long a gang's idle thread spins before it parks"),
    ] = 50

    def __post_init__(self) -> None:
        """Refuses a core that is named twice, and virtual ones where they can't be."""
        if len(set(self.cores)) != len(self.cores):
            raise ValueError("a core may be named once")
        if self.virtual_cores and self.executor != "null":
            raise ValueError('kernels run on cores that are there; virtual_cores needs "null"')
        if self.virtual_cores and self.cores:
            raise ValueError("cores are named or virtual, not both")


class WorkersConfig(_Section, frozen=True, kw_only=True):
    """`[workers]`: membership of the worker ranks."""

    heartbeat_ms: Annotated[
        int, Meta(ge=1, le=60_000, description="period of a worker's sign of life")
    ] = 250
    dead_after_ms: Annotated[
        int,
        Meta(
            ge=10,
            le=600_000,
            description="silence after which a worker counts as hung; a death is seen at once",
        ),
    ] = 2_000

    def __post_init__(self) -> None:
        """Refuses a period that would declare a healthy worker dead, or hide a silent one.

        Rank 0 looks once a period too, and doesn't judge after a pause of its own, which is half of
        the silence.
        """
        if self.dead_after_ms < 3 * self.heartbeat_ms:
            raise ValueError("dead_after_ms must be at least three times heartbeat_ms")


class ServeConfig(_Section, frozen=True, kw_only=True):
    """The whole of `serve.toml`; each field is a section, `model` a list of them (`[[model]]`)."""

    server: ServerConfig = ServerConfig()
    queue: QueueConfig = QueueConfig()
    scheduling: SchedulingConfig = SchedulingConfig()
    interference: InterferenceConfig = InterferenceConfig()
    batching: BatchingConfig = BatchingConfig()
    placement: PlacementConfig = PlacementConfig()
    engine: EngineConfig = EngineConfig()
    workers: WorkersConfig = WorkersConfig()
    model: tuple[ModelSection, ...] = ()

    def __post_init__(self) -> None:
        """Refuses models of which there is nothing but a profile where kernels run."""
        if self.model and self.engine.executor != "null":
            raise ValueError(
                f'[[model]] {self.model[0].name!r}: only [engine] executor = "null" serves a model '
                "by its profile alone; set that, or compile the model into the repository and "
                "leave [[model]] out"
            )


def load_config(
    path: Path | None = None, overrides: Mapping[str, object] | None = None
) -> ServeConfig:
    """Reads and checks the configuration.

    Args:
        path: a TOML file; None takes the defaults.
        overrides: what the command line set, by `section.key`; a value of None counts as not set.

    Raises:
        ConfigError: the file can't be read or parsed, or a key or value breaks its rule.
    """
    table = _read(path) if path is not None else {}
    config = parse_config(table, source=str(path) if path is not None else "configuration")
    given = {name: value for name, value in (overrides or {}).items() if value is not None}
    return change_config(config, given, source="command line")


def change_config(
    config: ServeConfig, changes: Mapping[str, object], source: str = "configuration"
) -> ServeConfig:
    """Returns a configuration with some keys changed, checked as in a file.

    Args:
        config: the one to begin with.
        changes: values by `section.key`.
        source: named at the front of an error message.

    Raises:
        ConfigError: a key or value breaks its rule.
    """
    changed: dict[str, Any] = msgspec.to_builtins(config)
    for name, value in changes.items():
        section, _, key = name.partition(".")
        changed.setdefault(section, {})[key] = value
    return parse_config(changed, source)


def parse_config(table: Mapping[str, object], source: str = "configuration") -> ServeConfig:
    """Checks a table of sections, as `tomllib` returns it.

    Args:
        table: section name to a table of keys.
        source: named at the front of an error message.

    Raises:
        ConfigError: a key or value breaks its rule.
    """
    hints = get_type_hints(ServeConfig)
    sections: dict[str, Any] = {}
    for name, value in table.items():
        if name not in hints:
            raise ConfigError(unknown_name(f"{source}: [{name}]", "section", name, list(hints)))
        if name == "model":
            sections[name] = _models(value, source)
            continue
        if not isinstance(value, Mapping):
            raise ConfigError(
                f"{source}: {name} = {value!r}: {name} is a section; write its keys under [{name}]"
            )
        sections[name] = _section(hints[name], value, f"{source}: [{name}]")
    try:
        return ServeConfig(**sections)
    except ValueError as error:
        raise ConfigError(f"{source}: {error}") from error


def _models(models: object, source: str) -> tuple[ModelSection, ...]:
    if not isinstance(models, Sequence) or isinstance(models, str):
        raise ConfigError(
            f"{source}: model = {models!r}: a list of models; write the keys of each under a "
            "[[model]] of its own"
        )
    sections = parse_model_list(ModelSection, models, source)
    check_targets(sections, source)
    for index, section in enumerate(sections):
        if section.weight != 1.0:
            raise ConfigError(
                f"{source}: model[{index}].weight = {section.weight}: a server's queries come from "
                "its clients; only a scenario weighs models, so leave it out"
            )
    return sections


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_whole(path).decode("utf-8"))
    except OSError as error:
        raise ConfigError(
            f"{path}: the configuration can't be read ({error.strerror}); "
            "name a TOML file that exists, or leave the option out for the defaults"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}; correct that place") from error


def _section(kind: type[_S], table: Mapping[str, object], where: str) -> _S:
    hints = get_type_hints(kind, include_extras=True)
    values = {}
    for key, value in table.items():
        if key not in hints:
            raise ConfigError(unknown_name(f"{where} {key}", "key", key, list(hints)))
        try:
            if isinstance(value, float) and not math.isfinite(value):
                raise msgspec.ValidationError("Expected a finite number")
            values[key] = msgspec.convert(value, hints[key])
        except msgspec.ValidationError as error:
            raise ConfigError(f"{where} {key} = {value!r}: {_rule(kind, key, error)}") from error
    try:
        return kind(**values)
    except ValueError as error:
        given = ", ".join(f"{key} = {value!r}" for key, value in values.items())
        raise ConfigError(f"{where} {given}: {error}; change one of them") from error


def _rule(kind: type[msgspec.Struct], key: str, error: msgspec.ValidationError) -> str:
    hint = get_type_hints(kind, include_extras=True)[key]
    meta = next(extra for extra in hint.__metadata__ if isinstance(extra, Meta))
    expected = str(error)
    base = get_args(hint)[0]
    if base in (int, float):
        kind_of = "an integer" if base is int else "a number"
        expected = f"expected {kind_of} from {meta.ge} to {meta.le}"
    elif choices := [c for c in get_args(base) if isinstance(c, str)]:
        expected = f"expected one of {', '.join(map(repr, choices))}"
    default = getattr(kind(), key)
    return f"{expected} ({meta.description}); leave it out for the default, {default!r}"
