"""The record of a calibration: one JSON object a line, so that a stop keeps what is measured.

The first line says what is measured, where. Each other line is a turn: one layer beside every
setting, in one go. A line that was cut by a kill is the last one, and is measured again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from veltair.proxy.co_runners import BUBBLES
from veltair.proxy.grid import Setting
from veltair.proxy.sources.reading import Reading
from veltair.proxy.works import Work
from veltair.runtime.errors import InputError
from veltair.runtime.files import read_whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from veltair.proxy.co_runners import CoRunner

SCHEMA = 1


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the lines: immutable, unknown fields refused."""


class Header(_Record, frozen=True, kw_only=True):
    """What is measured.

    Attributes:
        veltair_calibration: schema of the file.
        machine: as `machine_facts` tells it.
        artifacts: what their layers are, by name.
        settings: that each layer is measured beside; the first is alone.
        works: the layers.
        sources: that are read.
    """

    veltair_calibration: int
    machine: dict[str, str | int]
    artifacts: dict[str, str]
    settings: tuple[Setting, ...]
    works: tuple[Work, ...]
    sources: tuple[str, ...]


class Slot(_Record, frozen=True, kw_only=True):
    """One layer beside one setting.

    Attributes:
        setting: its number in the header.
        reference_ns: time of the reference kernel beside it, just before and after.
        run_ns: median time of a run of the layer.
        total_ns: of all runs.
        runs: how many there were.
        readings: what each source said meanwhile, by its name.
    """

    setting: int
    reference_ns: float
    run_ns: int
    total_ns: int
    runs: int
    readings: dict[str, Reading]


class Turn(_Record, frozen=True, kw_only=True):
    """One layer beside every setting.

    Attributes:
        round: number of the turn among those of the layer.
        work: its number in the header.
        elapsed_ns: that it took.
        slots: in the order of measurement; alone is there twice.
    """

    round: int
    work: int
    elapsed_ns: int
    slots: tuple[Slot, ...]


class CalibrationRecord:
    """A record's file: what is in it, and what is appended."""

    def __init__(self, path: Path, header: Header, turns: Sequence[Turn]) -> None:
        """Holds what `read` or `begin` found."""
        self.path = path
        self.header = header
        self.turns = list(turns)

    @classmethod
    def begin(cls, path: Path, header: Header) -> CalibrationRecord:
        """Writes a new file.

        Raises:
            InputError: it can't be written.
        """
        record = cls(path, header, ())
        record._append(header, "wb")
        return record

    @classmethod
    def read(cls, path: Path) -> CalibrationRecord:
        """Reads a file; a last line that was cut is left out, and goes with the next `add`.

        Raises:
            InputError: it can't be read, is no such record, or a line in it is damaged.
        """
        try:
            data = read_whole(path)
        except OSError as error:
            raise InputError(f"{path}: can't be read ({error.strerror})") from error
        lines = data.split(b"\n")
        header = _header(path, lines[0])
        turns = [_turn(path, number, line, header) for number, line in _numbered(lines[1:-1])]
        return cls(path, header, turns)

    def add(self, turn: Turn) -> None:
        """Appends a turn.

        Raises:
            InputError: it can't be written.
        """
        self._append(turn, "ab")
        self.turns.append(turn)

    def drop_cut_line(self) -> None:
        """Removes a last line that was cut, so that lines can be appended.

        Raises:
            InputError: it can't be written.
        """
        try:
            data = read_whole(self.path)
            os.truncate(self.path, data.rfind(b"\n") + 1)
        except OSError as error:
            raise InputError(f"{self.path}: can't be written ({error.strerror})") from error

    def check_same(self, machine: Mapping[str, object], artifacts: Mapping[str, str]) -> None:
        """Refuses to go on where something else was measured.

        Raises:
            InputError: the record is of another machine or of other artifacts.
        """
        for what, here, there in (
            ("machine", dict(machine), self.header.machine),
            ("artifacts", dict(artifacts), self.header.artifacts),
        ):
            if here != there:
                differing = sorted(
                    key for key in {*here, *there} if here.get(key) != there.get(key)
                )
                raise InputError(
                    f"{self.path}: is the record of a calibration with another {what} "
                    f"({', '.join(differing)} differ); remove it, or give another -o"
                )

    @property
    def co_runner(self) -> CoRunner:
        """What disturbed."""
        evicting = any(each.evicted_millionths for each in self.header.settings)
        return "evictors" if evicting else BUBBLES

    @property
    def elapsed_s(self) -> float:
        """Seconds of all turns."""
        return sum(turn.elapsed_ns for turn in self.turns) / 1e9

    def _append(self, line: Header | Turn, mode: str) -> None:
        try:
            with self.path.open(mode) as file:
                file.write(msgspec.json.encode(line) + b"\n")
        except OSError as error:
            raise InputError(f"{self.path}: can't be written ({error.strerror})") from error


def record_path(output: Path) -> Path:
    """Returns where the record of a calibration is whose result is `output`."""
    return output.with_name(f"{output.stem}.record.jsonl")


class _Head(msgspec.Struct):
    """What every schema has."""

    veltair_calibration: int


def _header(path: Path, line: bytes) -> Header:
    try:
        schema = msgspec.json.decode(line, type=_Head).veltair_calibration
        if schema != SCHEMA:
            raise InputError(
                f"{path}: a record of schema {schema}, and this version reads schema {SCHEMA}; "
                "remove it, or give another -o"
            )
        return msgspec.json.decode(line, type=Header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path}: no record of a calibration ({error}); remove it, or give another -o"
        ) from error


def _numbered(lines: Sequence[bytes]) -> list[tuple[int, bytes]]:
    return list(enumerate(lines, start=2))


def _turn(path: Path, number: int, line: bytes, header: Header) -> Turn:
    try:
        turn = msgspec.json.decode(line, type=Turn)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path}, line {number}: damaged ({error}); remove the line, its turn is measured again"
        ) from error
    numbers = [slot.setting for slot in turn.slots]
    if not 0 <= turn.work < len(header.works) or sorted(numbers) != [
        0,
        *range(len(header.settings)),
    ]:
        raise InputError(
            f"{path}, line {number}: is of a layer or settings that the first line doesn't have; "
            "remove the line, its turn is measured again"
        )
    return turn
