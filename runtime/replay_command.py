"""`veltair replay`: feeds a record of decisions to the policies, which must decide the same."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from veltair.runtime.errors import InputError
from veltair.runtime.files import write_whole
from veltair.runtime.replay import Decided, Report, replay

DIFFERS_EXIT_CODE = 1


def command(
    record: Annotated[Path, typer.Argument(help="A record of decisions.", metavar="FILE")],
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Where to save what was found.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="Ask this scheduling policy instead, and tell how often it differs."),
    ] = None,
) -> None:
    """Feed a record of decisions to its policies again, and compare every decision.

    Exit codes: 0 if all agree (or with --policy), 1 if any differs, 2 if the file is no record.
    """
    found = replay(record, policy=policy)
    _print(found)
    if json_file is not None:
        try:
            write_whole(json_file, (json.dumps(_summary(found), indent=1) + "\n").encode())
        except OSError as error:
            raise InputError(f"--json {json_file}: can't be written ({error.strerror})") from error
    if found.differing > 0 and policy is None:
        raise typer.Exit(DIFFERS_EXIT_CODE)


def _print(found: Report) -> None:
    for tally in found.tallies:
        print(f"{tally.policy}: {tally.asked - tally.differing} of {tally.asked} decisions agree")
    for count, what in (
        (found.unasked, "can't be asked: less was recorded than the policy reads, or others lack"),
        (found.skipped, "had too long a queue to be recorded"),
        (found.missing, "are missing: their process ended before it wrote them"),
    ):
        if count > 0:
            print(f"{count} more {what}")
    if found.torn > 0:
        print(f"{found.torn} torn line{'s' if found.torn > 1 else ''} left out")
    for difference in found.differences:
        print(f"line {difference.line}, decision {difference.sequence}, {difference.event}:")
        print(f"  recorded: {_text(difference.recorded)}")
        print(f"  replayed: {_text(difference.replayed)}")
    if found.differing > len(found.differences):
        print(f"and {found.differing - len(found.differences)} differences more")


def _text(decided: Decided) -> str:
    return decided if isinstance(decided, str) else msgspec.json.encode(decided).decode()


def _summary(found: Report) -> dict[str, Any]:
    return {
        "decisions": found.asked,
        "agreed": found.asked - found.differing,
        "differing": found.differing,
        "unasked": found.unasked,
        "skipped": found.skipped,
        "missing": found.missing,
        "torn_lines": found.torn,
        "policies": [asdict(tally) for tally in found.tallies],
        "differences": [msgspec.to_builtins(each) for each in found.differences],
        "runs": [
            {
                "veltair": header.veltair,
                "clock": header.clock,
                "cores": header.cores,
                "models": [model.name for model in header.models],
            }
            for header in found.headers
        ],
    }
