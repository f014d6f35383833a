"""The models that a server's worker serves: loaded, warm, and called with raw tensors.

A request's body is the model's inputs one after the other, little-endian, without anything between
them; an answer's body is its outputs in the same way.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from engines import Session, draw_inputs, load
from numpy.typing import NDArray

_WARM_RUNS = 3
_held: list[int] = []  # the lock on this process's place


class Model:
    """A model in a worker."""

    def __init__(self, facts: Mapping[str, Any], session: Session) -> None:
        """Takes an entry of the plan's models, and it loaded; warms it up."""
        self.dtypes: dict[str, str] = facts["dtypes"]
        self.shapes = {name: tuple(shape) for name, shape in facts["shapes"].items()}
        self._session = session
        inputs = draw_inputs(self.shapes, self.dtypes)
        for _ in range(_WARM_RUNS):
            session.infer(inputs)

    def infer(self, inputs: Mapping[str, bytes | memoryview]) -> list[NDArray[Any]]:
        """Runs the model on tensors as they came."""
        arrays = {
            name: np.frombuffer(raw, self.dtypes[name]).reshape(self.shapes[name])
            for name, raw in inputs.items()
        }
        outputs: list[NDArray[Any]] = self._session.infer(arrays)
        return outputs

    def answer(self, body: bytes) -> bytes:
        """Returns the body of an answer to a request's body."""
        inputs, begin = {}, 0
        for name, shape in self.shapes.items():
            end = begin + int(np.prod(shape)) * np.dtype(self.dtypes[name]).itemsize
            inputs[name] = memoryview(body)[begin:end]
            begin = end
        return b"".join(np.ascontiguousarray(output).data for output in self.infer(inputs))


class Worker:
    """What a process of a server loads, by the plan that the harness wrote.

    Attributes:
        models: by name.
    """

    def __init__(self, plan_file: str, only: str = "") -> None:
        """Binds the calling thread to processors of its own and loads all models, or one."""
        plan = json.loads(Path(plan_file).read_bytes())
        bind(Path(plan_file).parent, plan["places"])
        self.models = {
            name: Model(
                facts,
                load(
                    plan["engine"],
                    facts["onnx"],
                    {key: tuple(shape) for key, shape in facts["shapes"].items()},
                    plan["threads"],
                ),
            )
            for name, facts in plan["models"].items()
            if only in ("", name)
        }


def bind(folder: Path, places: list[list[int]]) -> None:
    """Binds the calling thread, and threads that it starts, to the first place that is free.

    A lock on a file holds the place until the process ends: one that is started in the stead of
    one that died gets its place.
    """
    if _held:
        return
    for index, cpus in enumerate(places):
        file = os.open(folder / f"place{index}", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            continue
        _held.append(file)
        os.sched_setaffinity(0, cpus)
        return
