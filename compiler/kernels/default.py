"""A schedule for any operator that has no expert kernel."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import s_tir
from tvm.sym import Analyzer
from tvm.tirx import PrimFunc

from veltair.compiler.kernels.spec import Kernel, TirSpec
from veltair.compiler.kernels.tiling import divisors
from veltair.runtime.manifest import LANES

# Attribute of a function whose sums may be taken in any order; its loops say nothing about it.
REASSOCIATE = "veltair.reassociate"

# Tasks that a stage is cut into where its size allows: fusing more loops would only add arithmetic.
_TASKS = 64
# Stages with less work than this run on one core: a launch would cost more.
_MIN_PARALLEL_WORK = 1 << 12
REFUSALS = (RuntimeError, ValueError, TypeError)  # what TVM raises for a step that does not apply

Schedule = Any
Block = Any
Loop = Any
Statement = Any


def default_schedule(func: PrimFunc, lanes: int) -> PrimFunc:
    """Inlines and parallelises a legalised PrimFunc as far as that is safe.

    Element-wise stages are inlined into their only reader, then the outer spatial loops of each
    remaining stage are fused, as many as make enough tasks, and run in parallel; the innermost
    loop is vectorised where it is of whole vectors, and left to LLVM where it is not. A step that
    TVM refuses is left out: the result is at worst `func` itself.

    Args:
        func: a PrimFunc with one block a stage, as Relax's LegalizeOps makes them.
        lanes: float32 lanes of a vector.

    Returns:
        The scheduled PrimFunc, with the same signature and result.
    """
    try:
        schedule = s_tir.Schedule(module_of(func), error_render_level="none")
        names = [schedule.get(block).name_hint for block in stages(schedule)]
    except REFUSALS:
        return func  # not made of blocks: there is nothing to schedule
    for name in names:
        schedule = _try(schedule, name, _inline)
    for block in stages(schedule):
        if _volume(schedule, block) >= _MIN_PARALLEL_WORK:
            parallelise(schedule, block, _TASKS)
            vectorise(schedule, block, lanes)
    return schedule.mod["main"].with_attr(REASSOCIATE, True)


def module_of(func: PrimFunc) -> Any:  # noqa: ANN401 (tvm.IRModule)
    """A module of a copy of a function, `main`, to schedule.

    A whole copy: TVM's schedules change a body that they share with another function in place.
    """
    copy = tvm.ir.load_json(tvm.ir.save_json(func))
    return tvm.IRModule({"main": copy.with_attr("global_symbol", "main")})


def tir_spec(func: PrimFunc, name: str) -> TirSpec:
    """The spec of a function of float32, or other, dense buffers of which the last is written."""
    func = func.without_attr("global_symbol")
    names = " ".join(block.name_hint for block in _blocks(func))
    text = f"{tvm_ffi.structural_hash(func):x} {names}"
    return TirSpec(name=name, digest=hashlib.sha256(text.encode()).hexdigest()[:12], func=func)


def buffers_of(func: PrimFunc) -> list[Any]:
    """The buffers that a function takes, in order."""
    return list(func.params)


def outputs_of(func: PrimFunc) -> int:
    """How many of them it writes."""
    written = {region.source for block in _blocks(func) for region in block.writes}
    return sum(buffer in written for buffer in buffers_of(func))


def has_stages(func: PrimFunc) -> bool:
    """Whether it is made of stages that can be scheduled, which say what they write."""
    try:
        found = stages(s_tir.Schedule(module_of(func), error_render_level="none"))
    except REFUSALS:
        return False
    return bool(found) and outputs_of(func) > 0


def has_reductions(func: PrimFunc) -> bool:
    """Whether a stage takes sums, or maxima."""
    return any(block.init is not None for block in _blocks(func))


def has_steps(func: PrimFunc) -> bool:
    """Whether each of its loops runs at least once; not where a tensor has no elements."""
    loops = [node for node in _statements(func.body) if isinstance(node, tvm.tirx.For)]
    return not any(isinstance(n.extent, tvm.tirx.IntImm) and int(n.extent) == 0 for n in loops)


def build_default(spec: TirSpec, isa: str) -> Kernel:
    """The kernel of the schedule by rule."""
    func = default_schedule(spec.func, LANES[isa])
    return Kernel(
        func=func,
        variant_id=f"{spec.name}_default",
        algorithm="default",
        parallel_extent=parallel_extent(func),
        tile_bytes=task_bytes(func),
    )


def parallel_extent(func: PrimFunc) -> int:
    """The largest extent of any parallel loop of a PrimFunc; 1 where there is none."""
    extents = [1]
    for node in _statements(func.body):
        if isinstance(node, tvm.tirx.For) and node.kind == tvm.tirx.ForKind.PARALLEL:
            extents.append(int(node.extent))
    return max(extents)


def task_bytes(func: PrimFunc) -> int:
    """Bytes that one iteration of the parallel loops reads and writes; of all without one.

    An element counts once, however often it is used.
    """
    analyzer = Analyzer()
    extents: dict[Any, list[int]] = {}
    for node in _statements(func.body):
        if isinstance(node, tvm.tirx.For):
            single = node.kind == tvm.tirx.ForKind.PARALLEL
            analyzer.bind(node.loop_var, tvm.ir.Range(0, 1 if single else node.extent))
        elif isinstance(node, s_tir.SBlockRealize):
            for axis, value in zip(node.block.iter_vars, node.iter_values, strict=True):
                analyzer.bind(axis.var, value)
            for region in (*node.block.reads, *node.block.writes):
                touched = [_most(analyzer, r) for r in region.region]
                known = extents.setdefault(region.source, touched)
                extents[region.source] = [max(a, b) for a, b in zip(known, touched, strict=True)]
    total = 0
    for buffer, touched in extents.items():
        whole = [int(size) for size in buffer.shape]
        elements = math.prod(min(a, b) for a, b in zip(touched, whole, strict=True))
        total += elements * np.dtype(str(buffer.dtype)).itemsize
    return total


def _most(analyzer: Any, region: Any) -> int:  # noqa: ANN401 (of TVM)
    """Extent of what a range covers, over all values of the variables in it."""
    low = analyzer.const_int_bound(region.min).min_value
    high = analyzer.const_int_bound(region.min + region.extent - 1).max_value
    return int(high) - int(low) + 1


def _blocks(func: PrimFunc) -> list[Block]:
    nodes = _statements(func.body)
    return [node.block for node in nodes if isinstance(node, s_tir.SBlockRealize)]


def _try(schedule: Schedule, name: str, step: Callable[[Schedule, Block], None]) -> Schedule:
    """Applies a step to a copy: half of a refused step must not stay."""
    trial = schedule.copy()
    try:
        step(trial, trial.get_sblock(name))
    except REFUSALS:
        return schedule
    return trial


def stages(schedule: Schedule) -> list[Block]:
    """The blocks of a function, in order."""
    root = schedule.get_sblock("root")
    return list(schedule.get_child_blocks(root))


def _inline(schedule: Schedule, block: Block) -> None:
    """Inlines an element-wise stage into its only reader, unless that would repeat its work."""
    readers = schedule.get_consumers(block)
    if len(readers) != 1 or not _is_spatial(schedule, block):
        return
    if _volume(schedule, readers[0]) <= _volume(schedule, block):
        schedule.compute_inline(block)


def parallelise(schedule: Schedule, block: Block, tasks: int) -> None:
    """Cuts a stage's outer loops into about `tasks` parallel ones, as far as TVM allows it."""
    loops = [schedule.get(loop) for loop in schedule.get_loops(block)]
    if any(loop.kind == tvm.tirx.ForKind.PARALLEL for loop in loops):
        return  # it shares its outer loops with a stage before it
    outer = loops[:-1] or loops
    wanted, product = 0, 1
    while wanted < len(outer) and product < tasks:
        product *= int(outer[wanted].extent)
        wanted += 1
    for count in range(wanted, 0, -1):
        trial = schedule.copy()
        try:
            _cut(trial, block, count, tasks)
        except REFUSALS:
            continue
        _cut(schedule, block, count, tasks)
        return


