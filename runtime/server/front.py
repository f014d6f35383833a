"""The HTTP front end's life: take the port, serve, drain, end."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from typing import TYPE_CHECKING

from veltair.runtime.errors import ConfigError
from veltair.runtime.server.http import Connections
from veltair.runtime.server.infer import Inference
from veltair.runtime.server.limits import ByteBudget, Sweeper, raise_descriptor_limit
from veltair.runtime.server.routes import Routes

if TYPE_CHECKING:
    from collections.abc import Callable

    from veltair.runtime.client import LocalClient
    from veltair.runtime.config import ServerConfig

BACKLOG = 4096
DRAIN_POLL_S = 0.01

_LOGGER = logging.getLogger(__name__)


def bind(config: ServerConfig) -> socket.socket:
    """Takes the port, so that one in use is found before anything starts.

    Connections that come before `serve` wait for it.

    Raises:
        ConfigError: the address can't be had.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            config.http_host, config.http_port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise _refused_address(config, error) from error
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise _refused_address(config, error) from error
    return listener


def _refused_address(config: ServerConfig, error: OSError) -> ConfigError:
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return ConfigError(
            f"http_host {config.http_host!r} is not an address of this machine "
            f"({error.strerror}); name one, e.g. 127.0.0.1 or 0.0.0.0"
        )
    return ConfigError(
        f"http_port {config.http_port} on {config.http_host} can't be had ({error.strerror}); "
        "end the process that has it, or choose another with --http-port (0: any free one)"
    )


def address_of(listener: socket.socket) -> str:
    """Returns the address as a client writes it, `http://HOST:PORT`."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve(
    client: LocalClient,
    config: ServerConfig,
    listener: socket.socket,
    stop: asyncio.Event,
    on_listening: Callable[[str], None] = lambda _: None,
) -> None:
    """Serves HTTP until `stop` is set, then answers what was accepted, and returns.

    Args:
        client: attached to the server; stays the caller's.
        config: limits and timeouts.
        listener: from `bind`; closed here.
        stop: set from the loop's thread (or by its `call_soon_threadsafe`).
        on_listening: called with the address once connections are accepted.
    """
    loop = asyncio.get_running_loop()
    limit = raise_descriptor_limit(config.max_connections)
    if limit < config.max_connections:
        _LOGGER.warning(
            "max_connections = %d, but the process may open files for %d only; raise `ulimit -n`",
            config.max_connections,
            limit,
        )
    sweeper = Sweeper(loop, config)
    inference = Inference(client, config, ByteBudget(config.max_buffered_bytes), loop)
    routes = Routes(client, inference)
    connections = Connections(routes, config, sweeper, limit)
    address = address_of(listener)
    server = await loop.create_server(connections.connect, sock=listener, backlog=BACKLOG)
    try:
        on_listening(address)
        await stop.wait()
        routes.draining = True
        connections.drain()
        await _drained(inference, sweeper, config.drain_timeout_ms)
    finally:
        server.close()
        connections.close()
        await server.wait_closed()
        inference.close()


async def _drained(inference: Inference, sweeper: Sweeper, timeout_ms: int) -> None:
    """Waits until all accepted queries are answered and their connections have ended."""
    deadline_ns = time.monotonic_ns() + timeout_ms * 1_000_000
    while (inference or sweeper) and time.monotonic_ns() < deadline_ns:
        await asyncio.sleep(DRAIN_POLL_S)
    if inference:
        _LOGGER.warning("%d accepted queries did not end within the drain's time", len(inference))
