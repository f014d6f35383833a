"""Softmax and log-softmax over the last dimension."""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx
from tvm.tirx import PrimFunc

from veltair.compiler.kernels import vector_math as vm
from veltair.compiler.kernels.choices import RowsChoice
from veltair.compiler.kernels.loops import Expr, Loops, Register, fold_lanes, load, splat
from veltair.compiler.kernels.spec import Kernel, SoftmaxSpec
from veltair.compiler.kernels.tasks import per_task, rows_of
from veltair.runtime.manifest import LANES

Combine = Callable[[Expr, Expr], Expr]

_LOWEST = -3.4028234663852886e38
_OPS_PER_VECTOR = 24  # of all three passes


def choice_of(spec: SoftmaxSpec, isa: str) -> RowsChoice:
    """Tasks by rule."""
    rows, columns = spec.data.shape
    return RowsChoice(rows=per_task(rows, 1, -(-columns // LANES[isa]) * _OPS_PER_VECTOR))


def build_softmax(spec: SoftmaxSpec, isa: str, choice: RowsChoice | None = None) -> Kernel:
    """A softmax in three passes a row: maximum, exponentials and their sum, scaling.

    Raises:
        ValueError: the choice doesn't fit the softmax.
    """
    lanes = LANES[isa]
    rows, columns = spec.data.shape
    taken = rows_of(choice or choice_of(spec, isa), rows)
    emitter = _Emitter(spec, lanes)
    b = emitter.b
    with b.loop(rows // taken, "task", "parallel") as task, b.loop(taken, "i") as i:
        emitter.row(b.let("row", task * taken + i))
    return Kernel(
        func=emitter.function(),
        variant_id=f"{'log_' if spec.log else ''}softmax_r{taken}_p{rows // taken}",
        algorithm="softmax",
        parallel_extent=rows // taken,
        tile_bytes=8 * taken * columns,
    )


class _Emitter:
    """Emits one softmax."""

    def __init__(self, spec: SoftmaxSpec, lanes: int) -> None:
        self.b = Loops(lanes)
        self._lanes, self._columns, self._log = lanes, spec.data.shape[1], spec.log
        self._data = self.b.buffer("data", spec.data, aligned=False)
        self._output = self.b.buffer("output", spec.output, aligned=False)

    def function(self) -> PrimFunc:
        """The PrimFunc."""
        return self.b.function([self._data, self._output])

    def row(self, row: Expr) -> None:
        """One row."""
        b = self.b
        highest = self._reduce(vm.maximum, _LOWEST, lambda at, n: load(self._data, [row, at], n))
        highest = b.let("highest", highest)

        def exponential(at: Expr, lanes: int) -> Expr:
            value = load(self._data, [row, at], lanes) - splat(highest, lanes)
            value = b.let("e", vm.exp(b, value))
            if not self._log:
                b.store(self._output, [row, at], value)
            return value

        total = b.let("total", self._reduce(lambda a, c: a + c, 0.0, exponential))
        if self._log:
            shift = b.let("shift", highest + vm.log(b, total))
            self._each(
                lambda at, n: self._put(row, at, load(self._data, [row, at], n) - splat(shift, n))
            )
            return
        scale = b.let("scale", splat(1.0, 1) / total)
        self._each(
            lambda at, n: self._put(row, at, load(self._output, [row, at], n) * splat(scale, n))
        )

    def _put(self, row: Expr, at: Expr, value: Expr) -> None:
        self.b.store(self._output, [row, at], value)

    def _each(self, body: Callable[[Expr, int], None]) -> None:
        """Calls `body` for a row's vectors, then for its tail in powers of two."""
        full = self._columns // self._lanes
        if full:
            with self.b.loop(full, "j") as j:
                body(self.b.let("at", j * self._lanes), self._lanes)
        start = full * self._lanes
        while start < self._columns:
            lanes = 1 << ((self._columns - start).bit_length() - 1)
            body(tirx.const(start, "int32"), lanes)
            start += lanes

    def _reduce(self, combine: Combine, neutral: float, value: Callable[[Expr, int], Expr]) -> Expr:
        """Combines a row's values: a vector for the whole ones, a scalar for the tail's."""
        b = self.b
        vector = b.register("vector", self._lanes)
        scalar = b.register("scalar", 1)
        b.set(vector, splat(neutral, self._lanes))
        b.set(scalar, splat(neutral, 1))

        def body(at: Expr, lanes: int) -> None:
            self._fold(vector if lanes == self._lanes else scalar, combine, value(at, lanes), lanes)

        self._each(body)
        self._fold(scalar, combine, vector.get(), self._lanes, whole=True)
        return scalar.get()

    def _fold(
        self, into: Register, combine: Combine, value: Expr, lanes: int, *, whole: bool = False
    ) -> None:
        if lanes != self._lanes or whole:
            value = fold_lanes(self.b, combine, value)
        self.b.set(into, combine(into.get(), value))
