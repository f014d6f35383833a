"""One HTTP request and its answer, between a connection and whatever handles the request."""

from __future__ import annotations

import time
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from veltair.runtime.server.refusals import Refusal

JSON_TYPE = b"application/json"
BINARY_TYPE = b"application/octet-stream"

Buffer = bytes | bytearray | memoryview

_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


class Body(Protocol):
    """Takes a request's body as it arrives.

    Every method but `window` and `abandon` may raise `Refusal`; after that only `abandon` is
    called.
    """

    def feed(self, data: bytes) -> None:
        """Takes the next bytes."""

    def window(self) -> memoryview | None:
        """Memory that the socket may write the next bytes to, not empty; None: call `feed`."""

    def advance(self, size_bytes: int) -> None:
        """Tells that the first `size_bytes` of the window were written."""

    def finish(self) -> None:
        """Tells that the body has ended."""

    def abandon(self) -> None:
        """Tells that the rest won't come: give everything back. Idempotent."""


class Handler(Protocol):
    """Decides, from a request's head, who takes its body and answers it."""

    def __call__(self, exchange: Exchange) -> Body:
        """Returns the taker of the body.

        Raises:
            Refusal: the request is answered with it, and its body is dropped.
        """


class Writer(Protocol):
    """The exchange's way back to its connection."""

    def flush(self) -> None:
        """Sends the answers that are complete and whose turn it is."""


class Request:
    """The head of a request.

    Attributes:
        method: e.g. `b"POST"`.
        path: as sent, without the query.
        headers: those that a handler looks at, by lower-case name.
        length: Content-Length; None if the body is chunked.
        keep_alive: whether the client wants to go on after the answer.
        arrival_ns: when the head was complete, on the clock of `time.monotonic_ns`.
    """

    __slots__ = ("arrival_ns", "headers", "keep_alive", "length", "method", "path")

    def __init__(
        self,
        method: bytes,
        path: bytes,
        headers: dict[bytes, bytes],
        length: int | None,
        keep_alive: bool,
    ) -> None:
        """Takes the attributes above; the arrival is now."""
        self.method = method
        self.path = path
        self.headers = headers
        self.length = length
        self.keep_alive = keep_alive
        self.arrival_ns = time.monotonic_ns()


class Exchange:
    """A request and, once it is there, its answer.

    Attributes:
        request: the head.
        body: who takes the body; None once it is dropped.
        answer: the whole answer as it goes to the socket.
        close: the connection ends after the answer.
        lost: the client is gone; an answer is of no use.
        count: called with each refusal, for the metrics.
    """

    __slots__ = ("answer", "body", "close", "count", "lost", "request", "writer")

    def __init__(self, request: Request, writer: Writer) -> None:
        """Takes the head and the connection."""
        self.request = request
        self.writer = writer
        self.body: Body | None = None
        self.answer: bytes | None = None
        self.close = not request.keep_alive
        self.lost = False
        self.count: Callable[[Refusal], None] | None = None

    def respond(
        self,
        status: int,
        parts: Sequence[Buffer] = (),
        content_type: bytes = JSON_TYPE,
        headers: bytes = b"",
    ) -> None:
        """Answers; only the first answer counts.

        Args:
            status: HTTP status.
            parts: the body; copied here, so they may change afterwards.
            content_type: of the body; not sent if it is empty.
            headers: further header lines, each with its line end.
        """
        if self.answer is not None or self.lost:
            return
        size = sum(len(part) for part in parts)
        head = [_STATUS_LINES[status], b"date: ", _date(), b"\r\n", headers]
        if size:
            head += [b"content-type: ", content_type, b"\r\n"]
        if self.close:
            head.append(b"connection: close\r\n")
        head.append(b"content-length: %d\r\n\r\n" % size)
        if self.request.method == b"HEAD":
            parts = ()
        self.answer = b"".join((*head, *parts))
        self.writer.flush()

    def refuse(self, refusal: Refusal) -> None:
        """Answers with an error."""
        if self.count is not None:
            self.count(refusal)
        self.close = self.close or refusal.close
        self.respond(refusal.status, (msgspec.json.encode({"error": refusal.message}),))


class _DateCache:
    """RFC 9110 wants a Date on every answer; formatting one takes longer than parsing a head."""

    def __init__(self) -> None:
        self.second = 0
        self.text = b""

    def __call__(self) -> bytes:
        second = int(time.time())
        if second != self.second:
            self.second = second
            self.text = formatdate(second, usegmt=True).encode()
        return self.text


_date = _DateCache()
