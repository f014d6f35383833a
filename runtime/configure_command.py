"""`veltair configure`: changes a running server's policies, or prints those in force."""

from __future__ import annotations

from typing import Annotated

import typer

from veltair.runtime.errors import ConfigError
from veltair.runtime.reconfiguration import (
    decode_reply,
    encode_request,
    parse_assignments,
    to_toml,
)
from veltair.runtime.rendezvous import ask_server, port_of


def command(
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SECTION.KEY=VALUE",
            show_default=False,
            help="Keys of serve.toml with their new values: queue.admission, and any of "
            "[scheduling], [batching] and [placement]. Without one, nothing changes.",
        ),
    ] = None,
    address: Annotated[
        str, typer.Option(help="The server's HTTP address, HOST:PORT, or its port alone.")
    ] = "127.0.0.1:8000",
) -> None:
    """Change a running server's policies, and print what is in force as serve.toml has it.

    The server takes all changes or none. No query is lost: those that wait or run go on under the
    new policies from their next block on. Only the user who started the server may ask, on its
    machine.

    Example: veltair configure scheduling.policy=veltair-as scheduling.level=0
    """
    request = encode_request(parse_assignments(changes or []))
    reply = decode_reply(ask_server(port_of(address), request))
    if reply.error:
        raise ConfigError(reply.error)
    print(to_toml(reply.sections), end="")
