"""The structural key of a layer: what decides how fast a choice is, and nothing else.

Equal layers of different networks have one key, so that one's tuning log serves the other. Where a
tensor lies and how its samples are apart is not in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from veltair.compiler.kernels.direct_plan import frame_of
from veltair.compiler.kernels.spec import (
    BatchMatmulSpec,
    ConvSpec,
    GatherSpec,
    LayerNormSpec,
    LrnSpec,
    MatmulSpec,
    PoolSpec,
    RelayoutSpec,
    SoftmaxSpec,
    Step,
    TirSpec,
    View,
)

Spec = (
    ConvSpec
    | MatmulSpec
    | BatchMatmulSpec
    | PoolSpec
    | LrnSpec
    | SoftmaxSpec
    | LayerNormSpec
    | GatherSpec
    | RelayoutSpec
    | TirSpec
)

# Of the choices and of what they mean: to raise it makes every older record count for nothing.
SPACE = 1


def key_of(spec: Spec, isa: str) -> str:
    """The key, e.g. `conv3x3 n1 64->64 56x56 s1x1 d1x1 g1 +add.channel+relu`."""
    if isinstance(spec, (ConvSpec, MatmulSpec, BatchMatmulSpec)):
        return _product_key(spec, isa)
    if isinstance(spec, PoolSpec):
        return _pool_key(spec)
    if isinstance(spec, TirSpec):
        return f"{spec.name} {spec.digest}"
    return _rows_key(spec)


def _rows_key(spec: SoftmaxSpec | LayerNormSpec | LrnSpec | GatherSpec | RelayoutSpec) -> str:
    if isinstance(spec, SoftmaxSpec):
        return f"{'log_' if spec.log else ''}softmax {_sizes(spec.data.shape)}"
    if isinstance(spec, LayerNormSpec):
        return f"layer_norm {_sizes(spec.data.shape)}{' bias' if spec.has_bias else ''}"
    if isinstance(spec, LrnSpec):
        return f"lrn{spec.size} c{spec.channels} {_sizes(spec.data.shape)} beta{spec.beta:g}"
    if isinstance(spec, GatherSpec):
        return f"gather {_sizes(spec.data.shape)} by {spec.index.shape[0]} {spec.index.dtype}"
    forms = "->".join(_form(view) for view in (spec.data, spec.output))
    return f"relayout {forms} c{spec.channels} {_sizes(spec.output.shape)}"


def _sizes(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def _form(view: View) -> str:
    return "packed" if len(view.shape) == 5 else "plain"


def _pool_key(spec: PoolSpec) -> str:
    sizes = [("s", spec.strides), ("d", spec.dilations), ("p", spec.pads)]
    shape = f"{_sizes(spec.data.shape)}->{_sizes(spec.output.shape[2:4])}"
    words = [f"{spec.kind}pool{_sizes(spec.kernel)}", shape]
    words += [f"{name}{_sizes(of)}" for name, of in sizes]
    return " ".join([*words, *(["with-pads"] if spec.count_include_pad else [])])


def _product_key(spec: ConvSpec | MatmulSpec | BatchMatmulSpec, isa: str) -> str:
    epilogue = "".join(_step(step) for step in spec.epilogue)
    if isinstance(spec, BatchMatmulSpec):
        # How an operand lies decides how its copy runs.
        units = "".join("r" if view.strides[-1] == 1 else "c" for view in (spec.a, spec.b))
        n = spec.b.shape[-1]
        return f"batch_matmul {_sizes(spec.a.shape)}x{n} {units} {epilogue}".rstrip()
    if isinstance(spec, MatmulSpec):
        return f"matmul {spec.m}x{spec.k}x{spec.n} {epilogue}".rstrip()
    sizes = [("", spec.out_hw), ("s", spec.strides), ("d", spec.dilations)]
    shape = " ".join(f"{name}{a}x{b}" for name, (a, b) in sizes)
    forms = {"plain-in": spec.data_plain, "plain-out": spec.output_plain}
    words = [
        f"conv{spec.kernel[0]}x{spec.kernel[1]} n{spec.batch}",
        f"{spec.in_channels}->{spec.out_channels} {shape} g{spec.groups}",
        *(name for name, is_so in forms.items() if is_so),
        *(["flat"] if frame_of(spec, isa).flat else []),
        *([epilogue] if epilogue else []),
    ]
    return " ".join(words)


def _step(step: Step) -> str:
    operand = "" if step.operand == "none" else f".{step.operand}"
    params = f"({','.join(f'{p:g}' for p in step.params)})" if step.params else ""
    return f"+{step.kind}{operand}{params}"
