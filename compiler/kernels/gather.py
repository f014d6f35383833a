"""Copies the rows of a table that indices name."""

from __future__ import annotations

from tvm import tirx

from veltair.compiler.kernels.choices import RowsChoice
from veltair.compiler.kernels.loops import Expr, Loops, load
from veltair.compiler.kernels.spec import GatherSpec, Kernel
from veltair.compiler.kernels.tasks import per_task, rows_of, split_index
from veltair.runtime.manifest import LANES


def choice_of(spec: GatherSpec, isa: str) -> RowsChoice:
    """Tasks by rule."""
    outer, _, width = spec.data.shape
    return RowsChoice(rows=per_task(spec.index.shape[0], outer, -(-width // LANES[isa])))


def build_gather(spec: GatherSpec, isa: str, choice: RowsChoice | None = None) -> Kernel:
    """A gather of float32 rows.

    Negative indices count from the end, as ONNX has it. One outside of the table is taken as the
    nearest row: an index comes from a client, and must not read what lies beside the table.

    Raises:
        ValueError: the choice doesn't fit the gather.
    """
    lanes = LANES[isa]
    outer, rows, width = spec.data.shape
    (count,) = spec.index.shape
    b = Loops(lanes)
    data = b.buffer("data", spec.data, aligned=False)
    index = b.buffer("index", spec.index, aligned=False)
    output = b.buffer("output", spec.output, aligned=False)
    taken = rows_of(choice or choice_of(spec, isa), count)
    extents = {"outer": outer, "part": count // taken}
    with b.loop(outer * (count // taken), "task", "parallel") as task:
        at = split_index(b, task, extents)
        with b.loop(taken, "i") as i:
            place = b.let("place", at["part"] * taken + i)
            wanted = b.let("wanted", load(index, [place]))
            row = _row(b, wanted, rows, spec.index.dtype)
            with b.loop(width // lanes, "j") as j:
                where = [at["outer"], place, j * lanes]
                b.store(output, where, load(data, [at["outer"], row, j * lanes], lanes))
            with b.loop(width % lanes, "rest") as j:
                column = j + width // lanes * lanes
                value = load(data, [at["outer"], row, column])
                b.store(output, [at["outer"], place, column], value)
    return Kernel(
        func=b.function([data, index, output]),
        variant_id=f"gather_w{width}_r{taken}_p{outer * (count // taken)}",
        algorithm="gather",
        parallel_extent=outer * (count // taken),
        tile_bytes=8 * width * taken,
    )


def _row(b: Loops, wanted: Expr, rows: int, dtype: str) -> Expr:
    """The row of an index, always inside of the table."""
    zero, last = tirx.const(0, dtype), tirx.const(rows - 1, dtype)
    positive = tirx.Select(wanted < zero, wanted + tirx.const(rows, dtype), wanted)
    inside = tirx.Max(tirx.Min(positive, last), zero)
    return b.let("row", tirx.Cast("int32", inside))
