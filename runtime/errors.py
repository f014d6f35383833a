"""The project's errors: one small hierarchy; each class has the exit code of its command.

A message carries the value that was refused, the rule that refused it, and the remedy.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping


class VeltairError(Exception):
    """Base of all errors that a user can cause or meet."""

    exit_code = 1


class InputError(VeltairError):
    """A file, option or configuration field that can't be used as given (exit 2)."""

    exit_code = 2


class ConfigError(InputError):
    """A configuration key or value that breaks its rule (exit 2)."""


class UnsupportedOperatorError(VeltairError):
    """An operator that can't be compiled (exit 3).

    Attributes:
        reasons: why, by the names of the nodes; empty where no node is to blame.
    """

    exit_code = 3

    def __init__(self, message: str, reasons: Mapping[str, str] | None = None) -> None:
        """The error of some nodes."""
        super().__init__(message)
        self.reasons = dict(reasons or {})


class MismatchError(VeltairError):
    """A compiled model that disagrees with ONNX Runtime."""


class ArtifactError(VeltairError):
    """An artifact that can't be loaded: damaged, of another schema, or for another ISA (exit 4)."""

    exit_code = 4


class KernelError(VeltairError):
    """A kernel that failed while it ran; the message is the kernel's own."""


class SourceError(VeltairError):
    """A source of counters that can't be opened, or that failed while it was read."""


class UnavailableError(VeltairError):
    """The server can't take the query now: it is full, draining, or the deadline can't be met."""


class RefusedError(UnavailableError):
    """A query that was refused at once.

    Attributes:
        reason: `queue_full`, `deadline`, `draining` or `unavailable`.
    """

    def __init__(self, message: str, reason: str) -> None:
        """Takes the message and one of the reasons above."""
        super().__init__(message)
        self.reason = reason


class NotFoundError(VeltairError):
    """No such model or version is being served."""


def unknown_name(where: str, noun: str, name: str, known: list[str]) -> str:
    """The message for a section or key that there isn't: the nearest one, and all of them."""
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
    return f"{where}: unknown {noun}; did you mean {nearest!r}? known: {', '.join(known)}"
