"""How a benchmark that is no command of `veltair` is run: `python -m veltair.eval.bench_NAME`."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

import typer

from veltair.eval.record import provenance
from veltair.runtime.errors import VeltairError

if TYPE_CHECKING:
    from collections.abc import Callable


def run_benchmark(name: str, command: Callable[..., None]) -> None:
    """Reads the command line, runs `command`, and turns our errors into a line and an exit code."""
    try:
        typer.run(command)
    except VeltairError as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def origin(name: str, *, uses: str = "") -> dict[str, Any]:
    """Returns the provenance of a result of this benchmark, as it was called.

    Args:
        name: of the module, in `veltair.eval`.
        uses: as for `veltair.eval.record.revision`.
    """
    command = shlex.join(["python", "-m", f"veltair.eval.{name}", *sys.argv[1:]])
    return provenance(command, uses=uses)
