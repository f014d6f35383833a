"""Refuses a model that this machine has no memory for, before the machine suffers from it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from veltair.compiler.graph import Graph
from veltair.compiler.passes.plan import Plan
from veltair.runtime.errors import VeltairError
from veltair.runtime.machine import available_memory_bytes

_GIB = 1 << 30
# How the libraries below say that memory could not be had: C++'s own, and ONNX Runtime.
_REFUSALS = ("bad_alloc", "bad allocation", "Failed to allocate memory")


def check_memory(path: Path, graph: Graph, plan: Plan) -> None:
    """Holds what a model needs at the least against what the machine has left.

    Args:
        path: the model's, for the message.
        graph: planned.
        plan: of its activations.

    Raises:
        VeltairError: it can't fit.
    """
    weights = sum(t.data.nbytes for t in graph.tensors.values() if t.data is not None)
    ends = _bytes_of(graph, (*graph.inputs, *graph.outputs))
    available = available_memory_bytes()
    activations = plan.sizes.total_bytes
    if weights + activations + ends <= available:
        return
    raise VeltairError(
        f"{path}: needs {weights / _GIB:.1f} GiB for its weights, "
        f"{activations / _GIB:.1f} GiB for its activations and {ends / _GIB:.1f} GiB for "
        f"inputs and outputs at least, and this machine has {available / _GIB:.1f} GiB of memory "
        "available; end what else uses memory, compile where there is more, or give inputs a "
        "smaller --shape"
    )


def _bytes_of(graph: Graph, names: Sequence[str]) -> int:
    tensors = (graph.tensors[name] for name in names)
    return sum(math.prod(t.shape) * np.dtype(t.dtype).itemsize for t in tensors)


@contextlib.contextmanager
def explained_shortage(path: Path) -> Iterator[None]:
    """Turns a failed allocation, NumPy's or a library's, into an error for a person.

    Raises:
        VeltairError: there was one.
    """
    try:
        yield
    except VeltairError:
        raise
    except Exception as error:  # TVM's and ONNX Runtime's share no other base
        text = str(error)
        if not isinstance(error, MemoryError) and not any(each in text for each in _REFUSALS):
            raise
        available = available_memory_bytes()
        raise VeltairError(
            f"{path}: out of memory ({text.splitlines()[0] if text else 'allocation failed'}) with "
            f"{available / _GIB:.1f} GiB available; end what else uses memory, give fewer --jobs, "
            "or compile where there is more"
        ) from error
