"""One network on one instruction set and thread count, beside both peers, in a fresh process."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from veltair.eval.bench_command import compare
from veltair.eval.fma_peak import FmaPeak
from veltair.eval.held import Hold
from veltair.eval.record import spread
from veltair.runtime.errors import VeltairError
from veltair.runtime.manifest import ITEM_BYTES, Layer
from veltair.runtime.model import Model, sample_inputs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from veltair.eval.interleave import Plan
    from veltair.runtime.manifest import Argument

LISTED = 6  # layers with the most time
_PEAK_RUN_NS = 10_000_000
_LAYER_ROUNDS = 15
_WARM_UP_ROUNDS = 3
_NEWER = ("avx512", "amx", "avx10")  # in the names of kernels that a held peer can't have
# Layers whose operations count: those of a direct convolution or product, however it is computed.
_DENSE = ("conv", "matmul")

Case = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Libraries:
    """The native helpers, built.

    Attributes:
        peak: of `build_peak`, of the instruction set that is measured.
        hold: of `build_hold`; None where the peers may use all that the processor has.
    """

    peak: Path
    hold: Path | None


def solo_case(
    folder: Path,
    onnx: Path,
    cpus: Sequence[int],
    peers: Sequence[str],
    plan: Plan,
    libraries: Libraries,
) -> Case:
    """Measures one model on some processors; the calling process is bound, and held where asked.

    Returns:
        What `bench_case` returns, and `flops`; `peak`, where one processor is measured: the
        loop's GFLOP/s and our `share` of it; `layers`, those with the most time; `held`.

    Raises:
        VeltairError: the process can't be held, or a peer uses newer instructions nonetheless.
    """
    os.sched_setaffinity(0, cpus)
    model = Model.load(folder, verify=False)
    # Now, since libtvm_ffi, which the kernels need, sets a handler of its own for faults.
    hold = Hold(libraries.hold) if libraries.hold is not None else None
    # The peak is one core's: beside threads that still spin on others it would be no worse.
    peak = FmaPeak(libraries.peak, _PEAK_RUN_NS) if len(cpus) == 1 else None
    beside = [peak.run] if peak is not None else []
    case, times = compare(model, onnx, peers, plan, beside)
    flops = dense_flops(model.manifest.layers)
    case |= {"flops": flops, "held": hold is not None}
    if peak is not None:
        case["peak"] = {
            "gflops": spread(peak.flops / times[1].ravel()),
            "share": spread(peak_share(times[0], flops, times[1], peak.flops)),
        }
    if hold is not None:
        _check_held(case["engines"])
        case["cpuid_answered"] = hold.answered
    case["layers"] = slowest_layers(model)
    return case


def dense_flops(layers: Sequence[Layer]) -> int:
    """Returns the operations of the convolutions and products, counted as direct ones."""
    return sum(layer.flops for layer in layers if any(name in layer.op for name in _DENSE))


def peak_share(
    ours_ns: NDArray[np.int64], flops: int, peak_ns: NDArray[np.int64], peak_flops: int
) -> NDArray[np.float64]:
    """Returns float64[rounds]: the share of the peak in each round, from medians.

    Args:
        ours_ns: int64[rounds, runs].
        flops: of one of our runs.
        peak_ns: int64[rounds, runs], of the loop.
        peak_flops: of one run of the loop.
    """
    ours = flops / np.median(ours_ns, axis=1)
    return np.asarray(ours / (peak_flops / np.median(peak_ns, axis=1)))


def slowest_layers(model: Model) -> list[dict[str, Any]]:
    """Returns the layers with the most time, each with its rate and what it touches."""
    inputs = sample_inputs(model.manifest.inputs)
    model.time_layers(inputs, None, _WARM_UP_ROUNDS)
    layer_ns = np.median(model.time_layers(inputs, None, _LAYER_ROUNDS), axis=0)
    order = np.argsort(-layer_ns)[:LISTED]
    layers = model.manifest.layers
    return [_layer(layers[i], float(layer_ns[i]), float(layer_ns.sum())) for i in order]


def _layer(layer: Layer, ns: float, total_ns: float) -> dict[str, Any]:
    arguments = layer.variants[0].arguments
    weights = sum(touched_bytes(each) for each in arguments if each.storage == "weights")
    touched = sum(touched_bytes(each) for each in arguments)
    return {
        "name": layer.name,
        "op": layer.op,
        "variant": layer.variants[0].id,
        "us": ns / 1e3,
        "share": ns / total_ns,
        "gflops": layer.flops / ns,
        "weight_bytes": weights,
        "touched_bytes": touched,
        "gbytes_per_s": touched / ns,
    }


def touched_bytes(argument: Argument) -> int:
    """Returns how much a kernel reads or writes of an argument at least."""
    return int(np.prod(argument.shape, dtype=np.int64)) * ITEM_BYTES[argument.dtype]


def _check_held(engines: Sequence[dict[str, Any]]) -> None:
    for engine in engines:
        newer = [name for name in engine.get("kernels", ()) if any(n in name for n in _NEWER)]
        if newer:
            raise VeltairError(
                f"{engine['engine']} was held to AVX2 and uses {', '.join(newer)} nonetheless; "
                "its figures would not be AVX2's"
            )
