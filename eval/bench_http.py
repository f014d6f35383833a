"""What HTTP adds to a query: `python -m veltair.eval.bench_http [--json FILE]`.

The same 600 KB query of a network that does next to nothing goes to one server in turns by three
ways: through the local shared-memory client, over HTTP from a bare socket, and over HTTP from
`tritonclient`. All three wait for the same queue, worker and kernels, so the difference to the
first is what HTTP costs; the third's contains what its client spends by itself.
"""

from __future__ import annotations

import dataclasses
import socket
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
import tritonclient.http as triton
import typer
from rich.console import Console
from rich.table import Table

from veltair.eval.interleave import Plan, time_blocks
from veltair.eval.null_model import NULL_MODEL, PHOTO_SHAPE, compile_quietly, null_model
from veltair.eval.record import check_writable, provenance, spread, write_result
from veltair.eval.served import serving
from veltair.runtime.client import LocalClient

if TYPE_CHECKING:
    from numpy.typing import NDArray

BOUND_NS = 500_000
WAYS = ("local client", "HTTP, bare socket", "HTTP, tritonclient")
PLAN = Plan(budget_ns=0, block_runs=20, most_rounds=1000)


class SocketClient:
    """Sends one request over and over, with no more work than the bytes need."""

    def __init__(self, address: str, image: NDArray[np.float32]) -> None:
        """Connects to `HOST:PORT`."""
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        described = {
            "name": "data",
            "shape": image.shape,
            "datatype": "FP32",
            "parameters": {"binary_data_size": image.nbytes},
        }
        asked = {"inputs": [described], "parameters": {"binary_data_output": True}}
        text = msgspec.json.encode(asked)
        self._head = (
            f"POST /v2/models/{NULL_MODEL}/infer HTTP/1.1\r\nHost: {host}\r\n"
            f"Content-Length: {len(text) + image.nbytes}\r\n"
            f"Inference-Header-Content-Length: {len(text)}\r\n\r\n"
        ).encode() + text
        self._body = image.data.cast("B")
        self._answer = bytearray(64 * 1024)

    def infer(self) -> bytes:
        """Returns the answer's body."""
        self._socket.sendall(self._head)
        self._socket.sendall(self._body)
        filled = 0
        while True:
            filled += self._socket.recv_into(memoryview(self._answer)[filled:])
            head, found, _ = bytes(self._answer[:filled]).partition(b"\r\n\r\n")
            if not found:
                continue
            length = int(head.lower().split(b"\r\ncontent-length: ")[1].split(b"\r\n")[0])
            if filled == len(head) + 4 + length:
                return bytes(self._answer[len(head) + 4 : filled])

    def close(self) -> None:
        """Disconnects."""
        self._socket.close()


def measure(address: str, plan: Plan) -> tuple[NDArray[np.int64], int]:
    """Times the three ways against a running server.

    Returns:
        int64[3, rounds, runs], ns of each query; and the median time of the kernels alone, ns.
    """
    image = np.random.default_rng(0).random(PHOTO_SHAPE, np.float32)
    computing_ns: list[int] = []
    bare = SocketClient(address, image)
    with LocalClient.attach(address) as local, triton.InferenceServerClient(address) as client:

        def through_segment() -> None:
            slot = local.allocate(NULL_MODEL)
            np.copyto(slot.inputs["data"], image)
            local.submit(slot)
            [done] = local.wait(10)
            computing_ns.append(done.compute_ns)
            slot.release()

        def through_triton() -> Any:  # noqa: ANN401 # tritonclient has no types
            tensor = triton.InferInput("data", list(PHOTO_SHAPE), "FP32")
            tensor.set_data_from_numpy(image)
            return client.infer(NULL_MODEL, [tensor]).as_numpy("scores")

        np.testing.assert_allclose(through_triton(), image.mean((2, 3)), rtol=1e-4)
        times = time_blocks((through_segment, bare.infer, through_triton), plan)
    bare.close()
    return times, int(np.median(computing_ns))


def main(
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
    seconds: Annotated[float, typer.Option(help="Time to measure.", min=1.0)] = 20.0,
) -> None:
    """Measure what HTTP adds to a 600 KB query."""
    check_writable(json)
    origin = provenance("python -m veltair.eval.bench_http")
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "repository"
        compile_quietly(repository, NULL_MODEL, null_model())
        with serving(repository, workers=1) as address:
            time.sleep(1)  # the start's own work is over
            plan = dataclasses.replace(PLAN, budget_ns=round(seconds * 1e9))
            times, computing_ns = measure(address.removeprefix("http://"), plan)
    medians = np.median(times, axis=2)
    added = (medians - medians[0]).astype(np.int64)  # paired by round
    table = Table(title="600 KB query, µs: median of the rounds' medians, 10th to 90th percentile")
    for title in ("", "round trip", "more than the local client", "beside the kernels"):
        table.add_column(title, justify="left" if not title else "right")
    rows: list[dict[str, Any]] = []
    for way, name in enumerate(WAYS):
        whole, more = spread(medians[way].astype(np.int64)), spread(added[way])
        rows.append({"way": name, "round_trip_ns": whole, "added_ns": more})
        beside_ns = int(whole["p50"]) - computing_ns
        table.add_row(name, _text(whole), _text(more) if way else "", f"{beside_ns / 1000:.0f}")
    Console().print(table)
    http_ns = int(rows[1]["round_trip_ns"]["p50"]) - computing_ns
    print(
        f"kernels {computing_ns / 1000:.0f} µs; HTTP beside them {http_ns / 1000:.0f} µs, "
        f"bound {BOUND_NS / 1000:.0f} µs"
    )
    if json is not None:
        write_result(
            json,
            {**origin, "bound_ns": BOUND_NS, "kernels_ns": computing_ns, "ways": rows},
        )


def _text(values: dict[str, float | int]) -> str:
    p10, p50, p90 = (values[name] / 1000 for name in ("p10", "p50", "p90"))
    return f"{p50:.0f} ({p10:.0f} to {p90:.0f})"


if __name__ == "__main__":
    typer.run(main)
