"""The engines that `veltair bench` compares, each behind one call: run once, return the outputs.

Each runs in fp32 with the given number of threads and one stream, as for one query at a time.
"""

from __future__ import annotations

import importlib.util
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from veltair.eval.capacity.peers.alone.engines import OPENVINO_PLAIN, compile_openvino
from veltair.runtime.errors import InputError
from veltair.runtime.model import Model

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One engine with one model, loaded.

    Attributes:
        name: `veltair`, `onnxruntime` or `openvino`.
        version: of its package.
        settings: what it was told, as it names it.
        run: runs the model once on inputs and returns new outputs.
        kernels: how many of its nodes run by which kind of kernel, where it tells.
    """

    name: str
    version: str
    settings: dict[str, str | int] = field(default_factory=dict)
    run: Callable[[Arrays], Arrays]
    kernels: dict[str, int] = field(default_factory=dict)


def veltair_engine(model: Model, cores: int) -> Engine:
    """Ours: the first `cores` processors of the model."""
    chosen = model.cpus[:cores]
    return Engine(
        name="veltair",
        version=version("veltair"),
        settings={"cores": cores},
        run=lambda inputs: model.run(inputs, chosen),
    )


def onnxruntime_engine(onnx: Path, threads: int) -> Engine:
    """ONNX Runtime's CPU provider; it keeps fp32 graphs in fp32."""
    import onnxruntime  # noqa: PLC0415 # optional, and slow to import

    settings: dict[str, str | int] = {"intra_op_num_threads": threads, "inter_op_num_threads": 1}
    options = onnxruntime.SessionOptions()
    for name, value in settings.items():
        setattr(options, name, value)
    session = onnxruntime.InferenceSession(str(onnx), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return Engine(
        name="onnxruntime",
        version=version("onnxruntime"),
        settings=settings,
        run=lambda inputs: dict(zip(names, session.run(names, dict(inputs)), strict=True)),
    )


def openvino_engine(onnx: Path, threads: int, shapes: Mapping[str, tuple[int, ...]]) -> Engine:
    """OpenVINO's CPU plugin, one query at a time."""
    settings: dict[str, str | int] = {
        **OPENVINO_PLAIN,
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
    }
    compiled = compile_openvino(str(onnx), shapes, settings)
    request = compiled.create_infer_request()
    kinds = (node.get_rt_info() for node in compiled.get_runtime_model().get_ops())
    kernels = Counter(
        kind["primitiveType"].astype(str) for kind in kinds if "primitiveType" in kind
    )

    def run(inputs: Arrays) -> Arrays:
        results = request.infer(dict(inputs), share_inputs=True)
        return {result.get_any_name(): array for result, array in results.items()}

    return Engine(
        name="openvino",
        version=version("openvino"),
        settings=settings,
        run=run,
        kernels=dict(kernels),
    )


PEERS = ("onnxruntime", "openvino")


def check_peers(names: list[str]) -> None:
    """Refuses peers that are unknown or not installed, before anything is loaded.

    Raises:
        InputError: one of `names` can't be used.
    """
    for name in names:
        if name not in PEERS:
            raise InputError(f"--against {name}: unknown; choose from {', '.join(PEERS)}")
        if importlib.util.find_spec(name) is None:
            raise InputError(
                f"--against {name}: the package is not installed; pip install 'veltair[peers]'"
            )


def load_peer(name: str, onnx: Path, threads: int, shapes: Mapping[str, tuple[int, ...]]) -> Engine:
    """Loads one of `PEERS` with an ONNX file.

    Raises:
        InputError: the engine can't load the file.
    """
    try:
        if name == "onnxruntime":
            return onnxruntime_engine(onnx, threads)
        return openvino_engine(onnx, threads, shapes)
    except Exception as error:  # each engine has exception classes of its own
        logging.getLogger(__name__).debug("%s", error, exc_info=True)
        raise InputError(
            f"--onnx {onnx}: {name} can't load it: {str(error).splitlines()[0]}"
        ) from error
