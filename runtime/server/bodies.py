"""How a request's body is taken: gathered, dropped into a slot as it arrives, or inflated first."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from veltair.runtime.server.refusals import RAISE_LIMIT, SEND_BINARY, bad_request, too_large

if TYPE_CHECKING:
    from collections.abc import Callable

    from veltair.runtime.server.exchange import Body
    from veltair.runtime.server.limits import ByteBudget

INFLATE_STEP_BYTES = 64 * 1024

# `deflate` means the zlib format (RFC 9110, 8.4.1.2).
CODINGS = {b"gzip": zlib.MAX_WBITS | 16, b"deflate": zlib.MAX_WBITS}


class GatheredBody:
    """Keeps the body until it is whole: JSON has to be."""

    def __init__(
        self, done: Callable[[bytearray], None], limit_bytes: int, budget: ByteBudget
    ) -> None:
        """Takes whom to hand the body to, its largest size, and the memory for it."""
        self._done = done
        self._limit_bytes = limit_bytes
        self._budget = budget
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """Keeps the next bytes."""
        size = len(self._data) + len(data)
        if size > self._limit_bytes:
            raise too_large("the JSON body", f"{size} or more", self._limit_bytes, SEND_BINARY)
        self._budget.take(len(data))
        self._data += data

    def window(self) -> memoryview | None:
        """Offers nothing: the size is not trusted before the bytes are there."""
        return None

    def advance(self, size_bytes: int) -> None:
        """Is never called, as there is no window."""
        raise AssertionError(size_bytes)

    def finish(self) -> None:
        """Hands the body on."""
        data = self._data
        self.abandon()
        self._done(data)

    def abandon(self) -> None:
        """Gives the memory back."""
        self._budget.give(len(self._data))
        self._data = bytearray()


class FramedBody:
    """The binary extension's body: JSON of a given length, then the tensors, one after the other.

    The tensors go straight into the memory that `plan` names for them.
    """

    def __init__(
        self,
        *,
        plan: Callable[[bytearray], list[memoryview]],
        done: Callable[[], None],
        abandoned: Callable[[], None],
        json_bytes: int,
        length: int | None,
        budget: ByteBudget,
    ) -> None:
        """Prepares for one body.

        Args:
            plan: called with the JSON; returns where its tensors go, in order.
            done: called when the last tensor is complete.
            abandoned: called if the body won't end; may be called more than once.
            json_bytes: of the JSON, at least 1.
            length: of the whole body; None if it is not known beforehand.
            budget: memory for the JSON.
        """
        self._plan = plan
        self._done = done
        self._abandoned = abandoned
        self._length = length
        self._json_bytes = json_bytes
        self._json_left = json_bytes
        self._json = bytearray()
        self._budget = budget
        self._targets: list[memoryview] = []  # what is still to be filled, the next one last

    def feed(self, data: bytes) -> None:
        """Takes the next bytes, of the JSON or of the tensors."""
        rest = memoryview(data)
        if self._json_left:
            rest = self._feed_json(rest)
        while rest:
            if not self._targets:
                raise bad_request(
                    f"the body goes on after the last tensor, by {len(rest)} bytes or more; each "
                    "binary_data_size must be what is sent"
                )
            target = self._targets[-1]
            size = min(len(target), len(rest))
            target[:size] = rest[:size]
            self.advance(size)
            rest = rest[size:]

    def window(self) -> memoryview | None:
        """Offers what is still to be filled of the current tensor."""
        return self._targets[-1] if self._targets else None

    def advance(self, size_bytes: int) -> None:
        """Moves on past the bytes that were written."""
        target = self._targets.pop()
        if size_bytes < len(target):
            self._targets.append(target[size_bytes:])

    def finish(self) -> None:
        """Checks that all has come, and says so."""
        if self._json_left:
            raise bad_request(
                f"the body ends after {len(self._json)} bytes; Inference-Header-Content-Length "
                f"promises {self._json_bytes} of JSON; correct the header or send the whole body"
            )
        if self._targets:
            missing = sum(len(target) for target in self._targets)
            raise bad_request(
                f"the body ends {missing} bytes before the end of its last tensor; each "
                "binary_data_size must be what is sent"
            )
        self._release_json()
        self._done()

    def move(self, targets: list[memoryview]) -> None:
        """Goes on in other memory; what has arrived was copied there.

        Args:
            targets: as from `plan`, all of them and from their beginnings.
        """
        new = [target for target in reversed(targets) if target]
        self._targets = [new[i][-len(old) :] for i, old in enumerate(self._targets)]

    def abandon(self) -> None:
        """Gives everything back."""
        self._targets.clear()
        self._release_json()
        self._abandoned()

    def _feed_json(self, data: memoryview) -> memoryview:
        taken = data[: self._json_left]
        self._budget.take(len(taken))
        self._json += taken
        self._json_left -= len(taken)
        if self._json_left == 0:
            targets = self._plan(self._json)
            self._check_length(sum(len(target) for target in targets))
            self._targets = [target for target in reversed(targets) if target]
        return data[len(taken) :]

    def _check_length(self, tensors_bytes: int) -> None:
        if self._length is None or self._length == self._json_bytes + tensors_bytes:
            return
        raise bad_request(
            f"the body has {self._length} bytes: {self._json_bytes} of JSON and "
            f"{self._length - self._json_bytes} of tensors, but the JSON announces tensors of "
            f"{tensors_bytes} bytes; make Inference-Header-Content-Length the JSON's length and "
            "each binary_data_size what is sent"
        )

    def _release_json(self) -> None:
        self._budget.give(len(self._json))
        self._json = bytearray()


class InflatedBody:
    """Undoes a content coding, piece by piece, before another body."""

    def __init__(self, inner: Body, coding: bytes, limit_bytes: int) -> None:
        """Takes who gets the inflated body, the coding, and the largest size of the former."""
        self._inner = inner
        self._coding = coding.decode("latin-1")
        self._limit_bytes = limit_bytes
        self._size_bytes = 0
        self._stream = zlib.decompressobj(CODINGS[coding])

    def feed(self, data: bytes) -> None:
        """Inflates the next bytes, never more than a step at once: a bomb is found early."""
        more = True  # zlib may hold output back after it has taken all input
        while data or (more and not self._stream.eof):
            if self._stream.eof:
                raise bad_request(
                    f"the body goes on after the end of its {self._coding} stream; send one stream"
                )
            try:
                piece = self._stream.decompress(data, INFLATE_STEP_BYTES)
            except zlib.error as error:
                raise bad_request(
                    f"the body is not {self._coding}: {error}; correct it or Content-Encoding"
                ) from error
            self._take(piece)
            more = len(piece) == INFLATE_STEP_BYTES
            data = self._stream.unconsumed_tail or self._stream.unused_data

    def window(self) -> memoryview | None:
        """Offers nothing: what arrives is not what is wanted."""
        return None

    def advance(self, size_bytes: int) -> None:
        """Is never called, as there is no window."""
        raise AssertionError(size_bytes)

    def finish(self) -> None:
        """Checks that the stream has ended, and says so."""
        if not self._stream.eof:
            raise bad_request(
                f"the body ends before its {self._coding} stream does; send the whole stream"
            )
        self._inner.finish()

    def abandon(self) -> None:
        """Gives everything back."""
        self._inner.abandon()

    def _take(self, piece: bytes) -> None:
        self._size_bytes += len(piece)
        if self._size_bytes > self._limit_bytes:
            size = f"{self._size_bytes} or more"
            raise too_large("the inflated body", size, self._limit_bytes, RAISE_LIMIT)
        if piece:
            self._inner.feed(piece)
