"""What serves a load test's queries: a Veltair server, or nothing at all."""

from __future__ import annotations

import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from veltair.runtime.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from veltair.eval.loadgen_plan import Plan
    from veltair.runtime.client import Completion, LocalClient
    from veltair.runtime.manifest import TensorSpec

_NO_TARGET_NS = 24 * 3600 * 1_000_000_000  # beyond any test


class Answer(Protocol):
    """The end of one query, as a backend reports it; `end_ns` is when it ended there."""

    tag: int
    served: bool
    end_ns: int
    output: NDArray[Any] | None

    def release(self) -> None:
        """Gives the output's memory back."""


class Backend(Protocol):
    """What serves the queries."""

    def submit(self, tag: int, sample: int, due_ns: int) -> bool:
        """Begins a query; returns False if there is no place for it now.

        Raises:
            RefusedError: it won't be served.
        """

    def wait(self, timeout_s: float) -> Sequence[Answer]:
        """Returns what has ended, after `timeout_s` at the latest."""


class _NullAnswer:
    """A query that took no time."""

    served = True

    def __init__(self, tag: int) -> None:
        self.tag = tag
        self.end_ns = time.monotonic_ns()
        self.output: NDArray[Any] | None = None

    def release(self) -> None:
        """Has nothing to give back."""


class NullBackend:
    """Answers at once: what is measured with it is the load generator itself."""

    def __init__(self) -> None:
        """Begins empty."""
        self._ended: SimpleQueue[_NullAnswer] = SimpleQueue()

    def submit(self, tag: int, sample: int, due_ns: int) -> bool:
        """Ends the query."""
        self._ended.put(_NullAnswer(tag))
        return True

    def wait(self, timeout_s: float) -> Sequence[Answer]:
        """Returns the next query."""
        try:
            return [self._ended.get(timeout=timeout_s)]
        except Empty:
            return []


class _SlotAnswer:
    """A query that ended in a slot."""

    def __init__(self, done: Completion) -> None:
        slot = done.slot
        self.tag = done.tag
        self.served = done.ok
        self.end_ns = done.end_ns
        self.output = next(iter(slot.outputs.values()), None) if done.ok else None
        self.release = slot.release


class SegmentBackend:
    """A Veltair server on this machine, through its shared segment."""

    def __init__(self, client: LocalClient, plan: Plan, samples: list[dict[str, Any]]) -> None:
        """Takes the server and the inputs, by the sample's index."""
        self._client = client
        self._model = plan.model
        # Offline, all are due at once: a late one with a target would make room for the next.
        self._patience_ns = plan.latency_ns if plan.scenario == "Server" else _NO_TARGET_NS
        self._samples = samples

    def submit(self, tag: int, sample: int, due_ns: int) -> bool:
        """Writes a sample into a slot and hands it over."""
        try:
            slot = self._client.allocate(self._model)
        except RefusedError as error:
            if error.reason == "queue_full":
                return False
            raise
        for name, array in self._samples[sample].items():
            np.copyto(slot.inputs[name], array)
        deadline_ns = due_ns + self._patience_ns
        self._client.submit(slot, arrival_ns=due_ns, deadline_ns=deadline_ns, tag=tag)
        return True

    def wait(self, timeout_s: float) -> Sequence[Answer]:
        """Returns the completions."""
        return [_SlotAnswer(done) for done in self._client.wait(timeout_s)]


class GoneBackend:
    """Stands for a server that has died."""

    def __init__(self, message: str) -> None:
        """Takes what to say."""
        self._message = message

    def submit(self, tag: int, sample: int, due_ns: int) -> bool:
        """Refuses."""
        raise RefusedError(self._message, "unavailable")

    def wait(self, timeout_s: float) -> Sequence[Answer]:
        """Has nothing to return."""
        time.sleep(timeout_s)
        return []


def make_samples(inputs: Sequence[TensorSpec], count: int, seed: int) -> list[dict[str, Any]]:
    """Draws inputs for a model.

    Args:
        inputs: the model's.
        count: how many.
        seed: of the generator.

    Returns:
        For each sample its arrays by name: floats from [0, 1), others 0 or 1, so that they are also
        valid as indices into any table of two rows, as BERT's of segments.
    """
    generator = np.random.default_rng(seed)

    def draw(spec: TensorSpec) -> NDArray[Any]:
        if spec.dtype == "bfloat16":
            bits = generator.random(spec.shape, np.float32).view(np.uint32) >> 16
            return bits.astype(np.uint16)
        if spec.dtype.startswith("float"):
            return generator.random(spec.shape, np.float32).astype(spec.dtype)
        return generator.integers(0, 2, spec.shape).astype(spec.dtype)

    return [{spec.name: draw(spec) for spec in inputs} for _ in range(count)]
