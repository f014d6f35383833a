"""Expert kernels: TIR written for one register tile each, no search."""

from __future__ import annotations

from veltair.compiler.kernels.batch_matmul import build_batch_matmul
from veltair.compiler.kernels.conv2d import build_direct
from veltair.compiler.kernels.conv_plain import build_plain
from veltair.compiler.kernels.default import default_schedule, parallel_extent
from veltair.compiler.kernels.depthwise import build_depthwise
from veltair.compiler.kernels.direct_plan import direct_cycles
from veltair.compiler.kernels.lrn import build_lrn
from veltair.compiler.kernels.matmul import build_matmul
from veltair.compiler.kernels.pool2d import build_pool2d
from veltair.compiler.kernels.relayout import build_relayout
from veltair.compiler.kernels.softmax import build_softmax
from veltair.compiler.kernels.spec import ConvSpec, Kernel
from veltair.compiler.kernels.winograd import build_winograd, choose_plan

__all__ = [
    "build_batch_matmul",
    "build_conv2d",
    "build_lrn",
    "build_matmul",
    "build_pool2d",
    "build_relayout",
    "build_softmax",
    "default_schedule",
    "parallel_extent",
]


def build_conv2d(spec: ConvSpec, isa: str) -> Kernel:
    """The kernel of a 2-D convolution: depthwise, plain, Winograd or direct."""
    if spec.output_plain and spec.data_plain:
        return build_plain(spec, isa)
    if spec.groups > 1 and spec.groups == spec.in_channels == spec.out_channels:
        return build_depthwise(spec, isa)
    plan = choose_plan(spec, isa, direct_cycles(spec, isa))
    return build_direct(spec, isa) if plan is None else build_winograd(spec, plan)
