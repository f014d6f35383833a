"""The connection alone: real sockets, a handler that echoes."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from veltair.runtime.config import ServerConfig
from veltair.runtime.server.exchange import Body, Exchange
from veltair.runtime.server.http import MAX_HEAD_BYTES, MAX_PIPELINED, SCRATCH_BYTES, Connections
from veltair.runtime.server.limits import Sweeper
from veltair.runtime.server.refusals import Refusal, bad_request

CONFIG = ServerConfig(
    max_body_bytes=100_000, header_timeout_ms=200, body_timeout_ms=200, keepalive_timeout_ms=400
)


class Echo:
    """A body that is sent back; a window of 1000 bytes if the path is `/direct`."""

    def __init__(self, exchange: Exchange, server: Server) -> None:
        self.exchange = exchange
        self.server = server
        self.data = bytearray()
        self.memory = memoryview(bytearray(1000))
        self.used = 0
        server.open.add(self)

    def feed(self, data: bytes) -> None:
        self.server.fed_bytes += len(data)
        self.data += data
        if data.startswith(b"refuse"):
            raise bad_request("refused as asked")
        if data.startswith(b"fail"):
            raise ZeroDivisionError

    def window(self) -> memoryview | None:
        return self.memory[self.used :] if self.exchange.request.path == b"/direct" else None

    def advance(self, size_bytes: int) -> None:
        self.data += self.memory[self.used : self.used + size_bytes]
        self.used = (self.used + size_bytes) % len(self.memory)

    def finish(self) -> None:
        self.server.open.discard(self)
        if self.exchange.request.path == b"/later":
            self.server.later.append(self.exchange)
        else:
            self.exchange.respond(200, (self.data,), b"text/plain")

    def abandon(self) -> None:
        self.server.open.discard(self)


class Server:
    """What the handler of a test saw."""

    def __init__(self, config: ServerConfig = CONFIG, limit: int = 100) -> None:
        self.open: set[Echo] = set()  # bodies that were neither finished nor abandoned
        self.later: list[Exchange] = []
        self.fed_bytes = 0
        self.sweeper = Sweeper(asyncio.get_running_loop(), config)
        self.connections = Connections(self.handle, config, self.sweeper, limit)

    def handle(self, exchange: Exchange) -> Body:
        if exchange.request.path == b"/nowhere":
            raise Refusal(404, "no such path")
        return Echo(exchange, self)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        ours, theirs = socket.socketpair()
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(self.connections.connect, theirs)
        return await asyncio.open_connection(sock=ours)

    async def talk(self, data: bytes, *, half_close: bool = False) -> bytes:
        """Sends on a new connection, returns all that comes until the server closes it."""
        reader, writer = await self.connect()
        with suppress(ConnectionError):
            writer.write(data)
            await writer.drain()
        if half_close:
            writer.write_eof()
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        return answer


def run(scene: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await scene()

    asyncio.run(main())


def post(body: bytes, path: str = "/", headers: str = "", *, last: bool = True) -> bytes:
    close = "Connection: close\r\n" if last else ""
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\n{close}{headers}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def bodies(answers: bytes) -> list[tuple[int, bytes]]:
    """Splits answers that follow each other into status and body."""
    found = []
    while answers:
        head, _, rest = answers.partition(b"\r\n\r\n")
        fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
        length = int(fields.get(b"content-length", b"0"))
        found.append((int(head.split()[1]), rest[:length]))
        answers = rest[length:]
    return found


@pytest.mark.parametrize("path", ["/", "/direct"])
@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 50_000])
def test_a_body_comes_back_as_it_was(path: str, size: int) -> None:
    body = bytes(i % 251 for i in range(size))

    async def scene() -> None:
        server = Server()
        assert bodies(await server.talk(post(body, path))) == [(200, body)]
        assert not server.open

    run(scene)


@pytest.mark.parametrize("path", ["/", "/direct"])
def test_a_connection_goes_on_after_a_body_in_pieces(path: str) -> None:
    async def scene() -> None:
        server = Server()
        reader, writer = await server.connect()
        for size in (10, 5000, 0, 3000):
            data = post(bytes(size), path, last=False)
            for start in range(0, len(data), 700):
                writer.write(data[start : start + 700])
                await asyncio.sleep(0)
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"content-length: %d\r\n" % size in head
            assert await reader.readexactly(size) == bytes(size)
        writer.close()

    run(scene)


def test_pipelined_requests_are_answered_in_their_order() -> None:
    async def scene() -> None:
        server = Server()
        reader, writer = await server.connect()
        requests = [post(b"0", "/later", last=False), post(b"1", last=False)]
        writer.write(b"".join([*requests, post(b"2", "/nowhere", last=False), post(b"3")]))
        await asyncio.sleep(0.05)
        assert len(server.later) == 1
        server.later[0].respond(200, (b"late",))
        answers = bodies(await reader.read())
        writer.close()
        assert [status for status, _ in answers] == [200, 200, 404, 200]
        assert [body for _, body in answers][::3] == [b"late", b"3"]

    run(scene)


def test_a_refused_body_is_dropped_and_the_connection_goes_on() -> None:
    async def scene() -> None:
        server = Server()
        first = post(b"refuse" + bytes(90_000), last=False)
        answers = bodies(await server.talk(first + post(b"next")))
        assert answers == [(400, b'{"error":"refused as asked"}'), (200, b"next")]
        assert not server.open

    run(scene)


def test_what_follows_a_last_request_is_not_answered() -> None:
    async def scene() -> None:
        server = Server()
        first = post(b"refuse" + bytes(1000), headers="X: y\r\n")
        answers = bodies(await server.talk(first + b"\0 no request", half_close=True))
        assert [status for status, _ in answers] == [400]
        big = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n"
        answers = bodies(await server.talk(big + post(b"x"), half_close=True))
        assert [status for status, _ in answers] == [413]
        # A chunked body that is refused for good, and then breaks, in one piece.
        chunks = b"%x\r\nfail\r\nzz\r\n" % 4
        head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        answers = bodies(await server.talk(head + chunks, half_close=True))
        assert [status for status, _ in answers] == [500]
        assert len(server.sweeper) == 0

    run(scene)


def test_a_failing_handler_is_a_500_and_the_end_of_its_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        server = Server()
        [(status, _)] = bodies(await server.talk(post(b"fail", last=False)))
        assert status == 500
        assert "ZeroDivisionError" in caplog.text
        assert not server.open

    run(scene)


def test_a_body_over_the_limit_is_refused_unread() -> None:
    async def scene() -> None:
        server = Server()
        reader, writer = await server.connect()
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n")
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
        assert head.startswith(b"HTTP/1.1 413 ")
        assert b"connection: close" in head
        message = await reader.readexactly(int(head.split(b"content-length: ")[1]))
        for part in (b"1000000000", b"at most 100000", b"max_body_bytes"):
            assert part in message
        sent = 0
        with suppress(ConnectionError, TimeoutError, asyncio.TimeoutError):
            while sent < 10**9:
                writer.write(bytes(50_000))
                await asyncio.wait_for(writer.drain(), 1)
                sent += 50_000
        # One limit's worth is dropped so that a client not far over it reads its answer; the rest
        # is what fits into the socket's buffers.
        assert sent < 2_000_000
        assert server.fed_bytes == 0
        writer.close()

    run(scene)


@pytest.mark.parametrize(
    ("half", "status", "part"),
    [
        (b"POST / HTTP/1.1\r\nHost:", 408, b"header_timeout_ms = 200"),
        (post(b"whole")[:-2], 408, b"body_timeout_ms = 200"),
        (post(b"whole", "/direct")[:-2], 408, b"body_timeout_ms = 200"),
    ],
)
def test_half_a_request_is_answered_and_closed_after_its_timeout(
    half: bytes, status: int, part: bytes
) -> None:
    async def scene() -> None:
        server = Server()
        [(found, message)] = bodies(await server.talk(half))
        assert found == status
        assert part in message
        assert not server.open
        assert len(server.sweeper) == 0

    run(scene)


def test_trickling_does_not_buy_time() -> None:
    async def scene() -> None:
        server = Server()
        reader, writer = await server.connect()
        answer = asyncio.ensure_future(reader.read())
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(100):
            if answer.done():
                break
            writer.write(b"x")
            await asyncio.sleep(0.02)
        assert answer.done()
        with suppress(ConnectionError):  # it was still sending: a reset may overtake the answer
            assert (await answer).startswith(b"HTTP/1.1 408 ")
        writer.close()

    run(scene)


def test_a_silent_connection_is_closed() -> None:
    async def scene() -> None:
        assert await Server().talk(b"") == b""

    run(scene)


def test_an_answer_may_take_longer_than_the_timeouts() -> None:
    async def scene() -> None:
        server = Server()
        reader, writer = await server.connect()
        writer.write(post(b"", "/later"))
        await asyncio.sleep(0.7)
        server.later[0].respond(200, (b"at last",))
        assert bodies(await reader.read()) == [(200, b"at last")]
        writer.close()

    run(scene)


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (post(b"whole")[:-2], b"ended 2 bytes before the end of the body"),
        (b"POST / HT", b"ended inside the head"),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"not an HTTP/1.1 request"),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", b"not an HTTP"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"not an HTTP"),
    ],
)
def test_broken_framing_is_a_400(data: bytes, part: bytes) -> None:
    async def scene() -> None:
        server = Server()
        [(status, message)] = bodies(await server.talk(data, half_close=True))
        assert status == 400
        assert part in message
        assert not server.open

    run(scene)


def test_half_closing_after_a_whole_request_still_gets_its_answer() -> None:
    async def scene() -> None:
        server = Server()
        assert bodies(await server.talk(post(b"abc", last=False), half_close=True))[0][1] == b"abc"

    run(scene)


def test_an_endless_head_is_refused() -> None:
    async def scene() -> None:
        server = Server()
        reader, writer = await server.connect()
        writer.write(b"GET / HTTP/1.1\r\n")
        with suppress(ConnectionError):
            for _ in range(MAX_HEAD_BYTES // 1000 + 2):
                writer.write(b"X-Filler: " + b"y" * 1000 + b"\r\n")
                await writer.drain()
                await asyncio.sleep(0)
        assert (await reader.read()).startswith(b"HTTP/1.1 431 ")
        writer.close()

    run(scene)


def test_a_connection_too_many_is_told_so() -> None:
    async def scene() -> None:
        server = Server(limit=1)
        _, writer = await server.connect()
        [(status, message)] = bodies(await server.talk(b""))
        assert status == 503
        for part in (b"2 connections are open", b"at most 1", b"max_connections"):
            assert part in message
        writer.close()

    run(scene)


def test_a_client_that_goes_gives_its_body_back() -> None:
    async def scene() -> None:
        server = Server()
        _, writer = await server.connect()
        writer.write(post(bytes(1000))[:-500])
        await asyncio.sleep(0.05)
        assert len(server.open) == 1
        writer.transport.abort()
        await asyncio.sleep(0.05)
        assert not server.open
        assert len(server.sweeper) == 0

    run(scene)


def test_a_reset_gives_the_body_back() -> None:
    async def scene() -> None:
        server = Server()
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(server.connections.connect, "127.0.0.1", 0)
        address = listener.sockets[0].getsockname()
        one = socket.create_connection(address)
        one.sendall(post(bytes(1000))[:-500])
        await asyncio.sleep(0.05)
        assert len(server.open) == 1
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()
        await asyncio.sleep(0.05)
        assert not server.open
        assert len(server.sweeper) == 0
        listener.close()

    run(scene)


def test_heads_may_lie_across_the_pieces_of_a_long_pipeline() -> None:
    async def scene() -> None:
        server = Server()
        count = 5000
        one = post(b"x", last=False)
        assert count * len(one) > 3 * SCRATCH_BYTES
        answers = bodies(await server.talk(one * count + post(b"x")))
        assert answers == [(200, b"x")] * (count + 1)

    run(scene)


def test_pipelining_without_end_is_not_read_without_end() -> None:
    async def scene() -> None:
        server = Server()
        _, writer = await server.connect()
        request = post(b"", "/later", last=False)
        writer.write(request * 20_000)
        await asyncio.sleep(0.3)
        # No more than the piece in which the bound was passed.
        assert MAX_PIPELINED <= len(server.later) <= SCRATCH_BYTES // len(request) + MAX_PIPELINED
        writer.transport.abort()

    run(scene)


def test_an_answer_to_a_client_that_has_gone_is_dropped() -> None:
    async def scene() -> None:
        server = Server()
        _, writer = await server.connect()
        writer.write(post(b"", "/later"))
        await asyncio.sleep(0.05)
        writer.transport.abort()
        await asyncio.sleep(0.05)
        [exchange] = server.later
        exchange.respond(200, (b"too late",))
        await asyncio.sleep(0.05)
        assert len(server.sweeper) == 0

    run(scene)


def test_draining_answers_what_is_whole_and_refuses_the_rest() -> None:
    async def scene() -> None:
        server = Server()
        talks = [
            asyncio.ensure_future(server.talk(data))
            for data in (b"", post(b"", "/later", last=False), post(b"half")[:-1])
        ]
        await asyncio.sleep(0.05)
        server.connections.drain()
        await asyncio.sleep(0.05)
        server.later[0].respond(200, (b"accepted",))
        idle, accepted, half = [bodies(answer) for answer in await asyncio.gather(*talks)]
        assert idle == []
        assert accepted == [(200, b"accepted")]
        assert half[0][0] == 503
        assert b"draining" in half[0][1]

    run(scene)


def test_expecting_clients_hear_continue_only_if_the_body_is_wanted() -> None:
    async def scene() -> None:
        server = Server()
        expect = "Expect: 100-continue\r\n"
        answer = await server.talk(post(b"abc", headers=expect))
        assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 ")
        answer = await server.talk(post(b"abc", "/nowhere", headers=expect))
        assert answer.startswith(b"HTTP/1.1 404 ")

    run(scene)


def test_a_client_that_does_not_read_its_answers_is_not_read_from_either() -> None:
    async def scene() -> None:
        server = Server()
        _, writer = await server.connect()
        request = post(bytes(90_000), last=False)
        sent = 0
        with suppress(ConnectionError, TimeoutError, asyncio.TimeoutError):
            for _ in range(200):
                writer.write(request)
                await asyncio.wait_for(writer.drain(), 2)
                sent += len(request)
        assert sent < 5_000_000
        assert len(server.sweeper) == 0  # and given up after the keep-alive timeout
        writer.close()

    run(scene)


def test_head_and_old_clients_get_what_their_version_says() -> None:
    async def scene() -> None:
        server = Server()
        answer = await server.talk(b"HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert answer.endswith(b"\r\n\r\n")
        answer = await server.talk(b"GET / HTTP/1.0\r\n\r\n")
        assert b"connection: close" in answer

    run(scene)
