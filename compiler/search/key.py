"""The structural key of a layer: what decides how fast a choice is, and nothing else.

Equal layers of different networks have one key, so that one's tuning log serves the other. Where a
tensor lies and how its samples are apart is not in it.
"""

from __future__ import annotations

from veltair.compiler.kernels.direct_plan import frame_of
from veltair.compiler.kernels.spec import ConvSpec, MatmulSpec, Step

Spec = ConvSpec | MatmulSpec

# Of the choices and of what they mean: to raise it makes every older record count for nothing.
SPACE = 1


def key_of(spec: Spec, isa: str) -> str:
    """The key, e.g. `conv3x3 n1 64->64 56x56 s1x1 d1x1 g1 +add.channel+relu`."""
    epilogue = "".join(_step(step) for step in spec.epilogue)
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
