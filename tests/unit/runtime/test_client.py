"""The local client beside a segment whose workers the test plays."""

from __future__ import annotations

import threading
import time

import msgspec
import numpy as np
import pytest

from veltair.runtime._native import ipc, sched
from veltair.runtime.client import LocalClient
from veltair.runtime.errors import InputError, NotFoundError, RefusedError, UnavailableError
from veltair.runtime.manifest import TensorSpec
from veltair.runtime.rendezvous import Rendezvous, port_of, request_segment
from veltair.runtime.status import Signature

SLOTS = 3
INPUTS = (
    TensorSpec(name="image", dtype="float32", shape=(1, 3, 5)),
    TensorSpec(name="mask", dtype="bool", shape=(7,)),
)
OUTPUTS = (TensorSpec(name="half", dtype="bfloat16", shape=(2, 2)),)
PROFILE = sched.ModelProfile(
    qos_ns=10_000_000, cores=[1], levels=1, model_ns=[1_000_000], variants=[1], layer_ns=[1]
)


class Server:
    """A segment with versions 1 and 2 of model `m`, and one core."""

    def __init__(self, *, admission: bool = False) -> None:
        self.segment = ipc.Segment.create(
            cpus=[0],
            workers=1,
            policies=ipc.Policies(admission=admission),
            models=[
                ipc.ModelSpec(
                    name="m",
                    version=version,
                    input_bytes=[spec.size_bytes for spec in INPUTS],
                    output_bytes=[spec.size_bytes for spec in OUTPUTS],
                    slots=SLOTS,
                    qos_ns=10_000_000,
                    needed_cores=1,
                    expected_ns=1_000_000,
                    metadata=msgspec.msgpack.encode(Signature(inputs=INPUTS, outputs=OUTPUTS)),
                )
                for version in (1, 2)
            ],
        )
        self.board = ipc.Board(self.segment)
        for model in range(2):
            self.board.set_model_state(model, ipc.ModelState.READY, "")
        self.board.set_state(ipc.ServerState.SERVING)
        self.scheduler = ipc.Scheduler("model", 1, [PROFILE, PROFILE])
        self.board.join(0, 1, 0)

    def run_one(self, error: str = "") -> None:
        """Takes a task and ends it."""
        assert self.board.take(0, self.scheduler, time.monotonic_ns()) is not None
        self.board.complete(0, error, time.monotonic_ns())


def test_slots_are_views_of_the_segment() -> None:
    server = Server()
    with LocalClient(server.segment) as client, LocalClient(server.segment) as other:
        slot = client.allocate("m", 1)
        assert (slot.model, slot.version, slot.index) == ("m", 1, 0)
        assert slot.inputs["image"].shape == (1, 3, 5)
        assert slot.inputs["image"].dtype == np.float32
        assert slot.inputs["mask"].dtype == np.bool_
        assert slot.outputs["half"].dtype == np.uint16
        assert not slot.outputs["half"].flags.writeable
        slot.inputs["image"][...] = 3
        slot.release()
        # The slot's next user sees what the last one left: the same memory.
        again = other.allocate("m", 1)
        assert again.index == 0
        assert (again.inputs["image"] == 3).all()


def test_arrays_outlive_the_client() -> None:
    server = Server()
    client = LocalClient(server.segment)
    image = client.allocate("m").inputs["image"]
    client.close()
    del client, server
    image[...] = 1  # still mapped
    assert image.sum() == 15


def test_a_completion_says_how_it_went() -> None:
    server = Server()
    with LocalClient(server.segment) as client:
        assert client.wait(timeout_s=0) == []
        good, bad = client.allocate("m"), client.allocate("m")
        client.submit(good, tag=-5)
        client.submit(bad, tag=6)
        with pytest.raises(ValueError, match="submitted or released before"):
            client.submit(good)
        server.run_one()
        server.run_one(error="division by zero")
        first, second = client.poll()
        assert (first.slot, first.tag, first.ok, first.error) == (good, -5, True, "")
        assert (second.slot, second.tag, second.ok, second.error) == (
            bad,
            6,
            False,
            "division by zero",
        )
        assert first.compute_ns >= 0
        assert first.queue_ns >= 0
        good.release()
        good.release()
        with pytest.raises(ValueError, match="submitted or released before"):
            client.submit(good)
        stats = client.stats().models[1]
        assert (stats.accepted, stats.succeeded, stats.failed["error"]) == (2, 1, 1)
        assert sum(stats.latency.counts) == 1
        assert len(stats.latency.counts) == len(stats.latency.bounds_ns)