def _cut(schedule: Schedule, block: Block, count: int, tasks: int) -> None:
    loops = schedule.get_loops(block)[:count]
    fused = schedule.fuse(*loops) if count > 1 else loops[0]
    extent = int(schedule.get(fused).extent)
    parts = min(divisors(extent), key=lambda d: abs(math.log(d / tasks)))
    if parts < extent:
        fused = schedule.split(fused, [parts, None])[0]
    schedule.parallel(fused)


def vectorise(schedule: Schedule, block: Block, lanes: int) -> bool:
    """Vectorises a stage's innermost loop where it is of whole vectors and TVM allows it."""
    loops = schedule.get_loops(block)
    if not loops or int(schedule.get(loops[-1]).extent) % lanes:
        return False
    if sum(_is_in(schedule, each, loops[-1]) for each in stages(schedule)) > 1:
        return False  # what one stage leaves to another there has room for one value
    trial = schedule.copy()
    try:
        _lanes_of_loop(trial, block, lanes)
    except REFUSALS:
        return False
    _lanes_of_loop(schedule, block, lanes)
    return True


def _is_in(schedule: Schedule, block: Block, loop: Loop) -> bool:
    around = schedule.get(loop)
    return any(schedule.get(each).same_as(around) for each in schedule.get_loops(block))


def _lanes_of_loop(schedule: Schedule, block: Block, lanes: int) -> None:
    innermost = schedule.get_loops(block)[-1]
    schedule.vectorize(schedule.split(innermost, [None, lanes])[1])


def _statements(root: Statement) -> Iterator[Statement]:
    """A statement and all statements in it, outermost first."""
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        children = [node.block] if isinstance(node, s_tir.SBlockRealize) else []
        children += list(node.seq) if isinstance(node, tvm.tirx.SeqStmt) else []
        for name in ("body", "init", "then_case", "else_case"):
            child = getattr(node, name, None)
            if isinstance(child, tvm.tirx.Stmt):
                children.append(child)
        pending.extend(reversed(children))


def _is_spatial(schedule: Schedule, block: Block) -> bool:
    axes = schedule.get(block).iter_vars
    return all(axis.iter_type == tvm.tirx.IterVar.DataPar for axis in axes)


def _volume(schedule: Schedule, block: Block) -> int:
    """Steps of a stage; 0 where a loop's extent depends on another's."""
    extents = [schedule.get(loop).extent for loop in schedule.get_loops(block)]
    if not all(isinstance(extent, tvm.tirx.IntImm) for extent in extents):
        return 0
    return math.prod(map(int, extents))
