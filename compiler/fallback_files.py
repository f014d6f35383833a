"""Writes the segments that fall back: an ONNX file each, and one file with the weights of all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from veltair.compiler.fallback import Segment
from veltair.compiler.weights import WeightStore
from veltair.runtime.manifest import Fallback

WEIGHTS = "fallback.bin"
# Smaller constants stay in the file: shapes among them, which ONNX Runtime wants to know early.
_FEWEST_BYTES = 1024


class FallbackStore:
    """Segments in order; weights that several read are stored once."""

    def __init__(self) -> None:
        """Starts empty."""
        self._models: dict[str, onnx.ModelProto] = {}  # by file
        self._weights = WeightStore()

    def add(self, segment: Segment) -> Fallback:
        """Takes a segment in, and returns what the manifest says of it."""
        name = f"fallback{len(self._models)}.onnx"
        model = onnx.ModelProto()
        model.CopyFrom(segment.model)
        constants = [self._stored(tensor) for tensor in model.graph.initializer]
        del model.graph.initializer[:]
        model.graph.initializer.extend(constants)
        self._models[name] = model
        return Fallback(
            file=name,
            inputs=segment.inputs,
            outputs=segment.outputs,
            reasons=segment.explanations,
            framed=segment.framed,
        )

    def write(self, folder: Path) -> Sequence[str]:
        """Writes the files and returns their names."""
        names = list(self._models)
        for name, model in self._models.items():
            (folder / name).write_bytes(model.SerializeToString())
        if self._weights.size_bytes:
            names.append(WEIGHTS)
            self._weights.write(folder / WEIGHTS)
        return names

    def _stored(self, tensor: onnx.TensorProto) -> onnx.TensorProto:
        """The constant as a reference into the file of weights, unless it is small."""
        if tensor.data_type == onnx.TensorProto.STRING:
            return tensor
        raw = tensor.raw_data or numpy_helper.to_array(tensor).tobytes()
        if len(raw) < _FEWEST_BYTES:
            return tensor
        place = self._weights.add(np.frombuffer(raw, np.uint8))
        reference = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        reference.data_location = onnx.TensorProto.EXTERNAL
        entries = {"location": WEIGHTS, "offset": place.offset_bytes, "length": len(raw)}
        for key, value in entries.items():
            reference.external_data.add(key=key, value=str(value))
        return reference
