"""`veltair report`: one HTML page about an artifact's layers, samples and versions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veltair.compiler.search.samples import read_search
from veltair.eval.page.document import write
from veltair.eval.report.layers import model_report
from veltair.eval.report.page import render
from veltair.runtime.artifact import resolve_folder
from veltair.runtime.errors import InputError
from veltair.runtime.manifest import read_manifest

REPORT_FILE = "report.html"


def command(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="An artifact: MODEL/VERSION, or MODEL.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help=f"The page.  [default: DIR/{REPORT_FILE}]"),
    ] = None,
) -> None:
    """Write one HTML page: samples, versions under interference, losses, time by layer.

    It carries all that it shows and fetches nothing, so that it can be sent as it is.
    """
    folder = resolve_folder(folder)
    target = folder / REPORT_FILE if output is None else output
    if not target.parent.is_dir():
        raise InputError(f"--output {target}: there is no folder {target.parent}; create it first")
    report = model_report(read_manifest(folder), read_search(folder))
    page = render(report)
    write(target, page)
    print(f"{target}: {len(report.layers)} layers, {len(page.encode()) / 1e6:.1f} MB")
    for sentence in report.missing:
        print(f"not in it: {sentence}")
