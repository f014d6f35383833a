"""Loads artifacts, runs them and serves them.

`from veltair.runtime import Model` loads the engine only when it is asked for: the compiler and the
command line import this package for its records and errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from veltair.runtime.model import Model

__all__ = ["Model"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 # the module protocol's own
    """Imports what `__all__` names on first use."""
    if name == "Model":
        from veltair.runtime.model import Model  # noqa: PLC0415 # lazily, as the docstring says

        return Model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
