"""The process that measures candidates: `python -m veltair.compiler.search.child`.

It reads works from its input and answers on its output, a line each. A kernel that crashes or hangs
takes this process with it and nothing else, so it holds nothing that matters.

A layer's weights are cold when a model comes to it: the layers before have used the caches since.
So each call reads another copy of them, from a pool that is larger than the cache.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from veltair.compiler.search.dependents import depend_on
from veltair.compiler.search.protocol import Answer, Candidate, Placed, Work
from veltair.runtime import _native
from veltair.runtime.errors import VeltairError
from veltair.runtime.huge_pages import anonymous
from veltair.runtime.manifest import ALIGNMENT_BYTES, compact_strides
from veltair.runtime.model import dlpack_type, ffi_library

_INPUT, _OUTPUT = 0, 1  # of `enum class Storage`
_POOL_BYTES = 64 << 20
_FEWEST_CALLS, _MOST_CALLS = 5, 200
_SMALLEST_FILE = b"\0" * ALIGNMENT_BYTES


@dataclass(frozen=True, kw_only=True)
class _Buffer:
    """Memory of one storage, and where a view lies in it."""

    memory: NDArray[np.uint8]
    argument: _native.Argument
    dtype: str = "float32"

    def view(self) -> NDArray[Any]:
        """The elements of the view."""
        _, _, offset, _, shape, strides = self.argument
        dtype = np.dtype(self.dtype)
        size = self.memory[offset:].size // dtype.itemsize * dtype.itemsize
        flat = self.memory[offset : offset + size].view(dtype)
        return np.lib.stride_tricks.as_strided(flat, shape, [dtype.itemsize * s for s in strides])


def main() -> None:
    """Measures works until the input ends."""
    depend_on(os.getppid())
    cpus = sorted(os.sched_getaffinity(0))
    gang = _native.Gang(cpus, restore_affinity=True)
    pool = _Pool()
    for line in sys.stdin.buffer:
        work = msgspec.json.decode(line, type=Work)
        for index, candidate in enumerate(work.candidates):
            _answer(Answer(index=index, begun=True))
            _answer(_measured(work, index, candidate, gang, pool))
        _answer(Answer(index=-1))


def _answer(answer: Answer) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


def _measured(
    work: Work, index: int, candidate: Candidate, gang: _native.Gang, pool: _Pool
) -> Answer:
    try:
        layer = _Layer(work, candidate, pool)
        layer.check(gang, candidate.computed, list(range(max(work.core_counts))))
        times = {
            count: layer.times_ns(gang, list(range(count)), work.budget_ns)
            for count in work.core_counts
        }
    except (VeltairError, OSError, ValueError) as error:
        return Answer(index=index, error=str(error) or type(error).__name__)
    return Answer(index=index, ns=times)


class _Pool:
    """Memory that stands for a model's other weights: each call reads another part of it."""

    def __init__(self) -> None:
        self._memory = _memory(0)
        self._next = 0

    def at_least(self, size: int) -> NDArray[np.uint8]:
        """The pool, larger than the cache and than any one weight."""
        wanted = max(_POOL_BYTES, 2 * size)
        if self._memory.size < wanted:
            self._memory = _memory(wanted)
            values = np.random.default_rng(0).random(1 << 16, dtype=np.float32)
            whole = self._memory.view(np.float32)
            for begin in range(0, whole.size, values.size):
                part = whole[begin : begin + values.size]
                part[:] = values[: part.size]
        return self._memory

    def offset(self, size: int) -> int:
        """Where the next call's weight begins."""
        if self._next + size > self._memory.size:
            self._next = 0
        begin = self._next
        self._next += -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        return begin


