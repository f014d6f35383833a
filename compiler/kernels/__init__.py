"""Expert kernels: TIR written for one register tile each, no search."""

from __future__ import annotations

from veltair.compiler.kernels import conv_plain, depthwise, direct_plan, winograd
from veltair.compiler.kernels.batch_matmul import build_batch_matmul
from veltair.compiler.kernels.choices import (
    Choice,
    DepthwiseChoice,
    DirectChoice,
    PlainChoice,
    WinogradChoice,
    require,
)
from veltair.compiler.kernels.conv2d import build_direct
from veltair.compiler.kernels.conv_plain import build_plain
from veltair.compiler.kernels.default import (
    build_default,
    default_schedule,
    parallel_extent,
    tir_spec,
)
from veltair.compiler.kernels.depthwise import build_depthwise
from veltair.compiler.kernels.gather import build_gather
from veltair.compiler.kernels.layer_norm import build_layer_norm
from veltair.compiler.kernels.lrn import build_lrn
from veltair.compiler.kernels.matmul import build_matmul
from veltair.compiler.kernels.pool2d import build_pool2d
from veltair.compiler.kernels.relayout import build_relayout
from veltair.compiler.kernels.softmax import build_softmax
from veltair.compiler.kernels.spec import ConvSpec, Kernel
from veltair.compiler.kernels.winograd import build_winograd

__all__ = [
    "build_batch_matmul",
    "build_conv2d",
    "build_default",
    "build_gather",
    "build_layer_norm",
    "build_lrn",
    "build_matmul",
    "build_pool2d",
    "build_relayout",
    "build_softmax",
    "default_choice",
    "default_schedule",
    "is_depthwise",
    "parallel_extent",
    "tir_spec",
]


def build_conv2d(spec: ConvSpec, isa: str, choice: Choice | None = None) -> Kernel:
    """The kernel of a 2-D convolution: depthwise, plain, Winograd or direct.

    Args:
        spec: the convolution.
        isa: instruction set.
        choice: the kernel's decisions; `default_choice` if not given.

    Raises:
        ValueError: the choice doesn't fit the convolution.
    """
    chosen = default_choice(spec, isa) if choice is None else choice
    if isinstance(chosen, PlainChoice):
        return build_plain(spec, isa, chosen)
    if isinstance(chosen, DepthwiseChoice):
        return build_depthwise(spec, isa, chosen)
    if isinstance(chosen, WinogradChoice):
        return build_winograd(spec, winograd.plan_of(spec, isa, chosen))
    require(isinstance(chosen, DirectChoice), "a convolution is no matrix product")
    assert isinstance(chosen, DirectChoice)
    return build_direct(spec, isa, chosen)


def default_choice(spec: ConvSpec, isa: str) -> Choice:
    """What the cost models choose."""
    if spec.data_plain and spec.output_plain:
        return conv_plain.choice_of(spec, isa)
    if is_depthwise(spec):
        return depthwise.choice_of(spec, isa)
    direct = direct_plan.choice_of(spec, isa)
    plan = winograd.choose_plan(spec, isa, direct_plan.direct_cycles(spec, isa, direct))
    return direct if plan is None else winograd.choice_of(plan)


def is_depthwise(spec: ConvSpec) -> bool:
    """Whether each channel has a filter of its own."""
    return spec.groups > 1 and spec.groups == spec.in_channels == spec.out_channels
