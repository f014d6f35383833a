"""The inference endpoint: from a request's head to a slot, and from the slot to the answer."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from veltair.runtime.errors import NotFoundError, RefusedError, UnavailableError
from veltair.runtime.server.bodies import CODINGS, FramedBody, GatheredBody, InflatedBody
from veltair.runtime.server.encoding import choose_coding, compress
from veltair.runtime.server.exchange import BINARY_TYPE, JSON_TYPE
from veltair.runtime.server.protocol import decode_request, timeout_ns
from veltair.runtime.server.refusals import (
    INTERNAL_ERROR,
    NOT_FOUND,
    SEND_BINARY,
    UNAVAILABLE,
    UNSUPPORTED_CODING,
    Refusal,
    bad_request,
    too_large,
    unavailable,
)
from veltair.runtime.server.tensors import binary_size, bytes_of

if TYPE_CHECKING:
    import asyncio

    from veltair.runtime.client import Completion, LocalClient, Slot
    from veltair.runtime.config import ServerConfig
    from veltair.runtime.server.endpoint import Endpoint
    from veltair.runtime.server.exchange import Body, Buffer, Exchange
    from veltair.runtime.server.limits import ByteBudget
    from veltair.runtime.server.protocol import InferRequest
    from veltair.runtime.server.tensors import TensorRule

_LOGGER = logging.getLogger(__name__)


class Inference:
    """All queries between the front end and the local client. On the event loop's thread."""

    def __init__(
        self,
        client: LocalClient,
        config: ServerConfig,
        budget: ByteBudget,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Begins to take completions from `client`; it must outlive this."""
        self._client = client
        self._loop = loop
        self.config = config
        self.budget = budget
        self._running: dict[int, Query] = {}
        self._next_tag = 0
        self._descriptor = client.fileno()
        loop.add_reader(self._descriptor, self._take_completions)

    def __len__(self) -> int:
        """Returns the number of queries that were accepted and not answered yet."""
        return len(self._running)

    def close(self) -> None:
        """Stops taking completions."""
        self._loop.remove_reader(self._descriptor)

    def begin(self, exchange: Exchange, endpoint: Endpoint) -> Body:
        """Returns who takes the body of an inference request.

        Raises:
            Refusal: its head can't be right.
        """
        exchange.count = endpoint.count
        query = Query(self, endpoint, exchange)
        headers = exchange.request.headers
        coding = headers.get(b"content-encoding", b"identity").strip().lower()
        if coding == b"identity":
            return self._framed(query, exchange.request.length)
        if coding not in CODINGS:
            raise Refusal(
                UNSUPPORTED_CODING,
                f"Content-Encoding is {coding.decode('latin-1')!r}; this server takes gzip, "
                "deflate and identity; send one of these",
            )
        return InflatedBody(self._framed(query, None), coding, self.config.max_body_bytes)

    def allocate(self, endpoint: Endpoint) -> Slot:
        """Takes a slot.

        Raises:
            Refusal: there is none, or the model is gone.
        """
        info = endpoint.info
        try:
            return self._client.allocate(info.name, info.version)
        except RefusedError as error:
            raise unavailable(error) from error
        except NotFoundError as error:
            raise Refusal(NOT_FOUND, f"{error}; see /v2/repository/index") from error

    def submit(self, query: Query, slot: Slot, arrival_ns: int, deadline_ns: int) -> None:
        """Hands a filled slot over; from here on it is the server's.

        Raises:
            Refusal: the query can't be served in time or at all; the slot was given back.
        """
        tag = self._next_tag
        self._next_tag += 1
        self._running[tag] = query
        try:
            self._client.submit(slot, arrival_ns=arrival_ns, deadline_ns=deadline_ns, tag=tag)
        except RefusedError as error:
            del self._running[tag]
            raise unavailable(error) from error
        except BaseException:
            del self._running[tag]
            raise

    def send(self, exchange: Exchange, json_bytes: int | None, parts: list[Buffer]) -> None:
        """Answers with a result, compressed if the client asked for it."""
        content_type, headers = JSON_TYPE, b""
        if json_bytes is not None:
            content_type = BINARY_TYPE
            headers = b"inference-header-content-length: %d\r\n" % json_bytes
        accepted = exchange.request.headers.get(b"accept-encoding")
        coding = choose_coding(accepted) if accepted is not None else None
        if coding is None:
            exchange.respond(200, parts, content_type, headers)
            return
        headers += b"content-encoding: %b\r\nvary: accept-encoding\r\n" % coding
        # zlib releases the GIL, and other clients' requests need not wait for it.
        work = self._loop.run_in_executor(None, compress, b"".join(parts), coding)
        work.add_done_callback(
            lambda done: exchange.respond(200, (done.result(),), content_type, headers)
        )

    def _framed(self, query: Query, length: int | None) -> Body:
        headers = query.exchange.request.headers
        text = headers.get(b"inference-header-content-length")
        limit_bytes = self.config.max_body_bytes
        if text is None:
            limit_bytes = min(limit_bytes, query.endpoint.json_limit_bytes)
            if length is not None and length > limit_bytes:
                raise too_large("the JSON body", length, limit_bytes, SEND_BINARY)
            return GatheredBody(query.take_json, limit_bytes, self.budget)
        whole = "" if length is None else f" of a body of {length} bytes"
        if not text.isdigit() or not 0 < int(text) <= (limit_bytes if length is None else length):
            raise bad_request(
                f"Inference-Header-Content-Length is {text.decode('latin-1')!r}{whole}; it must be "
                "the length in bytes of the JSON that the body begins with; correct it, or leave "
                "it out if the body is JSON only"
            )
        query.body = FramedBody(
            plan=query.plan,
            done=query.submit,
            abandoned=query.abandon,
            json_bytes=int(text),
            length=length,
            budget=self.budget,
        )
        return query.body

    def _take_completions(self) -> None:
        try:
            completions = self._client.poll()
        except UnavailableError as error:
            self._loop.remove_reader(self._descriptor)
            _LOGGER.exception("no more completions")
            refusal = Refusal(UNAVAILABLE, f"{error}; send it again later", close=True)
            for query in self._running.values():
                query.exchange.refuse(refusal)
            self._running.clear()
            return
        for completion in completions:
            self._running.pop(completion.tag).complete(completion)


class Query:
    """One request's way through the server.

    Attributes:
        endpoint: the model that it asks.
        exchange: where its answer goes.
        body: what fills its slot from the network; None if the request is JSON only.
    """

    def __init__(self, inference: Inference, endpoint: Endpoint, exchange: Exchange) -> None:
        """Takes where it came from and where it goes."""
        self.endpoint = endpoint
        self.exchange = exchange
        self._inference = inference
        self._slot: Slot | None = None
        self._spilled: dict[str, bytearray] = {}  # tensors that wait outside of a slot
        self.body: FramedBody | None = None
        self._request: InferRequest | None = None
        self._wanted: list[tuple[TensorRule, bool]] = []

    def plan(self, text: bytearray) -> list[memoryview]:
        """Reads the JSON in front of binary tensors; returns where these go, in their order.

        Raises:
            Refusal: the request is wrong, or there is no slot for it.
        """
        request = self._check(decode_request(text))
        sizes = {t.name: size for t in request.inputs if (size := binary_size(t)) is not None}
        filling = self.endpoint.filling
        if len(filling) >= self.endpoint.filling_limit:
            next(iter(filling))._spill()
        self._slot = self._inference.allocate(self.endpoint)
        filling[self] = None
        inputs = self._slot.inputs
        rules = self.endpoint.signature.inputs
        return [bytes_of(rules[name].payload(inputs[name], size)) for name, size in sizes.items()]

    def take_json(self, text: bytearray) -> None:
        """Reads a request that is JSON only, and submits it.

        Raises:
            Refusal: the request is wrong, or there is no slot for it.
        """
        request = self._check(decode_request(text))
        for tensor in request.inputs:
            if binary_size(tensor) is not None:
                raise bad_request(
                    f"input {tensor.name!r} has binary_data_size, but the header "
                    "Inference-Header-Content-Length is missing; set it to the JSON's length, or "
                    "send the tensor as `data`"
                )
        self.submit()

    def submit(self) -> None:
        """Submits the query once all its bytes are there.

        Raises:
            Refusal: a tensor in the JSON is wrong, there is no slot, or no time.
        """
        try:
            slot = self._fill()
            request = self._request
            assert request is not None
            arrival_ns = self.exchange.request.arrival_ns
            timeout = timeout_ns(request)
            deadline_ns = 0 if timeout is None else arrival_ns + timeout
            self._inference.submit(self, slot, arrival_ns, deadline_ns)
            self._slot = None
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Gives back what the query holds; nothing if it was submitted."""
        if self._spilled:
            self._inference.budget.give(sum(map(len, self._spilled.values())))
            self._spilled = {}
        self.endpoint.filling.pop(self, None)
        if self._slot is not None:
            self._slot.release()
            self._slot = None

    def complete(self, completion: Completion) -> None:
        """Answers from the slot, and gives it back."""
        slot = completion.slot
        try:
            if self.exchange.lost:
                return
            if completion.reason == "deadline":
                late = f"model {slot.model!r}: {completion.error}"
                self.exchange.refuse(unavailable(RefusedError(late, completion.reason)))
                return
            if not completion.ok:
                message = f"the query failed: {completion.error}; send it again"
                self.exchange.refuse(Refusal(INTERNAL_ERROR, message))
                return
            assert self._request is not None
            answer = self.endpoint.answer(self._request.id, self._wanted, slot.outputs)
            self._inference.send(self.exchange, *answer)
        finally:
            slot.release()

    def _check(self, request: InferRequest) -> InferRequest:
        signature = self.endpoint.signature
        signature.check(request)
        self._wanted = signature.wanted(request)
        self._request = request
        timeout_ns(request)
        return request

    def _spill(self) -> None:
        """Gives the slot back before it is full; what has come and will come waits elsewhere."""
        slot, body, request = self._slot, self.body, self._request
        assert slot is not None
        assert body is not None
        assert request is not None
        arrays = {t.name: slot.inputs[t.name] for t in request.inputs if not t.has_data}
        self._inference.budget.take(sum(array.nbytes for array in arrays.values()))
        self._spilled = {name: bytearray(bytes_of(array)) for name, array in arrays.items()}
        rules = self.endpoint.signature.inputs
        sizes = {t.name: binary_size(t) or 0 for t in request.inputs if not t.has_data}
        body.move(
            [
                bytes_of(rules[name].payload(np.frombuffer(data, np.uint8), sizes[name]))
                for name, data in self._spilled.items()
            ]
        )
        del self.endpoint.filling[self]
        self._slot = None
        slot.release()

    def _fill(self) -> Slot:
        """Returns the slot with all inputs in it."""
        assert self._request is not None
        if self._slot is None:
            self._slot = self._inference.allocate(self.endpoint)
        inputs = self._slot.inputs
        for name, data in self._spilled.items():
            bytes_of(inputs[name])[:] = data
        for tensor in self._request.inputs:
            rule, size = self.endpoint.signature.inputs[tensor.name], binary_size(tensor)
            if size is None:
                rule.write(tensor, inputs[tensor.name])
            else:
                rule.frame(tensor, size, inputs[tensor.name])
        return self._slot
