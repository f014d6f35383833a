"""`make demo-text`: a trained network finds, through the server, what means nearly the same.

Three hundred sentences become vectors, each by a request of an unmodified Triton client; then
sentences that are not among them do, and those with the nearest vectors are printed. What is
compiled stays in `build/demo` for the next run.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import numpy as np
import onnxruntime
from tritonclient.http import InferenceServerClient, InferRequestedOutput

from veltair.eval.demo import (
    FOLDER,
    NS_PER_MS,
    NS_PER_S,
    WORKERS,
    as_tensors,
    ended,
    print_difference,
    title,
)
from veltair.eval.demo_model import DemoModel, prepare
from veltair.eval.sentences import Sentence, WordPieces, nearest, read_sentences
from veltair.eval.served import serving
from veltair.models.minilm import OUTPUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from veltair.eval.demo_model import Arrays

NETWORK = "minilm_l6_v2"
CLIENTS = WORKERS
TOP = 3
QUERIES = (
    "Someone has to fix the leaking faucet.",
    "It is going to pour on Saturday and Sunday.",
    "A spacecraft touched down close to the lunar pole.",
    "What we buy gets dearer, but we don't earn more.",
    "The monitor shows nothing although I turned the machine on.",
)


@dataclass(frozen=True, kw_only=True)
class Embedded:
    """What the server made of sentences.

    Attributes:
        vectors: float32[sentences, channels], each of length 1.
        latency_ns: int64[sentences], of each request, as its client saw it.
        wall_ns: of all.
    """

    vectors: NDArray[np.float32]
    latency_ns: NDArray[np.int64]
    wall_ns: int


def main() -> int:
    """Runs the demo; returns its exit code."""
    parser = argparse.ArgumentParser(prog="make demo-text", description=__doc__)
    parser.add_argument("--query", help="a sentence of yours, in place of the demo's")
    query = parser.parse_args().query
    return ended(lambda: run((query,) if query else QUERIES))


def run(queries: Sequence[str]) -> None:
    """Compiles and serves the network, embeds the sentences, and finds the nearest to `queries`."""
    sentences, word_pieces = read_sentences(), WordPieces()
    title(1, "compile")
    model = prepare(NETWORK, FOLDER)
    title(2, f"serve: mpirun -n {WORKERS + 1} veltair-serve")
    with serving(model.repository, workers=WORKERS) as address:
        title(3, f"embed {len(sentences)} sentences through tritonclient.http, {CLIENTS} at a time")
        known = embed(address, [word_pieces(sentence.text) for sentence in sentences])
        print_speed(known)
        title(4, "find the nearest of them by cosine similarity")
        samples = [word_pieces(query) for query in queries]
        asked = embed(address, samples)
        for query, vector in zip(queries, asked.vectors, strict=True):
            print_nearest(query, nearest(vector, known.vectors, TOP), sentences)
        print_difference(
            f"{OUTPUT}, against ONNX Runtime", asked.vectors, reference(model, samples)
        )
        title(5, "stop")
    print("Stopped: no rank is left.")


def embed(address: str, samples: Sequence[Arrays]) -> Embedded:
    """Sends each sample in a request of its own, from as many clients as the server has workers."""
    vectors: list[NDArray[np.float32]] = [np.empty((1, 0), np.float32)] * len(samples)
    latency_ns = np.zeros(len(samples), np.int64)
    waiting = deque(enumerate(samples))

    def send_waiting() -> None:
        with InferenceServerClient(urlsplit(address).netloc) as client:
            while waiting:
                try:
                    index, inputs = waiting.popleft()
                except IndexError:  # the other client took the last
                    return
                begun_ns = time.monotonic_ns()
                wanted = [InferRequestedOutput(OUTPUT)]
                result = client.infer(NETWORK, as_tensors(inputs), outputs=wanted)
                vectors[index] = result.as_numpy(OUTPUT)
                latency_ns[index] = time.monotonic_ns() - begun_ns

    begun_ns = time.monotonic_ns()
    with ThreadPoolExecutor(CLIENTS) as pool:
        try:
            for sent in [pool.submit(send_waiting) for _ in range(CLIENTS)]:
                sent.result()
        finally:
            waiting.clear()  # after an interrupt the clients end with what they are at
    wall_ns = time.monotonic_ns() - begun_ns
    return Embedded(vectors=np.concatenate(vectors), latency_ns=latency_ns, wall_ns=wall_ns)


def print_speed(embedded: Embedded) -> None:
    """Prints sentences a second and the latency of one."""
    count = len(embedded.vectors)
    median, late = np.percentile(embedded.latency_ns, (50, 95)) / NS_PER_MS
    print(
        f"{count} sentences in {embedded.wall_ns / NS_PER_S:.1f} s: "
        f"{count * NS_PER_S / embedded.wall_ns:.1f} a second, "
        f"latency {median:.1f} ms in the median, {late:.1f} ms at the 95th percentile"
    )


def print_nearest(
    query: str, found: Sequence[tuple[int, float]], sentences: Sequence[Sentence]
) -> None:
    """Prints the sentences that are nearest to one, with topic and cosine similarity."""
    print(query)
    for index, similarity in found:
        print(f"  {similarity:6.3f}  {sentences[index].text} [{sentences[index].topic}]")


def reference(model: DemoModel, samples: Sequence[Arrays]) -> NDArray[np.float32]:
    """Returns ONNX Runtime's vectors: float32[samples, channels]."""
    session = onnxruntime.InferenceSession(model.onnx, providers=["CPUExecutionProvider"])
    return np.concatenate([session.run([OUTPUT], inputs)[0] for inputs in samples])


if __name__ == "__main__":
    sys.exit(main())
