"""A schedule for any operator that has no expert kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import tvm
from tvm import s_tir
from tvm.tirx import PrimFunc

# Attribute of a function whose sums may be taken in any order; its loops say nothing about it.
REASSOCIATE = "veltair.reassociate"

# Innermost loops shorter than this are fused into the parallel loop.
_MIN_INNER = 8
# Stages with less work than this run on one core: a launch would cost more.
_MIN_PARALLEL_WORK = 1 << 12
_REFUSALS = (RuntimeError, ValueError, TypeError)  # what TVM raises for a step that does not apply

Schedule = Any
Block = Any
Loop = Any
Statement = Any


def default_schedule(func: PrimFunc) -> PrimFunc:
    """Inlines and parallelises a legalised PrimFunc as far as that is safe.

    Element-wise stages are inlined into their only reader, then the outer spatial loops of each
    remaining stage are fused and run in parallel; the innermost loop is left whole for LLVM to
    vectorise. A step that TVM refuses is left out: the result is at worst `func` itself.

    Args:
        func: a PrimFunc with one block a stage, as Relax's LegalizeOps makes them.

    Returns:
        The scheduled PrimFunc, with the same signature and result.
    """
    try:
        module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
        schedule = s_tir.Schedule(module, error_render_level="none")
        names = [schedule.get(block).name_hint for block in _stages(schedule)]
    except _REFUSALS:
        return func  # not made of blocks: there is nothing to schedule
    for name in names:
        schedule = _try(schedule, name, _inline)
    for block in _stages(schedule):
        schedule = _try(schedule, schedule.get(block).name_hint, _parallelise)
    return schedule.mod["main"].with_attr(REASSOCIATE, True)


def parallel_extent(func: PrimFunc) -> int:
    """The largest extent of any parallel loop of a PrimFunc; 1 where there is none."""
    extents = [1]
    for node in _statements(func.body):
        if isinstance(node, tvm.tirx.For) and node.kind == tvm.tirx.ForKind.PARALLEL:
            extents.append(int(node.extent))
    return max(extents)


def _try(schedule: Schedule, name: str, step: Callable[[Schedule, Block], None]) -> Schedule:
    """Applies a step to a copy: half of a refused step must not stay."""
    trial = schedule.copy()
    try:
        step(trial, trial.get_sblock(name))
    except _REFUSALS:
        return schedule
    return trial


def _stages(schedule: Schedule) -> list[Block]:
    root = schedule.get_sblock("root")
    return list(schedule.get_child_blocks(root))


def _inline(schedule: Schedule, block: Block) -> None:
    """Inlines an element-wise stage into its only reader, unless that would repeat its work."""
    readers = schedule.get_consumers(block)
    if len(readers) != 1 or not _is_spatial(schedule, block):
        return
    if _volume(schedule, readers[0]) <= _volume(schedule, block):
        schedule.compute_inline(block)


def _parallelise(schedule: Schedule, block: Block) -> None:
    if _volume(schedule, block) < _MIN_PARALLEL_WORK:
        return
    loops = _spatial_prefix(schedule, block)
    if not loops:
        return
    alone = len(loops) == len(schedule.get_loops(block))
    if alone and len(loops) > 1 and int(schedule.get(loops[-1]).extent) >= _MIN_INNER:
        loops = loops[:-1]
    fused = schedule.fuse(*loops) if len(loops) > 1 else loops[0]
    schedule.parallel(fused)


def _spatial_prefix(schedule: Schedule, block: Block) -> list[Loop]:
    """The outer loops that each bind one spatial axis alone."""
    kinds = {}
    axes = schedule.get(block).iter_vars
    realized = [schedule.get(loop) for loop in schedule.get_loops(block)]
    bound = _bindings(schedule, block)
    for axis, value in zip(axes, bound, strict=True):
        for loop in realized:
            if value.same_as(loop.loop_var):
                kinds[loop.loop_var] = axis.iter_type
    prefix = []
    for handle, loop in zip(schedule.get_loops(block), realized, strict=True):
        if kinds.get(loop.loop_var) != tvm.tirx.IterVar.DataPar:
            break
        prefix.append(handle)
    return prefix


def _bindings(schedule: Schedule, block: Block) -> list[Any]:
    """What each axis of a block is bound to."""
    wanted = schedule.get(block)
    for node in _statements(schedule.mod["main"].body):
        if isinstance(node, s_tir.SBlockRealize) and node.block.same_as(wanted):
            return list(node.iter_values)
    raise ValueError(f"block {wanted.name_hint} is not in its own schedule")


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
    return math.prod(int(schedule.get(loop).extent) for loop in schedule.get_loops(block))
