"""Ports of this machine for servers that are about to be started."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

from veltair.runtime.errors import VeltairError

HOST = "127.0.0.1"
# Below those that Linux gives to whoever asks for any (`net.ipv4.ip_local_port_range`): by the time
# that a server asks for one of those, a client's connection may have it.
PORTS = range(10_000, 32_768)


def free_port(*but: int) -> int:
    """Returns a port of `HOST` that nobody listens on now, drawn from `PORTS`.

    Args:
        but: ports that it may not be, though nobody has them yet.

    Raises:
        VeltairError: each is taken.
    """
    candidates = [port for port in PORTS if port not in but]
    random.shuffle(candidates)
    for port in candidates:
        with socket.socket() as probe, suppress(OSError):  # somebody has it
            probe.bind((HOST, port))
            return port
    raise VeltairError(
        f"no port of {HOST} from {PORTS.start} to {PORTS.stop - 1} is free: end what listens there"
    )
