"""`make demo`: a network from its ONNX file to a loaded server, asked about a real photograph.

Everything runs as a user would run it: the `veltair` command, `mpirun`, an unmodified Triton client
and MLPerf LoadGen. What is compiled stays in `build/demo` for the next run.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import numpy as np
import onnxruntime
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import np_to_triton_dtype

from veltair import models
from veltair.eval.children import stopped_by_signals
from veltair.eval.demo_model import DemoModel, prepare, sample, veltair
from veltair.eval.served import serving
from veltair.runtime.errors import VeltairError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from veltair.eval.demo_model import Arrays

FOLDER = Path("build/demo")
WORKERS = 2
LOAD_S = 10  # at least
LOAD_QUERIES = 150  # expected; LoadGen gives no verdict on less than some ninety
MOST_LOAD_S = 60
LOAD_SHARE = 0.4  # of what one task after another could serve
LEAST_QOS_FACTOR = 2  # a shorter target than this, in the time alone, isn't asked for
DEFAULT_QOS_FACTOR = 4  # target of a model without one that can be asked for
TOP = 5
NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000


def main() -> int:
    """Runs the demo; returns its exit code."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--model", default="resnet50", help="a recipe or an ONNX file")
    parser.add_argument("--shape", action="append", default=[], help="as of `veltair compile`")
    options = parser.parse_args()
    return ended(lambda: run(options.model, options.shape))


def ended(work: Callable[[], None]) -> int:
    """Runs a demo until it ends or is interrupted; returns its exit code."""
    try:
        with stopped_by_signals():
            work()
    except VeltairError as error:
        print(f"demo: {error}", file=sys.stderr)
        return error.exit_code
    except subprocess.CalledProcessError as error:  # the command has said why
        return error.returncode
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


def run(wanted: str, shapes: Sequence[str] = ()) -> None:
    """Compiles, serves, queries and loads one network."""
    title(1, "compile")
    model = prepare(wanted, FOLDER, shapes)
    title(2, f"serve: mpirun -n {WORKERS + 1} veltair-serve")
    with serving(model.repository, workers=WORKERS) as address:
        inputs, what = sample(model.manifest.inputs)
        title(3, f"ask through tritonclient.http about {what}")
        with InferenceServerClient(urlsplit(address).netloc) as client:
            answer = ask(client, model.name, inputs)
        compare(answer, reference(model, inputs))
        if wanted in models.names():
            print(
                "The weights are seeded, not trained, so the classes mean nothing; the two engines "
                "agree.\nAny ONNX file can take the network's place: make demo MODEL=path.onnx"
            )
        title(4, "load with MLPerf LoadGen's Server scenario")
        load(model, address)
        title(5, "stop")
    print("Stopped: no rank is left.")


def ask(client: InferenceServerClient, name: str, inputs: Arrays) -> Arrays:
    """Sends one request with binary tensors and returns the outputs by name."""
    metadata = client.get_model_metadata(name)
    wanted = [InferRequestedOutput(output["name"]) for output in metadata["outputs"]]
    result = client.infer(name, as_tensors(inputs), outputs=wanted)
    return {output.name(): result.as_numpy(output.name()) for output in wanted}


def as_tensors(inputs: Arrays) -> list[InferInput]:
    """Returns the inputs as a request has them."""
    tensors = []
    for key, value in inputs.items():
        tensor = InferInput(key, list(value.shape), np_to_triton_dtype(value.dtype))
        tensor.set_data_from_numpy(value)
        tensors.append(tensor)
    return tensors


def reference(model: DemoModel, inputs: Arrays) -> Arrays:
    """Returns ONNX Runtime's outputs of the same file."""
    session = onnxruntime.InferenceSession(model.onnx, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def compare(ours: Arrays, theirs: Arrays) -> None:
    """Prints the top classes of both side by side, and how far each output is from the other's."""
    for name, expected in theirs.items():
        if expected.ndim == 2 and expected.shape[1] >= TOP:
            print(f"  {'Veltair':^22}   {'ONNX Runtime':^22}")
            for left, right in zip(_top(ours[name][0]), _top(expected[0]), strict=True):
                print(f"  {left}   {right}")
        print_difference(name, ours[name], expected)


def print_difference(name: str, ours: NDArray[np.generic], theirs: NDArray[np.generic]) -> None:
    """Prints how far an output is from the other engine's."""
    spread = float(np.ptp(theirs)) or 1.0
    difference = float(np.abs(np.subtract(ours, theirs, dtype=np.float64)).max())
    print(f"{name}: largest difference {difference:.1e}, {difference / spread:.1e} of the range")


def load(model: DemoModel, address: str) -> None:
    """Drives the running server with LoadGen at a part of what it can do."""
    alone_ns = model.manifest.profile.model_ns[-1][0]
    own_ns = model.manifest.qos_ns
    qps, latency_ns = LOAD_SHARE * NS_PER_S / alone_ns, target_ns(own_ns, alone_ns)
    if own_ns and latency_ns != own_ns:
        print(
            f"Alone on all cores a query takes {alone_ns / NS_PER_MS:.3g} ms, too long for the "
            f"network's own target of {own_ns / NS_PER_MS:.3g} ms: {latency_ns / NS_PER_MS:.3g} "
            "ms are asked for.",
            flush=True,
        )
    veltair(
        "loadgen",
        *("--attach", address),
        *("--model", model.name),
        *("--scenario", "Server"),
        *("--qps", f"{qps:.3g}"),
        *("--duration", f"{load_s(qps):.3g}"),
        *("--latency-ms", f"{latency_ns / NS_PER_MS:.3g}"),
    )


def load_s(qps: float) -> float:
    """Returns how long the server is loaded at a rate, in seconds."""
    return min(max(LOAD_S, LOAD_QUERIES / qps), MOST_LOAD_S)


def target_ns(own_ns: int, alone_ns: float) -> float:
    """Returns a network's own target, or one that this machine can keep, in nanoseconds.

    Args:
        own_ns: the target that the network comes with; 0: none.
        alone_ns: what it takes alone on all cores.
    """
    return own_ns if own_ns >= LEAST_QOS_FACTOR * alone_ns else DEFAULT_QOS_FACTOR * alone_ns


def _top(scores: NDArray[np.generic]) -> list[str]:
    order = np.argsort(scores)[::-1][:TOP]
    return [f"class {index:4d}  {float(scores[index]):10.6f}" for index in order]


def title(step: int, text: str) -> None:
    """Prints which of the five steps begins."""
    print(f"\n[{step}/5] {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
