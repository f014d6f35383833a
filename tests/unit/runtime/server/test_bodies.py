from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

import pytest

from veltair.runtime.server.bodies import FramedBody, GatheredBody, InflatedBody
from veltair.runtime.server.limits import ByteBudget
from veltair.runtime.server.refusals import Refusal


class Target:
    """Memory for two tensors, and what the body said."""

    def __init__(self, sizes: tuple[int, ...] = (3, 5)) -> None:
        self.tensors = [bytearray(size) for size in sizes]
        self.json = b""
        self.done = 0
        self.abandoned = 0
        self.budget = ByteBudget(1000)

    def plan(self, text: bytearray) -> list[memoryview]:
        self.json = bytes(text)
        return [memoryview(tensor) for tensor in self.tensors]

    def finish(self) -> None:
        self.done += 1

    def abandon(self) -> None:
        self.abandoned += 1

    def body(self, json_bytes: int = 4, length: int | None = 12) -> FramedBody:
        return FramedBody(
            plan=self.plan,
            done=self.finish,
            abandoned=self.abandon,
            json_bytes=json_bytes,
            length=length,
            budget=self.budget,
        )


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 12])
def test_tensors_land_in_their_places_however_they_are_cut(step: int) -> None:
    target = Target()
    body = target.body()
    data = b"JSONabcdefgh"
    for start in range(0, len(data), step):
        body.feed(data[start : start + step])
    body.finish()
    assert target.json == b"JSON"
    assert target.tensors == [b"abc", b"defgh"]
    assert (target.done, target.budget.held_bytes) == (1, 0)


def test_the_window_is_the_tensors_own_memory() -> None:
    target = Target()
    body = target.body()
    body.feed(b"JSO")
    assert body.window() is None
    body.feed(b"Na")
    window = body.window()
    assert window is not None
    assert len(window) == 2
    window[:] = b"bc"
    body.advance(2)
    window = body.window()
    assert window is not None
    window[:2] = b"de"
    body.advance(2)
    body.feed(b"fgh")
    assert body.window() is None
    body.finish()
    assert target.tensors == [b"abc", b"defgh"]


def test_a_body_moves_with_what_has_arrived() -> None:
    target = Target()
    body = target.body()
    body.feed(b"JSONabcd")
    moved = [bytearray(tensor) for tensor in target.tensors]
    body.move([memoryview(tensor) for tensor in moved])
    body.feed(b"efgh")
    body.finish()
    assert moved == [b"abc", b"defgh"]
    assert target.tensors == [b"abc", b"d\0\0\0\0"]


def test_an_empty_tensor_takes_no_bytes() -> None:
    target = Target((0, 2, 0))
    body = target.body(length=6)
    body.feed(b"JSON")
    body.feed(b"xy")
    body.finish()
    assert target.tensors == [b"", b"xy", b""]


@pytest.mark.parametrize("length", [11, 13, 4])
def test_a_length_that_is_not_the_sum_is_refused_before_the_tensors(length: int) -> None:
    target = Target()
    body = target.body(length=length)
    with pytest.raises(Refusal, match=f"has {length} bytes: 4 of JSON .* 8 bytes; make") as refused:
        body.feed(b"JSON")
    assert refused.value.status == 400
    body.abandon()
    assert target.abandoned
    assert target.budget.held_bytes == 0


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"JS", "ends after 2 bytes; Inference-Header-Content-Length promises 4"),
        (b"JSONabcd", "ends 4 bytes before the end"),
    ],
)
def test_a_body_that_ends_early_is_refused(data: bytes, part: str) -> None:
    target = Target()
    body = target.body(length=None)
    body.feed(data)
    with pytest.raises(Refusal, match=part):
        body.finish()
    assert target.done == 0


def test_a_body_that_goes_on_is_refused() -> None:
    body = Target().body(length=None)
    with pytest.raises(Refusal, match="goes on after the last tensor, by 2 bytes"):
        body.feed(b"JSONabcdefghij")


def gathered(
    limit: int = 100, budget: ByteBudget | None = None
) -> tuple[list[bytes], GatheredBody]:
    bodies: list[bytes] = []
    done: Callable[[bytearray], None] = lambda data: bodies.append(bytes(data))  # noqa: E731
    return bodies, GatheredBody(done, limit, budget or ByteBudget(1000))


def test_gathering_hands_the_whole_on_and_the_memory_back() -> None:
    budget = ByteBudget(10)
    bodies, body = gathered(budget=budget)
    body.feed(b"abc")
    body.feed(b"def")
    assert budget.held_bytes == 6
    body.finish()
    assert bodies == [b"abcdef"]
    assert budget.held_bytes == 0


def test_gathering_stops_at_its_limit() -> None:
    budget = ByteBudget(1000)
    _, body = gathered(5, budget)
    body.feed(b"abc")
    with pytest.raises(Refusal, match=r"has 6 or more bytes, at most 5 are taken; .*binary") as no:
        body.feed(b"def")
    assert no.value.status == 413
    assert no.value.close
    body.abandon()
    assert budget.held_bytes == 0


def test_the_memory_for_bodies_is_shared_and_bounded() -> None:
    budget = ByteBudget(5)
    _, first = gathered(budget=budget)
    _, second = gathered(budget=budget)
    first.feed(b"abcd")
    with pytest.raises(
        Refusal, match="4 bytes of unfinished bodies are held, at most 5"
    ) as refused:
        second.feed(b"xy")
    assert refused.value.status == 503
    second.abandon()
    first.abandon()
    assert budget.held_bytes == 0


@pytest.mark.parametrize(
    ("coding", "compress"), [(b"gzip", gzip.compress), (b"deflate", zlib.compress)]
)
@pytest.mark.parametrize("step", [1, 1000, 10**9])
def test_inflating_undoes_the_coding(
    coding: bytes, compress: Callable[[bytes], bytes], step: int
) -> None:
    data = bytes(range(256)) * 2000  # several output steps
    bodies, inner = gathered(10**6, ByteBudget(10**6))
    body = InflatedBody(inner, coding, 10**6)
    packed = compress(data)
    for start in range(0, len(packed), step):
        body.feed(packed[start : start + step])
    body.finish()
    assert bodies == [data]


def test_a_bomb_is_refused_before_it_is_inflated() -> None:
    seen = 0

    class Counting(GatheredBody):
        def feed(self, data: bytes) -> None:
            nonlocal seen
            seen += len(data)

    body = InflatedBody(Counting(lambda _: None, 1, ByteBudget(1)), b"gzip", 100_000)
    with pytest.raises(Refusal, match=r"inflated body .* at most 100000") as refused:
        body.feed(gzip.compress(bytes(10**8)))
    assert refused.value.status == 413
    assert seen <= 100_000


def send_all(body: InflatedBody, data: bytes) -> None:
    body.feed(data)
    body.finish()


@pytest.mark.parametrize(
    ("packed", "part"),
    [
        (gzip.compress(b"data")[:-3], "ends before its gzip stream does"),
        (gzip.compress(b"data") + b"more", "goes on after the end of its gzip stream"),
        (b"no stream at all", "is not gzip"),
    ],
)
def test_a_broken_stream_is_refused(packed: bytes, part: str) -> None:
    _, inner = gathered()
    body = InflatedBody(inner, b"gzip", 1000)
    with pytest.raises(Refusal, match=part) as refused:
        send_all(body, packed)
    assert refused.value.status == 400
