"""The options that the comparisons on a real server, and on real peers, have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Repository = Annotated[Path, typer.Argument(help="Folder of <model>/<version>/ artifacts.")]
Out = Annotated[Path, typer.Option(help="Folder of the results.")]
Workers = Annotated[int | None, typer.Option(min=1, help="If not set, cores + 2.")]
Seed = Annotated[int, typer.Option(min=0, help="Of the arrivals.")]
Attempts = Annotated[
    int, typer.Option(min=1, help="Of each measurement, while other processes disturb it.")
]
WaitS = Annotated[
    float, typer.Option(min=0, help="For a quiet machine before each attempt, at most.")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Forget what was measured.")]
Scratch = Annotated[Path, typer.Option(help="Where to keep what was measured.")]

RESULTS = Path("eval/results")
