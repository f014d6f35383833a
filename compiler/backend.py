"""ONNX's backend interface over the compiler: what ONNX's own test suite runs against.

    from veltair.compiler.backend import VeltairBackend
    outputs = VeltairBackend.run_model(model, inputs)

A model is compiled when it runs first, for the shapes of what it is given then. Inputs that give
shapes, axes or counts alone (`shape_operands`) are bound by their values, as shapes are: other
values are another compile. The kernels are those of the cost models, and nothing is profiled.

Reference: onnx.backend.base.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.backend.base import Backend, BackendRep

from veltair.compiler.binding import Array
from veltair.compiler.pipeline import CompileOptions, compile_model
from veltair.compiler.progress import Silent
from veltair.compiler.shape_operands import shape_inputs
from veltair.compiler.target_options import choose_isa
from veltair.runtime.errors import InputError
from veltair.runtime.manifest import Manifest
from veltair.runtime.model import Model

_BFLOAT16 = helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16)

# What a compile is for: each input's shape, and its elements where they are bound.
_Key = tuple[tuple[tuple[int, ...], bytes], ...]


class VeltairRep(BackendRep):  # type: ignore[misc] # onnx is untyped
    """A model that is compiled for each set of input shapes that it is given.

    And for the values of the inputs that give shapes, axes or counts.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        """Takes a checked model; compiles nothing yet."""
        self._folder = Path(tempfile.mkdtemp(prefix="veltair-backend-"))
        self._remove = weakref.finalize(self, shutil.rmtree, self._folder, True)
        self._path = self._folder / "model.onnx"
        onnx.save(model, self._path)
        weights = {tensor.name for tensor in model.graph.initializer}
        self._inputs = [i.name for i in model.graph.input if i.name not in weights]
        self._outputs = [output.name for output in model.graph.output]
        self._bound = shape_inputs(model)
        self._loaded: dict[_Key, Model] = {}

    @property
    def manifests(self) -> list[Manifest]:
        """Of what has been compiled so far."""
        return [loaded.manifest for loaded in self._loaded.values()]

    def run(self, inputs: Any, **_: Any) -> tuple[Array, ...]:  # noqa: ANN401 (onnx's)
        """Runs the model.

        Args:
            inputs: an array for each input, in order; bfloat16 as `ml_dtypes` has it.

        Returns:
            An array for each output, likewise.

        Raises:
            InputError: there are more or fewer, or one isn't an array.
            VeltairError: the model can't be compiled, or a kernel fails.
        """
        arrays = _arrays(inputs, self._inputs)
        feed = dict(zip(self._inputs, arrays, strict=True))
        key = tuple((a.shape, a.tobytes() if n in self._bound else b"") for n, a in feed.items())
        if key not in self._loaded:
            self._loaded[key] = self._compiled(feed)
        loaded = self._loaded[key]
        bits = {n: a.view(np.uint16) if a.dtype == _BFLOAT16 else a for n, a in feed.items()}
        outputs = loaded.run({name: bits[name] for name in bits if name not in self._bound})
        dtypes = {spec.name: spec.dtype for spec in loaded.manifest.outputs}
        return tuple(
            outputs[name].view(_BFLOAT16) if dtypes[name] == "bfloat16" else outputs[name]
            for name in self._outputs
        )

    def _compiled(self, feed: dict[str, Array]) -> Model:
        options = CompileOptions(
            model=self._path,
            repository=self._folder / "repository",
            name="model",
            version=len(self._loaded) + 1,
            qos_ns=0,
            shapes={n: a.shape for n, a in feed.items() if n not in self._bound},
            values={n: a for n, a in feed.items() if n in self._bound},
            isa=choose_isa("auto"),
            jobs=1,
            force=False,
            shipped_logs=False,
            log=self._folder / "none.jsonl",
            profiled=False,
        )
        compile_model(options, Silent())
        return Model.load(options.target, verify=False)


class VeltairBackend(Backend):  # type: ignore[misc] # onnx is untyped
    """ONNX's backend interface."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> VeltairRep:  # noqa: ANN401
        """Checks a model and makes what runs it.

        Raises:
            InputError: the device is none that we have.
        """
        if not cls.supports_device(device):
            raise InputError(f"device {device}: Veltair runs on CPU")
        onnx.checker.check_model(model)
        return VeltairRep(model)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,  # noqa: ANN401 (onnx's)
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,  # noqa: ANN401
    ) -> tuple[Array, ...]:
        """Runs one operator; `outputs_info` has the type and shape of each of its outputs.

        Raises:
            InputError: the types of the outputs aren't given.
        """
        if outputs_info is None:
            raise InputError(f"{node.op_type}: give outputs_info, type and shape of each output")
        names = [name for name in node.input if name]
        arrays = _arrays(inputs, names)
        read = [_value(n, a.dtype, a.shape) for n, a in zip(names, arrays, strict=True)]
        written = [_value(n, *info) for n, info in zip(node.output, outputs_info, strict=True)]
        opset = kwargs.get("opset_version", onnx.defs.onnx_opset_version())
        model = helper.make_model(
            helper.make_graph([node], "node", read, written),
            opset_imports=[helper.make_opsetid("", opset)],
        )
        return cls.prepare(model, device).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether it is the CPU."""
        return device.split(":", maxsplit=1)[0] == "CPU"


def _value(name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape)


def _arrays(inputs: Any, names: Sequence[str]) -> list[Array]:  # noqa: ANN401 (onnx's)
    given = inputs if isinstance(inputs, (list, tuple)) else [inputs]
    if len(given) != len(names):
        raise InputError(f"{len(given)} inputs given; the model takes {', '.join(names) or 'none'}")
    for name, value in zip(names, given, strict=True):
        if not isinstance(value, (np.ndarray, np.generic)):
            raise InputError(f"input '{name}' is a {type(value).__name__}; give a NumPy array")
    return [np.asarray(value) for value in given]


prepare = VeltairBackend.prepare
run_node = VeltairBackend.run_node
run_model = VeltairBackend.run_model
supports_device = VeltairBackend.supports_device
is_compatible = VeltairBackend.is_compatible
