"""What a machine is, as far as the machine model asks: a TOML file with a source for each figure.

`proxy/machines` has files of processors that were published, and of some that were measured;
`veltair machine` measures the one at hand. Each figure has a line under `[sources]` that says where
it comes from, so that none is made up.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_type_hints

import msgspec
from msgspec import Meta

from veltair.runtime.errors import ConfigError, unknown_name
from veltair.runtime.simulate.scenario import Section, parse_section, read_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from veltair.runtime.manifest import Profile

SHIPPED = Path(__file__).resolve().parent / "machines"
_NAME = re.compile(r"[A-Za-z0-9_-]+")


class Processor(Section, frozen=True, kw_only=True):
    """`[processor]`: cores and what one computes."""

    name: Annotated[str, Meta(min_length=1, description="as its maker names it")]
    cores: Annotated[int, Meta(ge=1, le=4096, description="physical cores")]
    complexes: Annotated[
        int, Meta(ge=1, le=4096, description="core complexes: groups of cores that share an L3")
    ]
    frequency_ghz: Annotated[
        float, Meta(gt=0, le=100, description="GHz, of each core while all compute with vectors")
    ]
    vector_lanes: Annotated[
        int, Meta(ge=1, le=64, description="32-bit elements of a vector instruction")
    ]
    fmas_per_cycle: Annotated[
        float, Meta(gt=0, le=16, description="vector multiply-adds that a core begins a cycle")
    ]

    def __post_init__(self) -> None:
        """Refuses complexes that the cores don't fill evenly."""
        if self.cores % self.complexes != 0:
            raise ValueError(
                f"cores = {self.cores}, complexes = {self.complexes}: all have as many cores"
            )


class Caches(Section, frozen=True, kw_only=True):
    """`[caches]`: what lies between a core and memory."""

    l2_kib: Annotated[int, Meta(ge=1, le=1 << 20, description="KiB, second cache of each core")]
    l3_mib: Annotated[float, Meta(gt=0, le=1 << 20, description="MiB, L3 of each complex")]
    l3_core_gbps: Annotated[
        float,
        Meta(
            gt=0,
            le=1e6,
            description="GB/s that each core reads from its L3 while its others do too",
        ),
    ]


class Memory(Section, frozen=True, kw_only=True):
    """`[memory]`: what is read from it."""

    core_gbps: Annotated[float, Meta(gt=0, le=1e6, description="GB/s that one core reads alone")]
    complex_gbps: Annotated[
        float, Meta(gt=0, le=1e6, description="GB/s that the cores of one complex read together")
    ]
    total_gbps: Annotated[
        float, Meta(gt=0, le=1e6, description="GB/s that all cores read together")
    ]


class Launch(Section, frozen=True, kw_only=True):
    """`[launch]`: what beginning and ending a kernel costs."""

    base_ns: Annotated[float, Meta(ge=0, le=1e9, description="ns, of a kernel on one core")]
    core_ns: Annotated[float, Meta(ge=0, le=1e9, description="ns more for each further core")]


class Machine(Section, frozen=True, kw_only=True):
    """A whole machine.

    Attributes:
        processor: its cores.
        caches: between them and memory.
        memory: of the machine.
        launch: of kernels.
        sources: where each figure is from, by `section.field`.
    """

    processor: Processor
    caches: Caches
    memory: Memory
    launch: Launch
    sources: dict[str, str]

    @property
    def peak_gflops(self) -> float:
        """The most that one core computes, a multiply-add counted as two."""
        core = self.processor
        return core.frequency_ghz * core.vector_lanes * core.fmas_per_cycle * 2

    @property
    def complex_cores(self) -> int:
        """Cores that share an L3."""
        return self.processor.cores // self.processor.complexes

    def changed(self, field: str, value: float) -> Machine:
        """A copy with another figure, which is `section.field`."""
        section, _, name = field.partition(".")
        part = msgspec.structs.replace(getattr(self, section), **{name: value})
        return msgspec.structs.replace(self, **{section: part})


_SECTIONS: dict[str, type[Section]] = {
    "processor": Processor,
    "caches": Caches,
    "memory": Memory,
    "launch": Launch,
}
FIGURES = tuple(
    f"{section}.{field}" for section, kind in _SECTIONS.items() for field in kind.__struct_fields__
)


