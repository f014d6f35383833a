"""`veltair machine`: writes the file that describes the machine at hand to the machine model."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from veltair.eval.machine_rates import measure_machine
from veltair.eval.patience import Patience
from veltair.eval.record import revision
from veltair.proxy.machine_file import FIGURES, to_toml
from veltair.runtime.errors import InputError
from veltair.runtime.files import write_whole

_HEADING = """A machine that was measured: `veltair machine -o FILE`, revision {revision}.
Others had {others:.0%} of its processors meanwhile. [sources] says how each figure was found."""


def command(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.toml", help="Where to write it.")
    ],
) -> None:
    """Measure this machine for the machine model."""
    if not output.parent.is_dir():
        raise InputError(f"--output {output}: there is no folder {output.parent}; create it first")
    with tempfile.TemporaryDirectory() as folder:
        machine, seen = Patience().quietest(lambda: measure_machine(Path(folder)))
    others = seen.others + seen.steal
    heading = _HEADING.format(revision=revision(), others=others)
    try:
        write_whole(output, to_toml(machine, heading).encode())
    except OSError as error:
        raise InputError(f"--output {output}: can't be written ({error.strerror})") from error
    for figure in FIGURES:
        section, _, name = figure.partition(".")
        print(f"{figure:<26}{getattr(getattr(machine, section), name)}")
    print(f"{output}: saved; others had {others:.0%} of the processors meanwhile")
