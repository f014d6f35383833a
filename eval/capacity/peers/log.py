"""What a peer wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

LOG_FILE = "log.txt"
_LINES = 20
_BYTES = 1 << 16


def end_of(log: Path) -> str:
    """Returns the last lines of a log, for a message."""
    if not log.exists():
        return "it wrote nothing"
    with log.open("rb") as stream:
        stream.seek(max(log.stat().st_size - _BYTES, 0))
        lines = stream.read().decode(errors="replace").splitlines()
    return "\n".join(["the end of its log:", *lines[-_LINES:]]) if lines else "it wrote nothing"
