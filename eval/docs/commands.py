"""The reference of commands: from the table of `veltair` and what typer knows of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from veltair.eval.docs.docstrings import lead
from veltair.eval.docs.markup import cell, entry, prose
from veltair.runtime.cli import COMMANDS, load_command

if TYPE_CHECKING:
    from collections.abc import Iterator

_HELP = "--help"  # the same for all, said once on the page


def commands_reference() -> str:
    """Writes a table of all commands, then each with its arguments and options."""
    rows = [
        f"| [`veltair {name}`](#veltair-{name}) | {cell(command.summary)} |"
        for name, command in COMMANDS.items()
    ]
    table = "\n".join(("| command | what it does |", "|---|---|", *rows))
    return "\n\n".join((table, *(_command(name) for name in COMMANDS)))


def _command(name: str) -> str:
    command = load_command(name)
    context: Any = typer.Context(command, info_name=f"veltair {name}")
    usage = " ".join(command.get_usage(context).split()).removeprefix("Usage: ")
    parts = [f"## veltair {name} {{ #veltair-{name} }}", f"```text\n{usage}\n```"]
    parts.append(prose(lead(command.callback)))
    parts.append("\n".join(_parameters(command, context)))
    return "\n\n".join(parts)


def _parameters(command: Any, context: Any) -> Iterator[str]:  # noqa: ANN401 # click's, or typer's copy of it
    for parameter in command.get_params(context):
        if _HELP in parameter.opts:
            continue
        names, text = parameter.get_help_record(context)
        yield entry(f"`{names}`", prose(text))
