"""Candidates of layers that are neither a convolution nor a product with a constant.

They touch little per byte that they move, so estimates say little: the candidates are few, and what
is drawn first is what shares the work best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from veltair.compiler.kernels import (
    default,
    gather,
    layer_norm,
    lrn,
    pool2d,
    relayout,
    sketch,
    softmax,
)
from veltair.compiler.kernels.choices import (
    Choice,
    DefaultChoice,
    PoolChoice,
    RowsChoice,
    SketchChoice,
    require,
)
from veltair.compiler.kernels.spec import (
    GatherSpec,
    Kernel,
    LayerNormSpec,
    LrnSpec,
    PoolSpec,
    RelayoutSpec,
    SoftmaxSpec,
    TirSpec,
)
from veltair.compiler.kernels.tasks import rows_of
from veltair.compiler.kernels.tiling import divisors, spans
from veltair.runtime.manifest import LANES

RowsSpec = LrnSpec | SoftmaxSpec | LayerNormSpec | GatherSpec | RelayoutSpec

_TASKS = (8, 16, 32, 64, 128, 256)
_UNROLLS = (0, 16, 64)
_SAMPLES = 8  # of a sketch
# Cycles of a step that is not part of a full vector, by those of one that is.
_SCALAR_COST = 4.0


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """A kernel that takes row by row."""

    build: Callable[[Any, str, RowsChoice | None], Kernel]
    choice_of: Callable[[Any, str], RowsChoice]


_ROWS: dict[type, _Rows] = {
    LrnSpec: _Rows(build=lrn.build_lrn, choice_of=lrn.choice_of),
    SoftmaxSpec: _Rows(build=softmax.build_softmax, choice_of=softmax.choice_of),
    LayerNormSpec: _Rows(build=layer_norm.build_layer_norm, choice_of=layer_norm.choice_of),
    GatherSpec: _Rows(build=gather.build_gather, choice_of=gather.choice_of),
    RelayoutSpec: _Rows(build=relayout.build_relayout, choice_of=relayout.choice_of),
}


def build_rows(spec: RowsSpec, isa: str, choice: Choice) -> Kernel:
    """The kernel of a choice.

    Raises:
        ValueError: the choice doesn't fit the layer.
    """
    require(isinstance(choice, RowsChoice), "it is cut by rows alone")
    assert isinstance(choice, RowsChoice)
    return _ROWS[type(spec)].build(spec, isa, choice)


def default_rows(spec: RowsSpec, isa: str) -> RowsChoice:
    """The tasks by rule."""
    return _ROWS[type(spec)].choice_of(spec, isa)


def check_rows(spec: RowsSpec, choice: Choice) -> None:
    """Refuses a choice that doesn't fit.

    Raises:
        ValueError: it doesn't.
    """
    require(isinstance(choice, RowsChoice), "it is cut by rows alone")
    assert isinstance(choice, RowsChoice)
    rows_of(choice, _units(spec)[0])


def _units(spec: RowsSpec) -> tuple[int, int]:
    """Rows that can be divided, and how often there are as many: samples and channel blocks."""
    if isinstance(spec, (SoftmaxSpec, LayerNormSpec)):
        return spec.data.shape[0], 1
    if isinstance(spec, GatherSpec):
        return spec.index.shape[0], spec.data.shape[0]
    n, blocks, height = spec.output.shape[:3]
    if isinstance(spec, LrnSpec):
        return height, n
    packed = spec.output if len(spec.output.shape) == 5 else spec.data
    lanes = packed.shape[4] if len(packed.shape) == 5 else 1
    return height, n * (blocks if lanes > 1 else math.ceil(spec.channels / max(LANES.values())))


def rows_candidates(spec: RowsSpec) -> Iterator[tuple[RowsChoice, float, int]]:
    """Each choice, its steps on one core and its tasks."""
    rows, others = _units(spec)
    for taken in divisors(rows):
        yield RowsChoice(rows=taken), math.prod(spec.output.shape), others * (rows // taken)


def build_pool(spec: PoolSpec, isa: str, choice: Choice) -> Kernel:
    """The kernel of a choice.

    Raises:
        ValueError: the choice doesn't fit the pooling.
    """
    check_pool(spec, isa, choice)
    assert isinstance(choice, PoolChoice)
    return pool2d.build_pool2d(spec, isa, choice)


def check_pool(spec: PoolSpec, isa: str, choice: Choice) -> None:
    """Refuses a choice that doesn't fit.

    Raises:
        ValueError: it doesn't.
    """
    require(isinstance(choice, PoolChoice), "it is no pooling")
    assert isinstance(choice, PoolChoice)
    pool2d.check(spec, isa, choice)


def pool_candidates(spec: PoolSpec, isa: str) -> Iterator[tuple[PoolChoice, float, int]]:
    """Each choice, its cycles on one core and its tasks."""
    n, blocks, height, width, _ = spec.output.shape
    taps = math.prod(spec.kernel)
    for pixels in range(1, min(width, pool2d.MOST_PIXELS[isa]) + 1):
        counts = spans(width, pixels)
        if counts[0].size != pixels:
            continue  # cut evenly it is the same as a smaller one
        # Two loads a cycle; few maxima or sums wait for each other.
        cycles = sum(max(s.size * taps / 2, 4 * taps) * s.count for s in counts)
        for rows in divisors(height):
            choice = PoolChoice(pixels=pixels, rows=rows)
            yield choice, cycles * height * blocks * n, n * blocks * (height // rows)


def can_sketch(spec: TirSpec) -> bool:
    """Whether there is something to choose, and NumPy has the types to measure it on.

    A function that is a program and not made of stages, as a running sum is, is what it is.
    """
    known = all(str(buffer.dtype) != "bfloat16" for buffer in default.buffers_of(spec.func))
    return known and default.has_stages(spec.func)


def build_tir(spec: TirSpec, isa: str, choice: Choice) -> Kernel:
    """The kernel of a choice.

    Raises:
        ValueError: the choice doesn't fit the operator.
    """
    if isinstance(choice, DefaultChoice):
        return default.build_default(spec, isa)
    require(isinstance(choice, SketchChoice), "it has no expert kernel")
    assert isinstance(choice, SketchChoice)
    return sketch.build_sketch(spec, isa, choice)


def check_tir(spec: TirSpec, choice: Choice) -> None:
    """Refuses a choice that doesn't fit.

    Raises:
        ValueError: it doesn't.
    """
    if isinstance(choice, DefaultChoice):
        return
    require(isinstance(choice, SketchChoice), "it has no expert kernel")
    assert isinstance(choice, SketchChoice)
    sketch.check(spec, choice)


def tir_candidates(spec: TirSpec, isa: str) -> Iterator[tuple[Choice, float, int]]:
    """Each choice, its cycles on one core and its tasks: the schedule by rule, then samples."""
    written = default.buffers_of(spec.func)[-default.outputs_of(spec.func) :]
    steps = sum(math.prod(int(size) for size in buffer.shape) for buffer in written)
    yield DefaultChoice(), steps / LANES[isa], _TASKS[-1]
    for found in sketch.sketches(spec, isa, _SAMPLES):
        scalar = 1.0 - found.vectorised
        cycles = steps / LANES[isa] * (found.vectorised + _SCALAR_COST * scalar)
        for tasks in _TASKS:
            for unroll in _UNROLLS:
                choice = SketchChoice(trace=found.trace, tasks=tasks, unroll=unroll)
                yield choice, cycles, tasks
