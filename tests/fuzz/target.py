"""What is fuzzed: the front end, on one file. Anything but an error of ours is a finding."""

from __future__ import annotations

import tempfile
from pathlib import Path

from veltair.compiler.front import Source, read_graph
from veltair.runtime.errors import VeltairError

_LANES = 8


def read(data: bytes) -> str:
    """Reads a model as `veltair compile` does, and returns what is said of it, or nothing.

    Raises:
        Exception: anything that isn't a `VeltairError`.
    """
    with tempfile.TemporaryDirectory(prefix="veltair-fuzz-") as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(data)
        try:
            read_graph(Source(path=path, shapes={}, lanes=_LANES))
        except VeltairError as error:
            return str(error)
    return ""
