"""`veltair profile`: measures an artifact's profile again, alone or at levels of interference."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from veltair.compiler.profile import MOST_LEVELS, fewer_levels
from veltair.compiler.reprofile import reprofile
from veltair.compiler.table import layer_table, levels_text, table_console
from veltair.compiler.versions import MOST_LOSS
from veltair.proxy.co_runners import BUBBLES, CoRunnerOption, choose_co_runner
from veltair.runtime.progress_bar import Bar


def command(
    folder: Annotated[Path, typer.Argument(help="An artifact: MODEL/VERSION, or MODEL.")],
    levels: Annotated[
        int,
        typer.Option(
            min=1, max=MOST_LEVELS, help="Interference levels to profile, the one alone included."
        ),
    ] = 1,
    co_runner: CoRunnerOption = BUBBLES,
) -> None:
    """Measure an artifact's layers on this machine, and replace the profile in its manifest.

    With more than one level, co-runners are beside on cores of their own, as fast as slows a
    reference kernel by the level, and versions without which no layer gets more than 10 % slower
    are removed. Interrupted, it leaves the old profile.
    """
    kind = choose_co_runner(co_runner)
    with Bar(Console(stderr=True)) as bar:
        result = reprofile(folder, bar, levels=levels, co_runner=kind)
    table_console().print(layer_table(result.manifest))
    for line in levels_text(result.manifest):
        print(line)
    print(f"{result.folder}: profile replaced")
    if result.removed:
        print(
            f"{result.removed} versions removed, without which no layer is more than "
            f"{MOST_LOSS:.0%} slower here; veltair compile --force makes them again"
        )
    for warning in (result.doubt, fewer_levels(result.manifest.profile, levels)):
        if warning:
            print(f"veltair: warning: {warning}", file=sys.stderr)
