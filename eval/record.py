"""What a measured result is saved with: the machine, the revision, and how it was measured."""

from __future__ import annotations

import json
import os
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veltair.runtime.errors import InputError
from veltair.runtime.files import write_whole
from veltair.runtime.machine import machine_facts

_SOURCE = Path(__file__).resolve().parent
# What is measured is the same whatever results are saved, and whatever is written or tested of it.
_WRITERS = ("eval/capacity/readme.py", "eval/capacity/report", "eval/docs", "eval/page")
# The simulated evaluation has no part in what is measured on a machine.
SIMULATING = "eval/capacity/simulated*"
_NOT_MEASURED = ("eval/results", "README.md", "docs", "tests", SIMULATING, *_WRITERS)


def provenance(command: str, *, uses: str = "") -> dict[str, Any]:
    """Returns what says where a result comes from.

    Args:
        command: what makes the result again.
        uses: as for `revision`.
    """
    return {
        "command": command,
        "version": version("veltair"),
        "revision": revision(uses=uses),
        "machine": machine_facts(),
        "load_average_before": os.getloadavg()[0],
    }


def revision(*, uses: str = "") -> str:
    """Returns the last commit that changed what can be measured, or `unknown`.

    `+changes` is appended where the source tree differs. Results, documents, what writes them and
    tests don't count, so that what one evaluation has measured holds while another is written up;
    neither does the simulated evaluation, but for its own results.

    Args:
        uses: `SIMULATING` of what it simulates.
    """
    unused = (f":!/{path}" for path in _NOT_MEASURED if path != uses)
    measured = (":/", *unused)
    try:
        commit = _git("log", "-1", "--format=%H", "--", *measured)
        changes = _git("status", "--porcelain", "--", *measured)
        return f"{commit}+changes" if changes else commit
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def spread(values: NDArray[Any]) -> dict[str, float | int]:
    """Returns the 10th, 50th and 90th percentile; whole numbers (nanoseconds) for integers."""
    whole = np.issubdtype(values.dtype, np.integer)
    points = np.percentile(values, [10, 50, 90])
    convert = int if whole else float
    return {name: convert(p) for name, p in zip(("p10", "p50", "p90"), points, strict=True)}


def check_writable(path: Path | None) -> None:
    """Refuses a result file whose folder is missing before anything is measured.

    Raises:
        InputError: there is no such folder.
    """
    if path is not None and not path.parent.is_dir():
        raise InputError(f"--json {path}: there is no folder {path.parent}; create it first")


def write_result(path: Path, result: dict[str, Any]) -> None:
    """Writes a result as JSON, whole or not at all.

    Raises:
        InputError: it can't be written.
    """
    try:
        write_whole(path, (json.dumps(result, indent=1) + "\n").encode())
    except OSError as error:
        raise InputError(f"--json {path}: can't be written ({error.strerror})") from error


def _git(*arguments: str) -> str:
    finished = subprocess.run(
        ["git", *arguments], cwd=_SOURCE, capture_output=True, text=True, check=True, timeout=10
    )
    return finished.stdout.strip()