def test_waiting_ends_when_a_completion_comes() -> None:
    server = Server()
    with LocalClient(server.segment) as client:
        client.submit(client.allocate("m"), tag=1)
        worker = threading.Timer(0.05, server.run_one)
        worker.start()
        assert [completion.tag for completion in client.wait(timeout_s=30)] == [1]
        worker.join()


def test_the_highest_version_that_is_ready_is_the_default() -> None:
    server = Server()
    with LocalClient(server.segment) as client:
        assert client.allocate("m").version == 2
        server.board.set_model_state(1, ipc.ModelState.UNAVAILABLE, "its weights are damaged")
        assert client.allocate("m").version == 1
        with pytest.raises(RefusedError, match="its weights are damaged") as refused:
            client.allocate("m", 2)
        assert refused.value.reason == "unavailable"
        assert [model.state for model in client.models()] == ["ready", "unavailable"]
        with pytest.raises(NotFoundError, match="it has: 1, 2"):
            client.allocate("m", 3)
        with pytest.raises(NotFoundError, match="it has: m"):
            client.allocate("n")


def test_refusals_have_a_reason() -> None:
    server = Server(admission=True)
    with LocalClient(server.segment) as client:
        slots = [client.allocate("m") for _ in range(SLOTS)]
        with pytest.raises(RefusedError, match="all 3 slots") as refused:
            client.allocate("m")
        assert refused.value.reason == "queue_full"
        long_ago_ns = time.monotonic_ns() - 10_000_000
        with pytest.raises(RefusedError, match="too late") as refused:
            client.submit(slots[0], arrival_ns=long_ago_ns)
        assert refused.value.reason == "deadline"
        client.submit(client.allocate("m"), deadline_ns=time.monotonic_ns() + 10**12)
        server.board.set_state(ipc.ServerState.DRAINING)
        with pytest.raises(RefusedError) as refused:
            client.submit(slots[1])
        assert refused.value.reason == "draining"


def test_a_closed_client_says_so() -> None:
    server = Server()
    client = LocalClient(server.segment)
    slot = client.allocate("m")
    client.submit(client.allocate("m"))
    client.close()
    client.close()
    slot.release()
    assert server.board.pending() == 0
    assert server.board.check() == ""
    for call in (lambda: client.allocate("m"), client.poll, lambda: client.submit(slot)):
        with pytest.raises(UnavailableError, match="has been closed"):
            call()


@pytest.mark.parametrize(
    ("address", "port"),
    [(8000, 8000), ("8000", 8000), ("127.0.0.1:81", 81), ("http://[::1]:82/v2", 82)],
)
def test_addresses(address: str | int, port: int) -> None:
    assert port_of(address) == port


@pytest.mark.parametrize("address", ["", "localhost", "localhost:", "127.0.0.1:0", "a:70000", "-1"])
def test_addresses_without_a_port(address: str) -> None:
    with pytest.raises(InputError, match="names no port"):
        port_of(address)


def test_the_segment_is_handed_on_by_port() -> None:
    server = Server()
    port = 1  # nobody serves HTTP here
    rendezvous = Rendezvous(port)
    with pytest.raises(InputError, match="another Veltair server"):
        Rendezvous(port)
    answering = threading.Thread(target=_answer_one, args=(rendezvous, server.segment.fd))
    answering.start()
    client = LocalClient.attach(port)
    answering.join()
    assert [model.name for model in client.models()] == ["m", "m"]
    client.close()
    rendezvous.close()
    with pytest.raises(NotFoundError, match="no Veltair server with the HTTP port 1"):
        request_segment(port)


def _answer_one(rendezvous: Rendezvous, descriptor: int) -> None:
    import select

    select.select([rendezvous.fileno()], [], [], 30)
    rendezvous.answer(descriptor)
