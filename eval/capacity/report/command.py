"""`veltair report-eval`: one HTML page about an evaluation, and its tables as CSV."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from veltair.eval.capacity.report.findings import Findings
from veltair.eval.capacity.report.page import render
from veltair.eval.capacity.report.tables import all_tables
from veltair.eval.capacity.result import RESULT_FILE, read
from veltair.eval.page.document import write
from veltair.eval.page.text import bytes_text
from veltair.runtime.errors import InputError

PAGE_FILE = "report.html"
TABLES_FOLDER = "tables"


def command(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help=f"What veltair eval wrote: it has {RESULT_FILE}.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help=f"A folder for {PAGE_FILE} and {TABLES_FOLDER}/*.csv.  [default: DIR]",
        ),
    ] = None,
) -> None:
    """Write one HTML page about an evaluation, and its tables as CSV.

    The page carries all that it shows and fetches nothing, so that it can be sent as it is.
    """
    target = folder if output is None else output
    if not target.is_dir():
        raise InputError(f"{target}: there is no such folder; give one that exists")
    result = read(folder)
    page = render(result)
    write(target / PAGE_FILE, page)
    tables = all_tables(Findings(result))
    try:
        (target / TABLES_FOLDER).mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{target / TABLES_FOLDER}: can't be made ({error.strerror}); give another folder"
        ) from error
    for table in tables.values():
        write(target / TABLES_FOLDER / f"{table.name}.csv", table.csv())
    print(f"{target / PAGE_FILE}: {bytes_text(len(page.encode()))}")
    print(f"{target / TABLES_FOLDER}: {', '.join(f'{name}.csv' for name in tables)}")
