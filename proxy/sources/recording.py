"""Readings in a file, one JSON object a line, and a source that gives them again.

The first line says what wrote the file: `{"veltair_counters": 1, "source": NAME, "note": TEXT}`.
Each other line is a reading, its fields as `Reading`, `Count` and `Missing` have them.
"""

from __future__ import annotations

import json
import math
from typing import IO, TYPE_CHECKING, Any

from veltair.proxy.sources.reading import Count, Missing, Reading, Scope
from veltair.runtime.errors import InputError, SourceError
from veltair.runtime.files import read_whole

if TYPE_CHECKING:
    from pathlib import Path

    from veltair.proxy.sources.reading import Source

_KEY = "veltair_counters"
_SCHEMA = 1


class Recorder:
    """A source that writes down what another one gives."""

    def __init__(self, source: Source, file: IO[str], note: str = "") -> None:
        """Writes the first line.

        Args:
            source: that is read; `close` closes it too.
            file: open for writing; remains the caller's.
            note: for who reads the file.

        Raises:
            OSError: the file can't be written, here and in `read`.
        """
        self.name = source.name
        self._source = source
        self._file = file
        self._write({_KEY: _SCHEMA, "source": source.name, "note": note})

    def read(self) -> Reading:
        """Reads the source and writes the reading."""
        reading = self._source.read()
        self._write(plain(reading))
        return reading

    def close(self) -> None:
        """Closes the source."""
        self._source.close()

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()  # what ends the process leaves whole lines


class Replay:
    """A source that gives the readings of a file, in order, one each time it is read."""

    def __init__(self, path: Path) -> None:
        """Reads the whole file.

        Raises:
            InputError: it can't be read, isn't a recording, or one of its lines is damaged.
        """
        try:
            lines = read_whole(path).decode().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise InputError(f"{path}: can't be read ({why})") from error
        self._path = path
        head = _object(path, 1, lines[0] if lines else "")
        if head.get(_KEY) != _SCHEMA:
            raise InputError(
                f"{path}: no recording of schema {_SCHEMA} (its first line has {_KEY!r}: "
                f"{head.get(_KEY)!r}); record it again (`veltair counters --record`)"
            )
        self.name = f"replay of {head.get('source')}"
        self._readings = [
            _reading(path, number, _object(path, number, line))
            for number, line in enumerate(lines[1:], start=2)
        ]
        for index in range(1, len(self._readings)):
            if self._readings[index].time_ns < self._readings[index - 1].time_ns:
                raise InputError(f"{path}, line {index + 2}: it is earlier than the line before it")
        self._next = 0

    def __len__(self) -> int:
        """How many readings there are in all."""
        return len(self._readings)

    def read(self) -> Reading:
        """Returns the next reading.

        Raises:
            SourceError: there is none left.
        """
        if self._next == len(self._readings):
            raise SourceError(
                f"{self._path}: the recording has ended after {len(self._readings)} readings"
            )
        self._next += 1
        return self._readings[self._next - 1]

    def close(self) -> None:
        """Holds nothing."""


def plain(reading: Reading) -> dict[str, Any]:
    """Returns a reading as JSON has it."""
    return {
        "time_ns": reading.time_ns,
        "elapsed_ns": reading.elapsed_ns,
        "counts": [
            {
                "name": each.name,
                "value": each.value,
                "unit": each.unit,
                "scope": each.scope.value,
                "where": each.where,
                "confidence": each.confidence,
            }
            for each in reading.counts
        ],
        "missing": [
            {"name": each.name, "where": each.where, "reason": each.reason}
            for each in reading.missing
        ],
    }


def _object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}, line {number}: no JSON ({error.msg}): the file was cut, or is no recording; "
            "remove the line, or record it again"
        ) from error
    if not isinstance(found, dict):
        raise InputError(f"{path}, line {number}: must be an object, not {line[:40]}")
    return found


def _reading(path: Path, number: int, line: dict[str, Any]) -> Reading:
    try:
        return Reading(
            time_ns=_ns(line["time_ns"]),
            elapsed_ns=_ns(line["elapsed_ns"]),
            counts=tuple(_count(each) for each in line["counts"]),
            missing=tuple(
                Missing(
                    name=str(each["name"]), where=str(each["where"]), reason=str(each["reason"])
                )
                for each in line["missing"]
            ),
        )
    except KeyError as error:
        raise InputError(f"{path}, line {number}: {error.args[0]!r} is missing") from error
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}, line {number}: {error}") from error


def _count(fields: dict[str, Any]) -> Count:
    return Count(
        name=str(fields["name"]),
        value=_number("value", fields["value"]),
        unit=str(fields["unit"]),
        scope=Scope(fields["scope"]),
        where=str(fields["where"]),
        confidence=_share("confidence", fields["confidence"]),
    )


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} must be a number, not {value!r}")
    return float(value)


def _share(name: str, value: object) -> float:
    number = _number(name, value)
    if not 0 <= number <= 1:
        raise ValueError(f"{name} must be from 0 to 1, not {value!r}")
    return number


def _ns(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"times are whole ns from 0, not {value!r}")
    return value