class _Layer:
    """One candidate's buffers and calls."""

    def __init__(self, work: Work, candidate: Candidate, pool: _Pool) -> None:
        self._work, self._candidate, self._pool = work, candidate, pool
        self._buffers = [
            _placed(work.tensors[argument], index)
            if isinstance(argument, int)
            else _flat(np.load(argument), index)
            for index, argument in enumerate(candidate.arguments)
        ]
        has_weight = candidate.weight >= 0
        self._weight_bytes = self._buffers[candidate.weight].memory.nbytes if has_weight else 0
        self._outputs = [_placed(result, i, _OUTPUT) for i, result in enumerate(work.results)]

    def check(self, gang: _native.Gang, paths: Sequence[str], cores: list[int]) -> None:
        """Runs once on the example's weight and saves the outputs."""
        written = self._written()
        for memory in written:
            memory[:] = 0
        instance = _native.Instance(self._model(0), gang)
        instance.run(self._inputs(), written, cores, (0, 1), [])
        for path, output in zip(paths, self._outputs, strict=True):
            np.save(path, output.view())

    def times_ns(self, gang: _native.Gang, cores: list[int], budget_ns: int) -> tuple[int, ...]:
        """Times of as many calls as the budget has room for, each with a weight of its own."""
        once = _native.Instance(self._model(0), gang)
        first_ns = np.empty((2, 1), np.int64)
        once.time_layers(self._inputs(), self._written(), cores, [], first_ns)
        calls = int(np.clip(budget_ns // max(int(first_ns.min()), 1), _FEWEST_CALLS, _MOST_CALLS))
        instance = _native.Instance(self._model(calls), gang)
        call_ns = np.empty((1, calls), np.int64)
        instance.time_layers(self._inputs(), self._written(), cores, [], call_ns)
        return tuple(int(ns) for ns in call_ns[0])

    def _inputs(self) -> list[NDArray[Any]]:
        return [*(b.memory for b in self._buffers), self._pool.at_least(self._weight_bytes)]

    def _written(self) -> list[NDArray[Any]]:
        return [output.memory for output in self._outputs]

    def _model(self, calls: int) -> _native.Model:
        """A model of one layer with the example's weight, or of `calls` with the pool's."""
        inputs = self._inputs()
        arguments = [b.argument for b in (*self._buffers, *self._outputs)]
        each = [self._with_weight(arguments) for _ in range(calls)] or [arguments]
        library = Path(self._work.library)
        empty = library.with_suffix(".weights")
        if not empty.exists():
            empty.write_bytes(_SMALLEST_FILE)
        return _native.Model(
            ffi_path=str(ffi_library()),
            kernels_path=str(library),
            weights_path=str(empty),
            weights_bytes=len(_SMALLEST_FILE),
            arena_bytes=0,
            bordered_bytes=0,
            input_bytes=[memory.nbytes for memory in inputs],
            output_bytes=[memory.nbytes for memory in self._written()],
            layers=[
                (str(i), [(self._candidate.symbol, self._candidate.extent, of_call)], None, [])
                for i, of_call in enumerate(each)
            ],
        )

    def _with_weight(self, arguments: list[_native.Argument]) -> list[_native.Argument]:
        """The arguments with the pool's next weight in place of the layer's, if it has one."""
        place = self._candidate.weight
        if place < 0:
            return arguments
        storage, _, _, dtype, shape, strides = arguments[place]
        offset = self._pool.offset(self._weight_bytes)
        weight = (storage, len(self._buffers), offset, dtype, shape, strides)
        return [*arguments[:place], weight, *arguments[place + 1 :]]


def _memory(size: int) -> NDArray[np.uint8]:
    """Zeroed memory in huge pages where there are any, as an artifact's weights and arena are."""
    return np.frombuffer(anonymous(max(size, 1)), np.uint8)[:size]


def _placed(placed: Placed, index: int, storage: int = _INPUT) -> _Buffer:
    last = sum((n - 1) * s for n, s in zip(placed.shape, placed.strides, strict=True))
    size = placed.offset_bytes + np.dtype(placed.dtype).itemsize * (last + 1)
    dtype = dlpack_type(placed.dtype)
    buffer = _Buffer(
        memory=_memory(-(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES),
        argument=(storage, index, placed.offset_bytes, dtype, placed.shape, placed.strides),
        dtype=placed.dtype,
    )
    if placed.path:
        buffer.view()[...] = np.load(placed.path)
    return buffer


def _flat(values: NDArray[Any], index: int) -> _Buffer:
    memory = _memory(-(-values.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES)
    memory[: values.nbytes] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    shape = tuple(values.shape)
    place = (_INPUT, index, 0)
    argument = (*place, dlpack_type("float32"), shape, compact_strides(shape))
    return _Buffer(memory=memory, argument=argument)


if __name__ == "__main__":
    main()
