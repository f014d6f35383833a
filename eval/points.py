"""Measured points that outlive the command that measured them, so that it can be stopped."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import psutil

from veltair.eval.record import revision
from veltair.runtime import _native
from veltair.runtime.files import write_whole
from veltair.runtime.machine import machine_facts


class PointStore:
    """A folder with one file a point, named by the hash of all that the point depends on."""

    def __init__(self, folder: Path) -> None:
        """Makes the folder where it is missing."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder

    def get(self, key: dict[str, Any]) -> dict[str, Any] | None:
        """Returns what `put` was given with this key, or None."""
        try:
            value: dict[str, Any] = json.loads(self._path(key).read_bytes())["value"]
        except (OSError, ValueError, KeyError):
            return None
        return value

    def put(self, key: dict[str, Any], value: dict[str, Any]) -> None:
        """Keeps a point; both must be JSON."""
        data = json.dumps({"key": key, "value": value}, indent=1).encode()
        write_whole(self._path(key), data)

    def clear(self) -> None:
        """Forgets all points."""
        for path in self.folder.glob("*.json"):
            path.unlink()

    def _path(self, key: dict[str, Any]) -> Path:
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
        return self.folder / f"{digest[:24]}.json"


def circumstances() -> dict[str, Any]:
    """Returns what every point depends on: the machine since its start, and the code."""
    assert _native.__file__ is not None
    native = hashlib.sha256(Path(_native.__file__).read_bytes()).hexdigest()
    return {
        "machine": machine_facts(),
        "boot_s": round(psutil.boot_time(), -2),
        "revision": revision(),
        "native": native,
    }