def shipped_machines() -> tuple[str, ...]:
    """Names of the files that come with the project, sorted."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.toml")))


def find_machine(name: str, folder: Path, field: str) -> Machine:
    """Reads a machine by the name of a shipped file, or by its path.

    Args:
        name: the one or the other.
        folder: where a relative path begins.
        field: what named it, for an error message.

    Raises:
        ConfigError: there is no such file, or it breaks a rule.
    """
    if _NAME.fullmatch(name) and (SHIPPED / f"{name}.toml").is_file():
        return read_machine(SHIPPED / f"{name}.toml")
    if not (folder / name).is_file():
        raise ConfigError(
            f"{field} = {name!r}: neither a file nor one of {', '.join(shipped_machines())}; "
            "`veltair machine -o FILE` writes one of the machine at hand"
        )
    return read_machine(folder / name)


def machine_measured_on(name: str, profiles: Iterable[Profile], field: str) -> Machine:
    """Reads the machine that profiles were measured on.

    Args:
        name: as `find_machine` takes it, from the working folder; empty: the shipped one that has
            the profiles' processor and caches, since a virtual machine may name its processor by
            its family only.
        profiles: of the artifacts.
        field: what named it, for an error message.

    Raises:
        ConfigError: there is no such file, it breaks a rule, or no shipped one is of the profiles.
    """
    if name:
        return find_machine(name, Path(), field)
    measured_on = sorted({measured_text(each) for each in profiles})
    for shipped in shipped_machines():
        machine = read_machine(SHIPPED / f"{shipped}.toml")
        caches = machine.caches
        if measured_on == [_text(machine.processor.name, caches.l2_kib, caches.l3_mib)]:
            return machine
    raise ConfigError(
        f"the profiles were measured on {' and '.join(measured_on)}, and no machine that comes "
        f"with the project is that; name one with {field} (`veltair machine -o FILE` writes one of "
        "the machine at hand)"
    )


def measured_text(profile: Profile) -> str:
    """Names the processor that a profile was measured on, with its caches; 0 is not known."""
    l2_bytes, l3_bytes = (int(profile.machine.get(key, 0)) for key in ("l2_bytes", "l3_bytes"))
    return _text(profile.processor, l2_bytes / 1024, l3_bytes / (1 << 20))


def _text(processor: str, l2_kib: float, l3_mib: float) -> str:
    return f"{processor} (L2 {l2_kib:g} KiB, L3 {l3_mib:g} MiB)"


def read_machine(path: Path) -> Machine:
    """Reads and checks a machine's file.

    Raises:
        ConfigError: it can't be read, or breaks a rule.
    """
    return parse_machine(read_table(path), str(path))


def parse_machine(table: Mapping[str, object], where: str = "machine") -> Machine:
    """Checks a table, as `tomllib` returns it.

    Args:
        table: section name to a table of keys.
        where: named at the front of an error message.

    Raises:
        ConfigError: a section or figure is unknown, missing or out of range, or has no source.
    """
    known = [*_SECTIONS, "sources"]
    for name in table:
        if name not in known:
            raise ConfigError(unknown_name(f"{where}: [{name}]", "section", name, known))
    parts: dict[str, Section] = {
        name: parse_section(kind, table.get(name, {}), f"{where}: {name}")
        for name, kind in _SECTIONS.items()
    }
    sources = table.get("sources", {})
    if not isinstance(sources, dict) or not all(isinstance(s, str) for s in sources.values()):
        raise ConfigError(
            f'{where}: sources = {sources!r}: a section of texts; write "section.field" = "..."'
        )
    for name in sources:
        if name not in FIGURES:
            raise ConfigError(unknown_name(f"{where}: sources.{name}", "figure", name, [*FIGURES]))
    for figure in FIGURES:
        if not sources.get(figure, "").strip():
            raise ConfigError(
                f'{where}: sources has no "{figure}"; say where the figure comes from'
            )
    machine = msgspec.convert({**parts, "sources": dict(sources)}, Machine)
    _check_order(machine, where)
    return machine


def _check_order(machine: Machine, where: str) -> None:
    """What is nearer to a core, or for more cores, is no slower."""
    memory = machine.memory
    pairs = (
        ("memory.core_gbps", memory.core_gbps, "memory.complex_gbps", memory.complex_gbps),
        ("memory.complex_gbps", memory.complex_gbps, "memory.total_gbps", memory.total_gbps),
        (
            "memory.core_gbps",
            memory.core_gbps,
            "caches.l3_core_gbps",
            machine.caches.l3_core_gbps,
        ),
    )
    for low_name, low, high_name, high in pairs:
        if low > high:
            raise ConfigError(
                f"{where}: {low_name} = {low:g}: at most {high_name}, which is {high:g}; "
                "measure both again"
            )


def to_toml(machine: Machine, heading: str) -> str:
    """Returns the file of a machine: each figure, what it is, and where it comes from.

    Args:
        machine: what to write.
        heading: the first lines, without `#`.
    """
    lines = [f"# {line}".rstrip() for line in heading.splitlines()]
    for section, kind in _SECTIONS.items():
        lines += ["", f"[{section}]"]
        for name, described in described_fields(kind):
            value = getattr(getattr(machine, section), name)
            lines += [f"# {described}", f"{name} = {json.dumps(value, ensure_ascii=False)}"]
    lines += ["", "[sources]"]
    for figure in FIGURES:
        text = json.dumps(machine.sources[figure], ensure_ascii=False)
        lines.append(f'"{figure}" = {text}')
    return "\n".join(lines) + "\n"


def described_fields(kind: type[msgspec.Struct]) -> list[tuple[str, str]]:
    """Names and descriptions of a section's fields."""
    hints = get_type_hints(kind, include_extras=True)
    return [
        (name, next(m.description or "" for m in hints[name].__metadata__ if isinstance(m, Meta)))
        for name in kind.__struct_fields__
    ]
