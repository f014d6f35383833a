"""ONNX Runtime and OpenVINO as the peers use them: fp32, batch 1, tensors where they lie.

Engines size their thread pools by the processors of the process, so a process is bound first.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]
Shapes = Mapping[str, tuple[int, ...]]

ENGINES = ("onnxruntime", "openvino")
OPENVINO_PLAIN: dict[str, str | int] = {
    # Without the hint it would compute in bfloat16 where the processor can.
    "INFERENCE_PRECISION_HINT": "f32",
    # Denormal numbers are zeros. Without it, in a third of the processes and for as long as they
    # lived, the first convolution of ResNet-50 took 48 ms instead of 1.6 (2026.4.1, AVX-512).
    "CPU_DENORMALS_OPTIMIZATION": True,
}


class Session(Protocol):
    """A model that is loaded, for one thread that calls it."""

    def prepared(self, inputs: Arrays) -> Callable[[], object]:
        """Returns what runs the model on these very arrays, each time, without a copy."""

    def infer(self, inputs: Arrays) -> list[NDArray[Any]]:
        """Runs the model on other inputs; its outputs are valid until the next call."""


def load(engine: str, onnx: str, shapes: Shapes, threads: int, spinning: bool = True) -> Session:
    """Loads a model into a process that is bound to at least so many processors.

    Args:
        engine: one of `ENGINES`.
        onnx: file.
        shapes: of the inputs, by name.
        threads: that compute one query, the caller's among them.
        spinning: whether ONNX Runtime's threads spin while they wait for a part of a query;
            between queries they sleep either way. OpenVINO has no such setting.
    """
    if engine == "onnxruntime":
        return _OnnxRuntime(onnx, threads, spinning)
    return _OpenVino(onnx, shapes, threads)


def draw_inputs(shapes: Shapes, dtypes: Mapping[str, str]) -> dict[str, NDArray[Any]]:
    """Draws inputs of a model, the same each time: floats from [0, 1), others 0 or 1.

    So an integer is valid as an index into any table of two rows, as BERT's of segments.
    """
    random = np.random.default_rng(0)
    return {
        name: random.random(shape, np.float32).astype(dtypes[name])
        if np.issubdtype(np.dtype(dtypes[name]), np.floating)
        else random.integers(0, 2, shape).astype(dtypes[name])
        for name, shape in shapes.items()
    }


class _OnnxRuntime:
    def __init__(self, onnx: str, threads: int, spinning: bool) -> None:
        import onnxruntime  # noqa: PLC0415 # optional, and slow to import

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # A session's threads would spin on after its query, beside the query of another model.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spinning)))
        cpus = sorted(os.sched_getaffinity(0))
        if threads > 1:  # one processor each, counted from 1; the first is the caller's
            places = ";".join(str(cpu + 1) for cpu in cpus[1:threads])
            options.add_session_config_entry("session.intra_op_thread_affinities", places)
        self._session = onnxruntime.InferenceSession(
            onnx, options, providers=["CPUExecutionProvider"]
        )
        self._outputs = [output.name for output in self._session.get_outputs()]

    def prepared(self, inputs: Arrays) -> Callable[[], object]:
        binding = self._session.io_binding()
        for name, array in inputs.items():
            binding.bind_cpu_input(name, array)
        for name in self._outputs:
            binding.bind_output(name)
        session = self._session
        return lambda: session.run_with_iobinding(binding)

    def infer(self, inputs: Arrays) -> list[NDArray[Any]]:
        return list(self._session.run(self._outputs, dict(inputs)))


class _OpenVino:
    def __init__(self, onnx: str, shapes: Shapes, threads: int) -> None:
        compiled = compile_openvino(
            onnx,
            shapes,
            {
                "PERFORMANCE_HINT": "LATENCY",
                "NUM_STREAMS": 1,
                "INFERENCE_NUM_THREADS": threads,
                "ENABLE_CPU_PINNING": True,
            },
        )
        self._request = compiled.create_infer_request()

    def prepared(self, inputs: Arrays) -> Callable[[], object]:
        set_inputs(self._request, inputs)
        request = self._request
        return lambda: request.infer(share_outputs=True)  # otherwise it copies them

    def infer(self, inputs: Arrays) -> list[NDArray[Any]]:
        found = self._request.infer(dict(inputs), share_inputs=True, share_outputs=True)
        return list(found.values())


def compile_openvino(onnx: str, shapes: Shapes, settings: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Compiles a model for the processors of this process, in fp32, with inputs of fixed shapes."""
    import openvino  # noqa: PLC0415 # optional, and slow to import

    core = openvino.Core()
    graph = core.read_model(onnx)
    if graph.is_dynamic():
        graph.reshape({name: list(shape) for name, shape in shapes.items()})
    return core.compile_model(graph, "CPU", {**OPENVINO_PLAIN, **settings})


def set_inputs(request: Any, inputs: Arrays) -> None:  # noqa: ANN401 # openvino has no types
    """Makes a request read these very arrays from now on."""
    import openvino  # noqa: PLC0415 # optional, and slow to import

    for name, array in inputs.items():
        request.set_tensor(name, openvino.Tensor(array, shared_memory=True))
