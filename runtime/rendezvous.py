"""Where a local client finds a server's shared segment, and asks rank 0 for changes.

The segment is an anonymous file, so there is no name to publish, and nothing to clean up after a
server that was killed. Rank 0 listens on a Unix socket whose abstract name is derived from its HTTP
port, and hands the segment's descriptor to whoever connects and is of the same user. Such a client
may then send a request, end it by shutting the connection down for writing, and read the answer. An
abstract name ends with its process.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from veltair.runtime.errors import ConfigError, InputError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid
_TIMEOUT_S = 5.0
_PIECE_BYTES = 65_536
_MOST_REQUEST_BYTES = 16_384  # an answer about it fits into a socket's buffer
_MOST_OPEN = 64  # connections after which the oldest is closed: a client closes its own at once


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
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        return _meet(channel, port)


def ask_server(port: int, request: bytes) -> bytes:
    """Sends rank 0 of the server with this HTTP port a request, and returns its answer.

    Raises:
        InputError: the request is too long.
        NotFoundError: nobody answers, or someone else does.
    """
    if len(request) > _MOST_REQUEST_BYTES:
        raise InputError(
            f"a request of {len(request)} bytes: at most {_MOST_REQUEST_BYTES}; ask for less"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        os.close(_meet(channel, port))
        try:
            channel.sendall(request)
            channel.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: channel.recv(_PIECE_BYTES), b""))
        except OSError as error:
            raise _missing(port) from error


def _meet(channel: socket.socket, port: int) -> int:
    """Connects to the server, if it is to be trusted, and takes its segment's descriptor."""
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
        raise _missing(port) from error
    if not descriptors:
        raise _missing(port)
    return descriptors[0]


def _missing(port: int) -> NotFoundError:
    return NotFoundError(
        f"no Veltair server with the HTTP port {port} on this machine; "
        "start it with `veltair serve`, or check the port"
    )


@dataclass(kw_only=True)
class _Conversation:
    """A client that has the segment, and what it has sent."""

    channel: socket.socket
    request: bytearray = field(default_factory=bytearray)
    is_whole: bool = False

    def goes_on(self) -> bool:
        """Takes what has come; False: it is whole, or none that can be answered."""
        try:
            piece = self.channel.recv(_PIECE_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.request += piece
        self.is_whole = not piece and bool(self.request)
        return bool(piece) and len(self.request) <= _MOST_REQUEST_BYTES


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
        self._open: dict[int, _Conversation] = {}

    def fileno(self) -> int:
        """Returns the descriptor that is readable while clients wait."""
        return self._listener.fileno()

    def descriptors(self) -> list[int]:
        """Returns the descriptors that are readable when a client's request goes on."""
        return list(self._open)

    def answer(self, descriptor: int) -> None:
        """Hands the segment's descriptor to each client that waits; never waits itself."""
        while True:
            try:
                channel, _ = self._listener.accept()
            except BlockingIOError:
                return
            if not _is_trusted(channel):
                channel.close()
                continue
            channel.setblocking(False)
            try:
                socket.send_fds(channel, [b"s"], [descriptor])
            except OSError:
                channel.close()  # it has gone already
                continue
            if len(self._open) >= _MOST_OPEN:
                self._close(next(iter(self._open)))
            self._open[channel.fileno()] = _Conversation(channel=channel)

    def converse(self, ready: Collection[int], respond: Callable[[bytes], bytes]) -> None:
        """Goes on with the requests whose descriptors are ready; never waits itself.

        Args:
            ready: descriptors, of which others are ignored.
            respond: returns the answer to a whole request.
        """
        for descriptor in [each for each in self._open if each in ready]:
            conversation = self._open[descriptor]
            if conversation.goes_on():
                continue
            if conversation.is_whole:
                with contextlib.suppress(OSError):  # it has gone already
                    conversation.channel.send(respond(bytes(conversation.request)))
            self._close(descriptor)

    def close(self) -> None:
        """Stops listening."""
        self._listener.close()
        for descriptor in self.descriptors():
            self._close(descriptor)

    def _close(self, descriptor: int) -> None:
        self._open.pop(descriptor).channel.close()


def _name(port: int) -> str:
    return f"\0veltair/{port}"


def _is_trusted(channel: socket.socket) -> bool:
    """Whether the peer is this user's or root's: the segment is readable and writable."""
    packed = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(packed)
    return uid in {os.geteuid(), 0}
