"""Units that count events, as Linux describes them in /sys/bus/event_source/devices.

Each is a folder: `type` is its number for perf_event_open; `format` has one file a field, which
says what bits of `config`, `config1` or `config2` it fills; `events` has one file a named event,
its fields and values, beside it its `.scale` and `.unit`; `cpumask` says on which processors a
unit that cores share is counted, one for each such unit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from veltair.proxy.topology import cpu_list
from veltair.runtime.errors import SourceError

if TYPE_CHECKING:
    from pathlib import Path

_CONFIGS = ("config", "config1", "config2")
_FORMAT = re.compile(r"(config[12]?):(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)")


@dataclass(frozen=True, kw_only=True)
class EventCode:
    """What perf_event_open needs to know of an event."""

    type: int
    config: int
    config1: int = 0
    config2: int = 0


@dataclass(frozen=True, kw_only=True)
class NamedEvent:
    """An event that the kernel names.

    Attributes:
        text: its fields and values, as `encode` takes them.
        scale: what one count is, in `unit`.
        unit: empty where the kernel gives none.
    """

    text: str
    scale: float
    unit: str


class EventDevice:
    """One unit that counts events."""

    def __init__(self, folder: Path) -> None:
        """Reads its description.

        Raises:
            SourceError: the folder isn't as Linux writes it.
        """
        self.name = folder.name
        self._folder = folder
        try:
            self.type = int((folder / "type").read_text())
        except (OSError, ValueError) as error:
            raise SourceError(f"{folder}: its type can't be read ({error})") from error

    def cpus(self) -> tuple[int, ...]:
        """Processors to count it on, one for each unit of its kind; none for a core's own."""
        path = self._folder / "cpumask"
        return cpu_list(path.read_text().strip()) if path.is_file() else ()

    def named(self, name: str) -> NamedEvent | None:
        """Returns an event of the kernel's list; None if it isn't there."""
        path = self._folder / "events" / name
        if not path.is_file():
            return None
        scale = self._beside(name, "scale")
        return NamedEvent(
            text=path.read_text().strip(),
            scale=float(scale) if scale else 1.0,
            unit=self._beside(name, "unit"),
        )

    def names(self) -> tuple[str, ...]:
        """Names of the kernel's list, ascending."""
        folder = self._folder / "events"
        files = sorted(path.name for path in folder.glob("*")) if folder.is_dir() else []
        return tuple(name for name in files if not name.endswith((".scale", ".unit", ".snapshot")))

    def encode(self, text: str) -> EventCode:
        """Encodes an event by the unit's own format.

        Args:
            text: `event=0x04,umask=0xff`; a field without a value is 1.

        Raises:
            SourceError: the unit has no such field, or the value is too large for it.
        """
        words = dict.fromkeys(_CONFIGS, 0)
        for part in text.split(","):
            field, _, value = part.partition("=")
            self._put(words, field.strip(), int(value or "1", 0))
        return EventCode(type=self.type, **words)

    def _put(self, words: dict[str, int], field: str, value: int) -> None:
        """Spreads a value over its bits, the lowest first."""
        if field in words:  # the whole word
            words[field] |= value
            return
        word, bits = self._format(field)
        if value >> len(bits):
            raise SourceError(
                f"{self._folder}: {field}={value:#x} doesn't fit into its {len(bits)} bits: the "
                "kernel doesn't know this processor's events; a newer one may"
            )
        for place, bit in enumerate(bits):
            words[word] |= (value >> place & 1) << bit

    def _format(self, field: str) -> tuple[str, list[int]]:
        path = self._folder / "format" / field
        text = path.read_text().strip() if path.is_file() else ""
        found = _FORMAT.fullmatch(text)
        if found is None:
            raise SourceError(
                f"{self._folder}: no usable format of the field {field!r} ({text!r}): the kernel "
                "doesn't know this processor's events; a newer one may"
            )
        bits: list[int] = []
        for part in found[2].split(","):
            first, _, last = part.partition("-")
            bits += range(int(first), int(last or first) + 1)
        return found[1], bits

    def _beside(self, name: str, kind: str) -> str:
        path = self._folder / "events" / f"{name}.{kind}"
        return path.read_text().strip() if path.is_file() else ""


def devices_named(root: Path, pattern: str) -> list[EventDevice]:
    """Returns the units whose names match a pattern in full, by number.

    Args:
        root: the folder of all units.
        pattern: a regular expression.
    """
    folders = [each for each in root.glob("*") if re.fullmatch(pattern, each.name)]
    return [EventDevice(each) for each in sorted(folders, key=_by_number)]


def _by_number(folder: Path) -> tuple[str, int]:
    stem, _, number = folder.name.rpartition("_")
    return (stem, int(number)) if number.isdigit() else (folder.name, -1)
