"""Tuning logs: what a search measured, one JSON record a line, so that nobody searches twice.

A log is only appended to, each record by one write, so that two searches may share a file and a
killed one leaves at most one damaged line. What can't be read is skipped with a warning, never
removed.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Literal

import msgspec

from veltair.compiler.kernels.choices import Choice
from veltair.compiler.search.key import SPACE
from veltair.runtime.errors import InputError, VeltairError
from veltair.runtime.machine import core_steps, machine_facts

VERSION = 1
SUFFIX = ".jsonl"
_EXTENT = re.compile(r"_p(\d+)(?=_|$)")  # the parallel extent in a variant's id
_MOST_WARNINGS = 5  # a file; what is no log at all has a damaged line for each of its lines


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One measured candidate.

    Attributes:
        v: version of the record's form.
        space: version of the choices, `veltair.compiler.search.key.SPACE`.
        isa: instruction set.
        key: the layer's structural key.
        machine: what it was measured on, see `this_machine`.
        trial: its number among the layer's, from 0.
        choice: the kernel's decisions.
        status: `ok`, or `failed` with the reason.
        id: the variant's; empty where it could not be built.
        parallelism: parallel extent times unroll factor.
        block_bytes: working set of the cache tile.
        ns: lower quartile of its calls' times, by the core count; empty where it failed.
        reason: why it failed.
    """

    v: int
    space: int
    isa: str
    key: str
    machine: str
    trial: int
    choice: Choice
    status: Literal["ok", "failed"]
    id: str = ""
    parallelism: int = 0
    block_bytes: int = 0
    ns: dict[int, int] = {}
    reason: str = ""

    @property
    def solo_ns(self) -> int:
        """Time on all cores that it was measured on; 0 where it failed."""
        return self.ns[max(self.ns)] if self.ns else 0

    @property
    def mean_ns(self) -> float:
        """Geometric mean over the core counts: what is fastest by it is fast on few cores too.

        Only of one that did not fail.
        """
        return geometric_mean(max(ns, 1) for ns in self.ns.values())

    @property
    def task_ns(self) -> float:
        """Time of the shortest task that it can be divided into; 0 where its id has no extent.

        Only of one that did not fail.
        """
        extent = self._extent
        if extent is None:
            return 0.0
        fewest = min(self.ns)
        return self.ns[fewest] * fewest / extent

    def for_cores(self, cores: int) -> tuple[int, ...]:
        """Times alone on 1, 2, 4, ... cores of a machine of so many, and on all of them, ns.

        What wasn't measured is estimated from the next smaller count that was, or from the least:
        the tasks take as long there, and go round as often as the extent makes them; where the id
        has no extent the work divides evenly. Empty where it failed.
        """
        return tuple(self._time_on(count) for count in core_steps(cores)) if self.ns else ()

    def _time_on(self, cores: int) -> int:
        nearest = max((count for count in self.ns if count <= cores), default=min(self.ns))
        extent = self._extent
        before, after = nearest, cores
        if extent is not None:
            before, after = -(-extent // cores), -(-extent // nearest)
        return max(round(self.ns[nearest] * before / after), 1)

    @property
    def _extent(self) -> int | None:
        found = _EXTENT.search(self.id)
        return None if found is None else int(found[1])


class _Version(msgspec.Struct):
    v: int


class DamagedLogWarning(UserWarning):
    """Lines of a tuning log that were skipped."""


def this_machine() -> str:
    """The machine as records name it: processor, cores, caches."""
    facts = machine_facts()
    caches = [f"{name[:2]} {facts[name]}" for name in ("l2_bytes", "l3_bytes") if name in facts]
    return ", ".join([str(facts["cpu"]), f"{facts['cores']} cores", *caches])


@dataclass(frozen=True, kw_only=True)
class LogPlace:
    """Where logs are read, and which one is written.

    Attributes:
        folders: all logs in these are read: the installed package's, the user's.
        own: the file that is read too, and written.
    """

    folders: tuple[Path, ...]
    own: Path


def log_place(isa: str, model: str, own: Path | None = None, *, shipped: bool = True) -> LogPlace:
    """Where a model's logs are.

    Args:
        isa: instruction set.
        model: its name.
        own: the file to write, if it is another than usual.
        shipped: whether to read the logs that come with the package.
    """
    users = _user_logs() / isa
    folders = (_shipped_logs() / isa, users) if shipped else (users,)
    return LogPlace(folders=folders, own=own or users / f"{model}{SUFFIX}")


def _shipped_logs() -> Path:
    """The folder of the logs that come with the package."""
    import veltair.tuning_logs  # noqa: PLC0415 # a namespace of data: only its path is wanted

    return Path(next(iter(veltair.tuning_logs.__path__)))


def _user_logs() -> Path:
    """The user's folder, where the XDG standard puts a program's data."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "veltair" / "tuning_logs"


def read_logs(place: LogPlace, isa: str) -> list[Record]:
    """All usable records of an instruction set.

    Warns:
        DamagedLogWarning: lines were skipped.
    """
    paths = {path.resolve() for folder in place.folders for path in folder.glob(f"*{SUFFIX}")}
    own = place.own.resolve()  # last: what was measured last counts
    return [record for path in (*sorted(paths - {own}), own) for record in read_log(path, isa)]


def read_log(path: Path, isa: str) -> list[Record]:
    """The records of one file that are of this instruction set and space; none without a file.

    Raises:
        InputError: the file is there and can't be read.

    Warns:
        DamagedLogWarning: lines were skipped.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(
            f"{path}: the tuning log can't be read ({error.strerror}); give another with --log"
        ) from error
    decoder = msgspec.json.Decoder(Record)
    found, damaged = [], []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = decoder.decode(line)
            _check_version(record.v)
            _check_times(record)
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
            damaged.append((number, _reason(line, error)))
            continue
        if record.isa == isa and record.space == SPACE:
            found.append(record)
    _warn(path, damaged)
    return found


def _check_version(version: int) -> None:
    if version != VERSION:
        raise ValueError(f"version {version}, this Veltair reads version {VERSION}")


def _check_times(record: Record) -> None:
    fine = bool(record.ns) and all(n > 0 and ns > 0 for n, ns in record.ns.items())
    if fine != (record.status == "ok") or (fine and not record.id):
        raise ValueError(f"status {record.status!r} with times {record.ns}")


def _reason(line: bytes, error: Exception) -> str:
    """A newer record's other fields are no damage: its version is the reason."""
    try:
        _check_version(msgspec.json.decode(line, type=_Version).v)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    except ValueError as foreign:
        return str(foreign)
    return f"not a tuning record ({error})"


def _warn(path: Path, damaged: Sequence[tuple[int, str]]) -> None:
    for number, reason in damaged[:_MOST_WARNINGS]:
        warnings.warn(f"{path}:{number}: skipped: {reason}", DamagedLogWarning, stacklevel=4)
    if len(damaged) > _MOST_WARNINGS:
        rest = len(damaged) - _MOST_WARNINGS
        warnings.warn(
            f"{path}: {rest} more lines skipped; is it a tuning log?",
            DamagedLogWarning,
            stacklevel=4,
        )


class LogWriter:
    """Appends records to a file, each whole.

    Args:
        path: the file; it and its folder are made when the first record comes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, record: Record) -> None:
        """Writes one record.

        Raises:
            VeltairError: it can't be written.
        """
        line = msgspec.json.encode(record) + b"\n"
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                # A line that a killed search left unended must not swallow this one.
                begin = b"" if _ends_a_line(handle) else b"\n"
                if os.write(handle, begin + line) != len(begin + line):
                    raise OSError(28, "no space left")
            finally:
                os.close(handle)
        except OSError as error:
            raise VeltairError(
                f"{self._path}: the tuning log can't be written ({error.strerror}); free space "
                "or give another file with --log; what was logged before is kept"
            ) from error


def _ends_a_line(handle: int) -> bool:
    size = os.fstat(handle).st_size
    return size == 0 or os.pread(handle, 1, size - 1) == b"\n"
