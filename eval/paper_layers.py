"""How far the machine model is from the paper's own layers, on its 64 cores.

The paper's artifact has the time of each convolution of ResNet-50 on a Threadripper 3990X, on 8 to
64 cores, alone, by the kernels of the paper's compiler. Nothing is known of those but their shapes:
tasks are taken to be rows of vectors of the output, and tiles not to be read twice. What such
kernels reach of a core's peak, and what a launch costs for each core, is fitted on every second
layer; the others are what the model is judged by. All of the machine's cores, where most layers
were slower than on fewer, are left out of the fit: what else ran there would pass for launches.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from veltair.eval.model_errors import error_of, held_out
from veltair.proxy.machine_model import Work, times
from veltair.runtime.simulate.profiles import convolution_flops, convolution_shape

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from veltair.proxy.machine_file import Machine

_ITEM_BYTES = 4
_LAUNCHES_NS = range(0, 501, 10)  # for each core beyond the first, that are tried


@dataclass(frozen=True, kw_only=True)
class PaperLayers:
    """The measured layers.

    Attributes:
        names: as the file has them.
        cores: ascending.
        measured_ns: float64[layers, cores].
        works: of each, with a share of 1.
    """

    names: tuple[str, ...]
    cores: tuple[int, ...]
    measured_ns: NDArray[np.float64]
    works: tuple[Work, ...]


def read_layers(path: Path, lanes: int) -> PaperLayers:
    """Reads the layers.

    Args:
        path: the CSV of layer times by core count.
        lanes: of a vector, for the number of tasks.
    """
    with path.open(newline="") as file:
        heading, *rows = csv.reader(line for line in file if not line.startswith("#"))
    names = tuple(row[0] for row in rows)
    works = [_work(name, lanes) for name in names]
    weights = sum(work.weight_bytes for work in works)
    model_bytes = weights + max(work.other_bytes for work in works)
    return PaperLayers(
        names=names,
        cores=tuple(int(name.removeprefix("us_").removesuffix("c")) for name in heading[1:]),
        measured_ns=np.array([[float(us) * 1000 for us in row[1:]] for row in rows]),
        works=tuple(replace(work, model_bytes=model_bytes) for work in works),
    )


def _work(name: str, lanes: int) -> Work:
    shape, flops = convolution_shape(name), convolution_flops(name)
    assert shape is not None
    assert flops is not None
    weights = _ITEM_BYTES * shape.c_out * (shape.c_in // shape.groups) * shape.kh * shape.kw
    data = shape.h * shape.w * shape.c_in + shape.out_h * shape.out_w * shape.c_out
    extent = shape.out_h * -(-shape.c_out // lanes)
    return Work(
        operations=flops,
        extent=extent,
        tile_bytes=(weights + _ITEM_BYTES * data) / extent,
        weight_bytes=weights,
        other_bytes=_ITEM_BYTES * data,
        share=1.0,
    )


def predicted_ns(layers: PaperLayers, machine: Machine, share: float) -> NDArray[np.float64]:
    """Returns float64[layers, cores]: what the model says, of kernels that reach such a share."""
    return np.stack(
        [
            times(replace(work, share=share), machine, layers.cores, (0.0,)).total[:, 0]
            for work in layers.works
        ]
    )


def fitted(layers: PaperLayers, machine: Machine) -> tuple[float, Machine]:
    """Returns the share and the launch that fit every second layer best.

    Least sum of |log(predicted / measured)| over those layers and all core counts. For each launch
    that is tried the share is the median of what each time asks for beside that launch.
    """
    half = [not held_out(index) for index in range(len(layers.names))]
    measured = layers.measured_ns[half]
    best: tuple[float, float, Machine] | None = None
    for core_ns in _LAUNCHES_NS:
        tried = machine.changed("launch.core_ns", float(core_ns))
        share = _share_of(layers, tried, half)
        errors = np.abs(np.log(predicted_ns(layers, tried, share)[half] / measured))
        errors = errors[:, _fitted_counts(layers, machine)]
        if best is None or errors.sum() < best[0]:
            best = (float(errors.sum()), share, tried)
    assert best is not None
    return best[1], best[2]


def _share_of(layers: PaperLayers, machine: Machine, half: Sequence[bool]) -> float:
    at_peak = [times(work, machine, layers.cores, (0.0,)) for work in layers.works]
    compute = np.stack([each.compute[:, 0] for each in at_peak])
    launch = np.stack([each.launch[:, 0] for each in at_peak])
    shares = compute / np.maximum(layers.measured_ns - launch, 1.0)
    return float(np.median(shares[half][:, _fitted_counts(layers, machine)]))


def _fitted_counts(layers: PaperLayers, machine: Machine) -> NDArray[np.bool_]:
    return np.array(layers.cores) < machine.processor.cores


def paper_errors(layers: PaperLayers, machine: Machine) -> dict[str, Any]:
    """Fits on one half of the layers and returns the errors on the other."""
    share, fit = fitted(layers, machine)
    ratios = predicted_ns(layers, fit, share) / layers.measured_ns
    counts = _fitted_counts(layers, machine)
    judged = np.array([held_out(index) for index in range(len(layers.names))])
    sums = layers.measured_ns[judged].sum(axis=0), (ratios * layers.measured_ns)[judged].sum(axis=0)
    return {
        "machine": machine.processor.name,
        "share": share,
        "launch_core_ns": fit.launch.core_ns,
        "fitted_layers": int((~judged).sum()),
        "held_out_layers": int(judged.sum()),
        "held_out": error_of(ratios[judged][:, counts].ravel()),
        "fitted": error_of(ratios[~judged][:, counts].ravel()),
        "by_cores": [
            {"cores": cores, "sum_ratio": float(predicted / measured)}
            | error_of(ratios[judged, index])
            for index, (cores, measured, predicted) in enumerate(
                zip(layers.cores, *sums, strict=True)
            )
        ],
        "layers": [
            {
                "layer": name,
                "held_out": bool(judged[index]),
                "measured_us": [round(ns / 1000) for ns in layers.measured_ns[index]],
                "predicted_us": [
                    round(float(ns) / 1000, 1) for ns in ratios[index] * layers.measured_ns[index]
                ],
            }
            for index, name in enumerate(layers.names)
        ],
    }
