"""How a kernel's outer loop is cut into tasks and how a task's index is read."""

from __future__ import annotations

from tvm import tirx

from veltair.compiler.kernels.choices import RowsChoice, require
from veltair.compiler.kernels.loops import Expr, Loops
from veltair.compiler.kernels.tiling import divisors

# Tasks a layer is cut into where its size allows: cores join and leave a running kernel between two
# of them.
_TASKS = 32
# Least work of a task, in vector operations: handing one out costs some tens of nanoseconds.
_MIN_TASK_OPS = 1 << 11


def per_task(units: int, others: int, unit_ops: int, tasks: int = _TASKS) -> int:
    """How many units of one dimension a task takes.

    Few enough to leave `tasks` tasks, unless those would get too small.

    Args:
        units: extent of the dimension; the result divides it.
        others: product of the task index's other extents.
        unit_ops: vector operations of one unit.
        tasks: how many are enough.
    """
    chosen = 1
    for count in divisors(units):
        if others * (units // count) >= tasks or chosen * unit_ops < _MIN_TASK_OPS:
            chosen = count
    return chosen


def rows_of(choice: RowsChoice, units: int) -> int:
    """The rows of a task.

    Raises:
        ValueError: they don't divide the layer's.
    """
    rows = choice.rows
    require(rows > 0 and units % rows == 0, f"{units} rows don't divide by {rows}")
    return rows


def split_index(b: Loops, index: Expr, extents: dict[str, int]) -> dict[str, Expr]:
    """Reads a fused index; `extents` is outermost first."""
    found: dict[str, Expr] = {}
    for name in reversed(extents):
        size = extents[name]
        if size == 1:
            found[name] = tirx.const(0, "int32")
            continue
        found[name] = b.let(name, index % size)
        index = index // size
    return found
