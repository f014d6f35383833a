"""HTTP/1.1 on an asyncio transport: framing by httptools, bodies straight into their place.

Reference: RFC 9110 and RFC 9112.
Differs: there is no ASGI between the socket and the model. An ASGI server gathers a body in a
buffer of its own, hands it on in pieces, and the application copies it once more; for a photograph
that takes longer than all the rest of its request. Here, as soon as a body's taker offers memory
(`Body.window`), the socket is read into that memory.

All of this runs on the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import httptools

from veltair.runtime.server.exchange import Exchange, Request
from veltair.runtime.server.refusals import (
    BAD_REQUEST,
    HEAD_TOO_LARGE,
    INTERNAL_ERROR,
    RAISE_LIMIT,
    REQUEST_TIMEOUT,
    UNAVAILABLE,
    Refusal,
    too_large,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from veltair.runtime.config import ServerConfig
    from veltair.runtime.server.exchange import Handler
    from veltair.runtime.server.limits import Sweeper

SCRATCH_BYTES = 64 * 1024  # more is copied once more, less is more calls
MAX_HEAD_BYTES = 64 * 1024
MAX_PIPELINED = 16
LINGER_NS = 2_000_000_000

# The headers that something here or in a handler looks at.
WANTED_HEADERS = frozenset(
    {
        b"accept-encoding",
        b"content-encoding",
        b"content-length",
        b"expect",
        b"inference-header-content-length",
    }
)

_LOGGER = logging.getLogger(__name__)


class Connections:
    """What the connections of one server share.

    Attributes:
        handler: decides who takes a request.
        config: limits and timeouts.
        sweeper: the connections, with their deadlines.
        limit: the most connections.
        scratch: where the sockets are read to when no body offers memory. One for all: a read and
            the call that takes its bytes follow each other without another between them.
        draining: the server stops: each connection ends with the answer that it waits for.
    """

    def __init__(
        self, handler: Handler, config: ServerConfig, sweeper: Sweeper, limit: int
    ) -> None:
        """Takes the attributes above."""
        self.handler = handler
        self.config = config
        self.sweeper = sweeper
        self.limit = limit
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.draining = False
        self.header_timeout_ns = config.header_timeout_ms * 1_000_000
        self.body_timeout_ns = config.body_timeout_ms * 1_000_000
        self.keepalive_timeout_ns = config.keepalive_timeout_ms * 1_000_000

    def connect(self) -> Connection:
        """Makes the protocol of a new connection: the factory for `create_server`."""
        return Connection(self)

    def drain(self) -> None:
        """Ends the idle connections, and refuses what has only half arrived."""
        self.draining = True
        for member in self.sweeper.members():
            cast("Connection", member).drain()

    def close(self) -> None:
        """Ends all connections at once."""
        for member in self.sweeper.members():
            cast("Connection", member).abort()


class Connection(asyncio.BufferedProtocol):
    """One client's connection: requests in, answers out in the same order."""

    def __init__(self, shared: Connections) -> None:
        """Takes what the connections share."""
        self.deadline_ns = 0
        self._shared = shared
        self._transport: asyncio.Transport = None  # type: ignore[assignment] # connection_made
        self._parser = httptools.HttpRequestParser(self)
        self._exchanges: deque[Exchange] = deque()  # whose answers are owed, oldest first
        self._current: Exchange | None = None  # whose body is arriving
        self._window: memoryview | None = None  # where the body wanted the read that is under way
        self._left_bytes = 0  # of the current body, if its length is known
        self._dropped_bytes = 0  # of the current body, after nobody took it any more
        self._head_bytes = 0  # of the head that is arriving, about; 0: none is
        self._head_began = False  # in the piece that is being parsed
        self._ending = False  # no further request is taken: what arrives is dropped
        self._linger = False  # the client may still be sending when the last answer is sent
        self._stuck = False  # the client doesn't read its answers
        self._paused = False
        self._url = b""
        self._headers: dict[bytes, bytes] = {}

    # From the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Registers the connection, or refuses it if there are too many."""
        self._transport = cast("asyncio.Transport", transport)
        shared = self._shared
        shared.sweeper.add(self)
        self.deadline_ns = time.monotonic_ns() + shared.header_timeout_ns
        if len(shared.sweeper) > shared.limit:
            self._give_up(
                UNAVAILABLE,
                f"{len(shared.sweeper)} connections are open, at most {shared.limit} may be; "
                "close some, or raise max_connections under [server]",
                linger=False,
            )

    def get_buffer(self, sizehint: int) -> memoryview:
        """Returns the memory for the next read, asked for afresh each time: it may move."""
        current = self._current
        self._window = None
        if self._left_bytes and current is not None and current.body is not None:
            self._window = current.body.window()
        return self._shared.scratch if self._window is None else self._window

    def buffer_updated(self, nbytes: int) -> None:
        """Takes what was read into the buffer."""
        if self._window is not None:
            self._advance(nbytes)
        elif self._ending:
            self._dropped_bytes += nbytes
        else:
            self._feed(self._shared.scratch[:nbytes])
        self._update()

    def eof_received(self) -> bool:
        """Answers what is cut off, and keeps the connection for the answers that it is owed."""
        if self._current is not None:
            self._give_up(
                BAD_REQUEST,
                f"the connection ended {self._left_bytes} bytes before the end of the body that "
                "the head announced; send the whole body",
            )
        elif self._head_bytes:
            self._give_up(BAD_REQUEST, "the connection ended inside the head; send a whole request")
        elif self._exchanges:
            self._exchanges[-1].close = True
            self._ending = True
        return bool(self._exchanges)

    def connection_lost(self, exc: Exception | None) -> None:
        """Gives everything back."""
        self._shared.sweeper.discard(self)
        for exchange in self._exchanges:
            exchange.lost = True
        self._exchanges.clear()
        if self._current is not None:
            _drop_body(self._current)
            self._current = None
        self._window = None
        self._parser = None  # type: ignore[assignment] # the two refer to each other

    def pause_writing(self) -> None:
        """Stops reading from a client that doesn't take its answers."""
        self._stuck = True
        self._update()

    def resume_writing(self) -> None:
        """Goes on reading."""
        self._stuck = False
        self._update()

    # From the sweeper and the server.

    def expire(self) -> None:
        """Ends a connection whose time is up; half a request gets an answer first."""
        config = self._shared.config
        if self._ending or self._stuck:
            self._transport.abort()
        elif self._current is not None:
            late = f"the body did not arrive within body_timeout_ms = {config.body_timeout_ms}"
            self._give_up(REQUEST_TIMEOUT, f"{late}; send it faster", linger=False)
        elif self._head_bytes:
            late = f"the head did not arrive within header_timeout_ms = {config.header_timeout_ms}"
            self._give_up(REQUEST_TIMEOUT, f"{late}; send it faster", linger=False)
        else:
            self._transport.close()

    def drain(self) -> None:
        """Ends the connection after the answers that it is owed."""
        if self._ending:
            if not self._exchanges:
                self._transport.close()
        elif self._current is not None or self._head_bytes:
            self._give_up(
                UNAVAILABLE,
                "the server is stopping (draining) and this request has not arrived whole; "
                "send it to another server",
                linger=False,
            )
        elif self._exchanges:
            self._exchanges[-1].close = True
        else:
            self._transport.close()

    def abort(self) -> None:
        """Ends the connection at once."""
        self._transport.abort()

    # From the exchanges.

    def flush(self) -> None:
        """Sends the answers that are there, in the requests' order."""
        while self._exchanges and (answer := self._exchanges[0].answer) is not None:
            exchange = self._exchanges.popleft()
            self._transport.write(answer)
            if exchange.close:
                self._end(linger=self._linger or self._current is not None)
                return
        self._update()

    # From httptools.

    def on_message_begin(self) -> None:
        """Begins a head."""
        if self._ending:
            return
        self._url = b""
        self._headers = {}
        self._head_bytes = 1
        self._head_began = True
        self.deadline_ns = time.monotonic_ns() + self._shared.header_timeout_ns

    def on_url(self, url: bytes) -> None:
        """Takes a piece of the target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keeps a header that somebody looks at."""
        name = name.lower()
        if name in WANTED_HEADERS:
            self._headers[name] = value

    def on_headers_complete(self) -> None:
        """Finds who takes the request."""
        self._head_bytes = 0
        if self._ending or (self._exchanges and self._exchanges[-1].close):
            return
        parser = self._parser
        length = self._headers.get(b"content-length")
        request = Request(
            parser.get_method(),
            self._url.partition(b"?")[0],
            self._headers,
            None if length is None else int(length),
            self._may_go_on(),
        )
        exchange = Exchange(request, self)
        self._exchanges.append(exchange)
        self._current = exchange
        self._left_bytes = request.length or 0
        self._dropped_bytes = 0
        self.deadline_ns = request.arrival_ns + self._shared.body_timeout_ns
        with self._answering(exchange):
            self._check(request)
            exchange.body = self._shared.handler(exchange)
            if self._headers.get(b"expect", b"").lower() == b"100-continue":
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        """Hands a piece of the body on."""
        self._left_bytes -= len(data)
        exchange = self._current
        if exchange is None:
            return
        if exchange.body is None:
            self._dropped_bytes += len(data)
            return
        with self._answering(exchange):
            exchange.body.feed(data)

    def on_message_complete(self) -> None:
        """Ends the body."""
        exchange = self._current
        if exchange is None:
            return
        self._current = None
        if exchange.body is not None:
            with self._answering(exchange):
                exchange.body.finish()

    # Inside.

    def _may_go_on(self) -> bool:
        parser = self._parser
        wanted = parser.should_keep_alive() and not parser.should_upgrade()
        return wanted and not self._shared.draining

    def _check(self, request: Request) -> None:
        limit = self._shared.config.max_body_bytes
        if request.length is not None and request.length > limit:
            raise too_large("the body", request.length, limit, RAISE_LIMIT)

    def _feed(self, data: memoryview) -> None:
        self._head_began = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._ending = True  # the answer says so: an upgrade is not taken, and ends here
        except httptools.HttpParserError as error:
            self._give_up(
                BAD_REQUEST, f"not an HTTP/1.1 request: {error}; correct the request's framing"
            )
        if self._head_bytes and not self._head_began:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._give_up(
                    HEAD_TOO_LARGE,
                    f"the head has more than {self._head_bytes - 1} bytes, at most "
                    f"{MAX_HEAD_BYTES} are taken; send fewer or shorter headers",
                )

    def _advance(self, size_bytes: int) -> None:
        """Takes bytes that were read into the body's own memory, past the parser."""
        exchange = self._current
        assert exchange is not None
        assert exchange.body is not None
        self._left_bytes -= size_bytes
        with self._answering(exchange):
            exchange.body.advance(size_bytes)
        if self._left_bytes == 0:
            # The old parser still waits for this body.
            self._parser = httptools.HttpRequestParser(self)
            self.on_message_complete()

    @contextmanager
    def _answering(self, exchange: Exchange) -> Iterator[None]:
        """Turns what a handler raises into an answer; the rest of the body is dropped."""
        try:
            yield
        except Refusal as refusal:
            _drop_body(exchange)
            exchange.refuse(refusal)
        except Exception:
            _LOGGER.exception("a request failed: %r %r", exchange.request.method, self._url)
            _drop_body(exchange)
            exchange.refuse(
                Refusal(INTERNAL_ERROR, "the server failed; its log says how", close=True)
            )

    def _give_up(self, status: int, message: str, *, linger: bool = True) -> None:
        """Answers what has not arrived whole, and takes nothing more."""
        if self._ending:  # what follows a last request is not answered
            return
        self._linger = linger
        exchange = self._current
        self._current = None
        self._head_bytes = 0
        self._ending = True
        self.deadline_ns = 0
        if exchange is None:
            exchange = Exchange(Request(b"", b"", {}, None, keep_alive=False), self)
            self._exchanges.append(exchange)
        _drop_body(exchange)
        if exchange.answer is None:
            exchange.refuse(Refusal(status, message, close=True))
        elif self._exchanges:
            self._exchanges[-1].close = True
        else:
            self._transport.close()

    def _end(self, *, linger: bool) -> None:
        """Ends the connection after its last answer.

        Closing a socket with unread bytes in it resets the connection, and the client may lose the
        answer. So a client that is perhaps still sending hears the end of ours, and what it sends
        is dropped until it ends its side, or for a while.
        """
        self._ending = True
        for exchange in self._exchanges:
            exchange.lost = True
        self._exchanges.clear()
        if self._current is not None:
            _drop_body(self._current)
            self._current = None
        if linger:
            self.deadline_ns = time.monotonic_ns() + LINGER_NS
            self._dropped_bytes = 0
            self._transport.write_eof()
            self._update()
        else:
            self._transport.close()

    def _update(self) -> None:
        """Sets deadline and reading after something has changed."""
        if self._transport.is_closing():
            return
        if self._current is None and self._head_bytes == 0 and not self._ending:
            self._set_idle_deadline()
        pause = (
            self._stuck
            or len(self._exchanges) >= MAX_PIPELINED
            or self._dropped_bytes > self._shared.config.max_body_bytes
        )
        if pause != self._paused:
            self._paused = pause
            if pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _set_idle_deadline(self) -> None:
        waits = bool(self._exchanges) and not self._stuck
        self.deadline_ns = 0 if waits else time.monotonic_ns() + self._shared.keepalive_timeout_ns


def _drop_body(exchange: Exchange) -> None:
    body = exchange.body
    exchange.body = None
    if body is not None:
        body.abandon()
