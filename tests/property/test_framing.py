"""Whatever is sent, in whatever pieces: tensors as they were, or 400 or 413, and no leak."""

from __future__ import annotations

import zlib
from itertools import pairwise

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from veltair.runtime.manifest import TensorSpec
from veltair.runtime.server.bodies import CODINGS, FramedBody, InflatedBody
from veltair.runtime.server.exchange import Body
from veltair.runtime.server.limits import ByteBudget
from veltair.runtime.server.protocol import Signature, decode_request
from veltair.runtime.server.refusals import Refusal
from veltair.runtime.server.tensors import binary_size

SPECS = (
    TensorSpec(name="a", dtype="uint8", shape=(5,)),
    TensorSpec(name="b", dtype="float32", shape=(2, 3)),
)
SIGNATURE = Signature("net", 1, SPECS, ())
REQUEST = msgspec.json.encode(
    {
        "inputs": [
            {
                "name": spec.name,
                "shape": spec.shape,
                "datatype": SIGNATURE.inputs[spec.name].datatype,
                "parameters": {"binary_data_size": spec.size_bytes},
            }
            for spec in reversed(SPECS)
        ]
    }
)
TENSORS = bytes(range(29))


class Receiver:
    """The model's memory, taken by `plan` and given back by `done` or `abandon`."""

    def __init__(self) -> None:
        self.memory = {spec.name: bytearray(spec.size_bytes) for spec in SPECS}
        self.budget = ByteBudget(10_000)
        self.held = False
        self.done = False

    def plan(self, text: bytearray) -> list[memoryview]:
        request = decode_request(text)
        SIGNATURE.check(request)
        for tensor in request.inputs:
            if tensor.has_data:
                raise Refusal(400, "this receiver takes binary data only")
        sizes = {tensor.name: binary_size(tensor) for tensor in request.inputs}
        self.held = True
        return [memoryview(self.memory[name]) for name in sizes]

    def finish(self) -> None:
        self.held = False
        self.done = True

    def abandon(self) -> None:
        self.held = False

    def body(self, json_bytes: int, length: int | None) -> FramedBody:
        return FramedBody(
            plan=self.plan,
            done=self.finish,
            abandoned=self.abandon,
            json_bytes=json_bytes,
            length=length,
            budget=self.budget,
        )


def send(receiver: Receiver, body: Body, data: bytes, cuts: list[int], direct: list[bool]) -> None:
    """Sends `data` in pieces, into the window where one is offered and `direct` says so."""
    bounds = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    status = 0
    try:
        for i, (start, end) in enumerate(pairwise(bounds)):
            piece = data[start:end]
            while piece:
                window = body.window() if direct[i % len(direct)] else None
                if window is None:
                    body.feed(piece)
                    break
                size = min(len(window), len(piece))
                window[:size] = piece[:size]
                body.advance(size)
                piece = piece[size:]
        body.finish()
    except Refusal as refusal:
        body.abandon()
        status = refusal.status
    assert status in ({0} if receiver.done else {400, 413})
    assert not receiver.held
    assert receiver.budget.held_bytes == 0


CUTS = st.lists(st.integers(0, 10_000), max_size=8)
DIRECT = st.lists(st.booleans(), min_size=1, max_size=4)


@given(cuts=CUTS, direct=DIRECT)
def test_a_right_body_arrives_as_it_was(cuts: list[int], direct: list[bool]) -> None:
    receiver = Receiver()
    data = REQUEST + TENSORS
    send(receiver, receiver.body(len(REQUEST), len(data)), data, cuts, direct)
    assert receiver.done
    assert receiver.memory == {"b": TENSORS[:24], "a": TENSORS[24:]}


@given(
    cuts=CUTS,
    direct=DIRECT,
    json_bytes=st.integers(1, 500),
    tail=st.binary(max_size=60),
    knows_length=st.booleans(),
)
def test_a_lying_header_is_answered_and_leaks_nothing(
    cuts: list[int], direct: list[bool], json_bytes: int, tail: bytes, knows_length: bool
) -> None:
    receiver = Receiver()
    data = REQUEST + tail
    length = len(data) if knows_length else None
    send(receiver, receiver.body(json_bytes, length), data, cuts, direct)
    assert receiver.done == (json_bytes == len(REQUEST) and len(tail) == len(TENSORS))


@given(
    cuts=CUTS,
    at=st.integers(0, len(REQUEST) - 1),
    byte=st.integers(0, 255),
    coding=st.sampled_from([None, *CODINGS]),
)
def test_a_changed_byte_of_the_json_is_answered_and_leaks_nothing(
    cuts: list[int], at: int, byte: int, coding: bytes | None
) -> None:
    receiver = Receiver()
    data = REQUEST[:at] + bytes([byte]) + REQUEST[at + 1 :] + TENSORS
    body: Body = receiver.body(len(REQUEST), None if coding else len(data))
    if coding:
        stream = zlib.compressobj(wbits=CODINGS[coding])
        data = stream.compress(data) + stream.flush()
        body = InflatedBody(body, coding, 10_000)
    send(receiver, body, data, cuts, [False])


@given(data=st.binary(max_size=300), coding=st.sampled_from([*CODINGS]), cuts=CUTS)
def test_noise_in_a_coding_is_answered_and_leaks_nothing(
    data: bytes, coding: bytes, cuts: list[int]
) -> None:
    receiver = Receiver()
    body = InflatedBody(receiver.body(4, None), coding, 10_000)
    send(receiver, body, data, cuts, [False])
    assert not receiver.done
