"""Schedules of operators without an expert kernel: samples of MetaSchedule's sketches.

TVM's sketch rules (the successor of Ansor's) inline, tile, cache and move the stages of a function;
what they leave open is drawn. A sample is then cut into tasks, vectorised to the instruction set's
lanes and unrolled here: MetaSchedule's own step fuses every loop of an element-wise stage, whose
index arithmetic costs more than the stage.

Reference: Shao et al., Tensor Program Optimization with Probabilistic Programs, section 3; Zheng
et al., Ansor, section 4.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from tvm import s_tir
from tvm.s_tir import meta_schedule
from tvm.s_tir.meta_schedule import _ffi_api
from tvm.s_tir.meta_schedule import schedule_rule as rules
from tvm.s_tir.meta_schedule.postproc import RewriteReductionBlock
from tvm.s_tir.schedule import Trace
from tvm.target import Target
from tvm.tirx import IntImm

from veltair.compiler.kernels.choices import SketchChoice, require
from veltair.compiler.kernels.default import (
    REASSOCIATE,
    REFUSALS,
    Schedule,
    has_steps,
    module_of,
    parallel_extent,
    parallelise,
    stages,
    task_bytes,
    vectorise,
)
from veltair.compiler.kernels.spec import Kernel, TirSpec
from veltair.runtime.manifest import LANES

# Parts that a reduction is cut into where it is the only thing to cut.
_PARTS = 16
_MOST_INNERMOST = 64
_UNROLL = "pragma_auto_unroll_max_step"
_EXPLICIT = "pragma_unroll_explicit"


@dataclass(frozen=True, kw_only=True)
class Sketch:
    """A sample: its trace, and the share of its steps that run in full vectors.

    Attributes:
        trace: see `SketchChoice.trace`.
        vectorised: of the stages' steps.
    """

    trace: str
    vectorised: float


class _Context(meta_schedule.TuneContext):  # type: ignore[misc] # TVM is untyped
    """A context without what its base imports: intrinsics of accelerators, for many seconds."""

    def __init__(self, module: Any, generator: Any) -> None:  # noqa: ANN401 (of TVM)
        self.__init_handle_by_constructor__(
            _ffi_api.TuneContext, module, _target(), generator, None, "layer", 1, 1, None
        )
        _ffi_api.TuneContextInitialize(self)


def _target() -> Target:
    """What sketches depend on; the same for every machine, so that a log serves all."""
    return Target({"kind": "llvm", "num-cores": 1})


def _rules() -> list[Any]:
    return [
        rules.InlineConstantScalars(),
        rules.AutoInline(
            into_producer=False,
            into_consumer=True,
            inline_const_tensor=True,
            disallow_if_then_else=True,
            require_injective=True,
            require_ordered=True,
            disallow_op=["tirx.exp"],
        ),
        rules.AddRFactor(max_jobs_per_core=_PARTS, max_innermost_factor=_MOST_INNERMOST),
        rules.MultiLevelTiling(
            structure="SSRSRS",
            max_innermost_factor=_MOST_INNERMOST,
            reuse_write=rules.ReuseType(req="may", levels=[1, 2], scope="global"),
        ),
        rules.RandomComputeLocation(),
    ]


def sketches(spec: TirSpec, isa: str, samples: int) -> list[Sketch]:
    """Draws samples of each sketch, the same ones each time.

    Args:
        spec: the operator.
        isa: instruction set.
        samples: most of one sketch.

    Returns:
        The samples; none where there is nothing to compute, which TVM's rules don't expect.
    """
    if not has_steps(spec.func):
        return []
    generator = meta_schedule.space_generator.PostOrderApply(
        sch_rules=_rules(), postprocs=[], mutator_probs={}
    )
    found: dict[str, Sketch] = {}
    context = _Context(module_of(spec.func), generator)
    for sketch in context.generate_design_space():
        for number in range(samples):
            schedule = s_tir.Schedule(
                module_of(spec.func), seed=number + 1, error_render_level="none"
            )
            try:
                Trace(sketch.trace.insts, {}).apply_to_schedule(schedule, remove_postproc=True)
                trace = _text(schedule.trace)
                if trace not in found:
                    share = _annotated(schedule, LANES[isa], tasks=1)
                    found[trace] = Sketch(trace=trace, vectorised=share)
            except REFUSALS:
                continue  # a draw that leads nowhere
            if not schedule.trace.decisions:
                break  # nothing was drawn: the others would be the same
    return list(found.values())


def _text(trace: Any) -> str:  # noqa: ANN401 (of TVM)
    return json.dumps(trace.simplified(True).as_json(), default=_plain, separators=(",", ":"))


def _plain(value: Any) -> int | list[Any]:  # noqa: ANN401 (of TVM)
    return int(value) if isinstance(value, IntImm) else list(value)


def _scheduled(spec: TirSpec, choice: SketchChoice) -> Schedule:
    """A schedule with a choice's trace.

    Raises:
        ValueError: the trace is none, or of another function.
    """
    schedule = s_tir.Schedule(module_of(spec.func), error_render_level="none")
    try:
        Trace.apply_json_to_schedule(json.loads(choice.trace), schedule)
    except (*REFUSALS, KeyError, IndexError) as error:
        reason = str(error).strip().splitlines()
        raise ValueError(f"the choice doesn't fit the layer: {(reason or ['?'])[-1]}") from error
    return schedule


def check(spec: TirSpec, choice: SketchChoice) -> None:
    """Refuses a choice that doesn't fit.

    Raises:
        ValueError: it doesn't.
    """
    require(choice.tasks > 0 and choice.unroll >= 0, f"{choice.tasks} tasks")
    _scheduled(spec, choice)


def build_sketch(spec: TirSpec, isa: str, choice: SketchChoice) -> Kernel:
    """The kernel of a sample.

    Raises:
        ValueError: the choice doesn't fit the operator.
    """
    check(spec, choice)
    schedule = _scheduled(spec, choice)
    _annotated(schedule, LANES[isa], choice.tasks, choice.unroll)
    RewriteReductionBlock().apply(schedule)
    func = schedule.mod["main"].with_attr(REASSOCIATE, True)
    extent = parallel_extent(func)
    name = f"{choice.tasks} {choice.unroll} {choice.trace}".encode()
    return Kernel(
        func=func,
        variant_id=f"{spec.name}_sketch_{hashlib.sha256(name).hexdigest()[:8]}_p{extent}",
        algorithm="sketch",
        parallel_extent=extent,
        tile_bytes=task_bytes(func),
        unroll=max(choice.unroll, 1),
    )


def _annotated(schedule: Schedule, lanes: int, tasks: int, unroll: int = 0) -> float:
    """Cuts each stage into tasks, vectorises and unrolls it; returns the share of full vectors."""
    steps = full = 0
    for block in stages(schedule):
        volume = 1
        for loop in schedule.get_loops(block):
            volume *= int(schedule.get(loop).extent)
        steps += volume
        parallelise(schedule, block, tasks)
        full += volume * vectorise(schedule, block, lanes)
        if unroll:
            outermost = schedule.get_loops(block)[0]
            for key, value in ((_UNROLL, unroll), (_EXPLICIT, 1)):
                _annotate(schedule, outermost, key, value)
    return full / max(steps, 1)


def _annotate(schedule: Schedule, loop: Any, key: str, value: int) -> None:  # noqa: ANN401
    if key not in schedule.get(loop).annotations:  # stages may share their outer loops
        schedule.annotate(loop, key, value)
