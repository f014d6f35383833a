"""Who hears what a compile or a measurement is doing."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Hears what the compile is doing."""

    def stage(self, name: str, total: int) -> None:
        """A stage begins, with `total` steps."""

    def step(self, what: str) -> None:
        """One step of the stage is done, or has begun, on `what`."""


class Silent:
    """Says nothing; a `Progress`."""

    def stage(self, name: str, total: int) -> None:
        """Nothing."""

    def step(self, what: str) -> None:
        """Nothing."""
