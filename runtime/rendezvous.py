"""Where a local client finds a server's shared segment.

The segment is an anonymous file, so there is no name to publish, and nothing to clean up after a
server that was killed. Rank 0 listens on a Unix socket whose abstract name is derived from its HTTP
port, and hands the segment's descriptor to whoever connects and is of the same user. An abstract
name ends with its process.
"""

from __future__ import annotations

import os
import socket
import struct

from veltair.runtime.errors import ConfigError, InputError, NotFoundError

_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid
_TIMEOUT_S = 5.0


def port_of(address: str | int) -> int:
    """Returns the HTTP port that an address names: `HOST:PORT`, an `http://` address, or a port.

    Raises:
        InputError: there is no port in it.
    """
    text = str(address).removeprefix("http://").partition("/")[0]
    port = text.rpartition(":")[2]
    if not port.isdecimal() or not 0 < int(port) < 65_536:
        raise InputError(
            f"address {address!r}: names no port; give the server's HTTP address, "
            "e.g. 127.0.0.1:8000"
        )
    return int(port)


def request_segment(port: int) -> int:
    """Asks the server with this HTTP port for its segment.

    Returns:
        A descriptor, the caller's to close.

    Raises:
        NotFoundError: nobody answers, or someone else does.
    """
    missing = (
        f"no Veltair server with the HTTP port {port} on this machine; "
        "start it with `veltair serve`, or check the port"
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.settimeout(_TIMEOUT_S)
        try:
            channel.connect(_name(port))
            if not _is_trusted(channel):
                raise NotFoundError(
                    f"the server with the HTTP port {port} is another user's; "
                    "attach as that user, or use HTTP"
                )
            _, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
        except OSError as error:
            raise NotFoundError(missing) from error
    if not descriptors:
        raise NotFoundError(missing)
    return descriptors[0]


class Rendezvous:
    """The server's side. Not thread-safe: one thread owns it."""

    def __init__(self, port: int) -> None:
        """Listens for clients; those that come before `answer` wait.

        Args:
            port: the server's HTTP port.

        Raises:
            ConfigError: another server on this machine has the port, at another address.
        """
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._listener.bind(_name(port))
        except OSError as error:
            self._listener.close()
            raise ConfigError(
                f"http_port {port}: another Veltair server of this machine has it, at another "
                "address; choose another with --http-port (0: any free one)"
            ) from error
        self._listener.listen()
        self._listener.setblocking(False)

    def fileno(self) -> int:
        """Returns the descriptor that is readable while clients wait."""
        return self._listener.fileno()

    def answer(self, descriptor: int) -> None:
        """Hands the segment's descriptor to each client that waits; never waits itself."""
        while True:
            try:
                channel, _ = self._listener.accept()
            except BlockingIOError:
                return
            with channel:
                if _is_trusted(channel):
                    channel.settimeout(_TIMEOUT_S)
                    try:
                        socket.send_fds(channel, [b"s"], [descriptor])
                    except OSError:
                        continue  # it has gone already

    def close(self) -> None:
        """Stops listening."""
        self._listener.close()


def _name(port: int) -> str:
    return f"\0veltair/{port}"


def _is_trusted(channel: socket.socket) -> bool:
    """Whether the peer is this user's or root's: the segment is readable and writable."""
    packed = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(packed)
    return uid in {os.geteuid(), 0}
