"""Layer normalisation over the last dimension."""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx

from veltair.compiler.kernels import vector_math as vm
from veltair.compiler.kernels.choices import RowsChoice
from veltair.compiler.kernels.epilogue import pad_channels
from veltair.compiler.kernels.loops import Expr, Loops, fold_lanes, load, splat
from veltair.compiler.kernels.spec import Kernel, LayerNormSpec
from veltair.compiler.kernels.tasks import per_task, rows_of
from veltair.runtime.manifest import LANES

_OPS_PER_VECTOR = 8  # of all three passes
_CHAINS = 4  # partial sums that are added to in turn, for the addition's latency


def choice_of(spec: LayerNormSpec, isa: str) -> RowsChoice:
    """Tasks by rule."""
    rows, columns = spec.data.shape
    return RowsChoice(rows=per_task(rows, 1, -(-columns // LANES[isa]) * _OPS_PER_VECTOR))


def build_layer_norm(spec: LayerNormSpec, isa: str, choice: RowsChoice | None = None) -> Kernel:
    """A normalisation in three passes a row: mean, deviation, result.

    The second pass sums squares of differences from the mean: a sum of squares less the mean's
    square would lose what a large mean leaves of them.

    Raises:
        ValueError: the choice doesn't fit the normalisation.
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
        variant_id=f"layer_norm_r{taken}_p{rows // taken}",
        algorithm="layer_norm",
        parallel_extent=rows // taken,
        tile_bytes=8 * (taken + 1) * columns,
        pack_channel=pad_channels(columns),
    )


class _Emitter:
    """Emits one normalisation."""

    def __init__(self, spec: LayerNormSpec, lanes: int) -> None:
        self.b = b = Loops(lanes)
        self._lanes, self._columns, self._epsilon = lanes, spec.data.shape[1], spec.epsilon
        self._data = b.buffer("data", spec.data, aligned=False)
        self._scale = b.flat("scale", self._columns)
        self._bias = b.flat("bias", self._columns) if spec.has_bias else None
        self._output = b.buffer("output", spec.output, aligned=False)

    def function(self) -> tirx.PrimFunc:
        """The PrimFunc."""
        constants = [self._scale] if self._bias is None else [self._scale, self._bias]
        return self.b.function([self._data, *constants, self._output])

    def row(self, row: Expr) -> None:
        """One row."""
        b = self.b
        part = splat(1.0 / self._columns, 1)
        mean = b.let("mean", self._sum(lambda at, n: load(self._data, [row, at], n)) * part)

        def square(at: Expr, lanes: int) -> Expr:
            difference = b.let("d", load(self._data, [row, at], lanes) - splat(mean, lanes))
            return difference * difference

        variance = b.let("variance", self._sum(square) * part + splat(self._epsilon, 1))
        factor = b.let("factor", splat(1.0, 1) / vm.sqrt(variance))

        def store(at: Expr, lanes: int) -> None:
            difference = load(self._data, [row, at], lanes) - splat(mean, lanes)
            value = difference * (splat(factor, lanes) * load(self._scale, [at], lanes))
            if self._bias is not None:
                value = value + load(self._bias, [at], lanes)
            b.store(self._output, [row, at], value)

        with b.loop(self._columns // self._lanes, "j") as j:
            store(b.let("at", j * self._lanes), self._lanes)
        for at, lanes in self._tail():
            store(at, lanes)

    def _tail(self) -> list[tuple[Expr, int]]:
        """Start and lanes of what follows the whole vectors, in powers of two."""
        start, found = self._columns // self._lanes * self._lanes, []
        while start < self._columns:
            lanes = 1 << ((self._columns - start).bit_length() - 1)
            found.append((tirx.const(start, "int32"), lanes))
            start += lanes
        return found

    def _sum(self, value: Callable[[Expr, int], Expr]) -> Expr:
        """The sum of a value over the row."""
        b, lanes = self.b, self._lanes
        vectors = self._columns // lanes
        sums = [b.register("sum", lanes) for _ in range(min(_CHAINS, max(vectors, 1)))]
        rest = b.register("rest", 1)
        b.set(rest, splat(0.0, 1))
        for register in sums:
            b.set(register, splat(0.0, lanes))
        with b.loop(vectors // len(sums), "j") as j:
            for i, register in enumerate(sums):
                at = b.let("at", (j * len(sums) + i) * lanes)
                b.set(register, register.get() + value(at, lanes))
        for i in range(vectors % len(sums)):
            at = tirx.const((vectors - vectors % len(sums) + i) * lanes, "int32")
            b.set(sums[i], sums[i].get() + value(at, lanes))
        for at, width in self._tail():
            b.set(rest, rest.get() + fold_lanes(b, vm.add, value(at, width)))
        total = sums[0].get()
        for register in sums[1:]:
            total = total + register.get()
        b.set(rest, rest.get() + fold_lanes(b, vm.add, total))
        return rest.get()
