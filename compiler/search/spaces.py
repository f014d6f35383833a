"""What can be built of a layer: every choice its kernels take, less those not worth building."""

from __future__ import annotations

from veltair.compiler import kernels
from veltair.compiler.kernels import (
    batch_matmul,
    conv_plain,
    depthwise,
    direct_plan,
    matmul,
    pool2d,
    winograd,
)
from veltair.compiler.kernels.choices import (
    Choice,
    DefaultChoice,
    DepthwiseChoice,
    DirectChoice,
    MatmulChoice,
    PlainChoice,
    WinogradChoice,
    require,
)
from veltair.compiler.kernels.spec import (
    BatchMatmulSpec,
    ConvSpec,
    Kernel,
    MatmulSpec,
    PoolSpec,
    TirSpec,
)
from veltair.compiler.search import dense_spaces, grouped_spaces, other_spaces
from veltair.compiler.search.candidates import Candidate, Space, on_cores
from veltair.compiler.search.key import Spec


def build(spec: Spec, isa: str, choice: Choice) -> Kernel:
    """The kernel of a choice.

    Raises:
        ValueError: the choice doesn't fit the layer.
    """
    if isinstance(spec, ConvSpec):
        return kernels.build_conv2d(spec, isa, choice)
    if isinstance(spec, PoolSpec):
        return other_spaces.build_pool(spec, isa, choice)
    if isinstance(spec, TirSpec):
        return other_spaces.build_tir(spec, isa, choice)
    if isinstance(spec, other_spaces.RowsSpec):
        return other_spaces.build_rows(spec, isa, choice)
    require(isinstance(choice, MatmulChoice), "a matrix product has other decisions")
    assert isinstance(choice, MatmulChoice)
    if isinstance(spec, BatchMatmulSpec):
        return kernels.build_batch_matmul(spec, isa, choice)
    return kernels.build_matmul(spec, isa, choice)


def check(spec: Spec, isa: str, choice: Choice) -> None:
    """Refuses a choice that doesn't fit a layer, without building it.

    Raises:
        ValueError: it doesn't.
    """
    if isinstance(spec, ConvSpec):
        _check_convolution(spec, isa, choice)
    elif isinstance(spec, PoolSpec):
        other_spaces.check_pool(spec, isa, choice)
    elif isinstance(spec, TirSpec):
        other_spaces.check_tir(spec, choice)
    elif isinstance(spec, other_spaces.RowsSpec):
        other_spaces.check_rows(spec, choice)
    else:
        require(isinstance(choice, MatmulChoice), "a matrix product is no convolution")
        assert isinstance(choice, MatmulChoice)
        if isinstance(spec, BatchMatmulSpec):
            batch_matmul.plan_of(spec, isa, choice)
        else:
            matmul.plan_of(spec, isa, choice)


def _check_convolution(spec: ConvSpec, isa: str, choice: Choice) -> None:
    kind = type(kernels.default_choice(spec, isa))
    special = (PlainChoice, DepthwiseChoice)
    same = isinstance(choice, special) == issubclass(kind, special)
    require(same, "another kind of convolution")
    if isinstance(choice, PlainChoice):
        conv_plain.check(spec, isa, choice)
    elif isinstance(choice, DepthwiseChoice):
        depthwise.check(spec, isa, choice)
    elif isinstance(choice, WinogradChoice):
        winograd.plan_of(spec, isa, choice)
    else:
        require(isinstance(choice, DirectChoice), "a convolution is no matrix product")
        assert isinstance(choice, DirectChoice)
        direct_plan.make_plan(spec, isa, choice)


def default_choice(spec: Spec, isa: str) -> Choice | None:
    """What the cost models choose; None for a layer whose kernel has nothing to choose."""
    if isinstance(spec, ConvSpec):
        return kernels.default_choice(spec, isa)
    if isinstance(spec, PoolSpec):
        return pool2d.choice_of(spec, isa)
    if isinstance(spec, TirSpec):
        return DefaultChoice() if other_spaces.can_sketch(spec) else None
    if isinstance(spec, other_spaces.RowsSpec):
        return other_spaces.default_rows(spec, isa)
    if isinstance(spec, BatchMatmulSpec):
        return batch_matmul.choice_of(spec, isa)
    return matmul.choice_of(spec, isa)


def space_of(spec: Spec, isa: str, cores: int) -> Space | None:
    """The candidates of a layer for a machine of some cores; None where there is no choice."""
    default = default_choice(spec, isa)
    if default is None:
        return None
    if isinstance(spec, MatmulSpec):
        found, dropped = dense_spaces.matmul_candidates(spec, isa, cores)
    elif isinstance(spec, BatchMatmulSpec):
        found, dropped = dense_spaces.batch_matmul_candidates(spec, isa, cores)
    elif not isinstance(spec, ConvSpec):
        found, dropped = _others(spec, isa, cores)
    elif isinstance(default, DepthwiseChoice):
        found, dropped = grouped_spaces.depthwise_candidates(spec, isa, cores)
    elif isinstance(default, PlainChoice):
        found, dropped = grouped_spaces.plain_candidates(spec, isa, cores)
    else:
        found, dropped = dense_spaces.dense_candidates(spec, isa, cores)
    others = sorted((c for c in found if c.choice != default), key=lambda c: c.cycles)
    own = next((c for c in found if c.choice == default), None)
    first = own or Candidate(choice=default, cycles=others[0].cycles if others else 1.0)
    return Space(candidates=(first, *others), dropped=dropped)


def _others(
    spec: PoolSpec | TirSpec | other_spaces.RowsSpec, isa: str, cores: int
) -> tuple[list[Candidate], int]:
    if isinstance(spec, PoolSpec):
        of_pool = other_spaces.pool_candidates(spec, isa)
        found = [Candidate(choice=c, cycles=on_cores(t, n, cores)) for c, t, n in of_pool]
    elif isinstance(spec, TirSpec):
        of_tir = other_spaces.tir_candidates(spec, isa)
        found = [Candidate(choice=c, cycles=on_cores(t, n, cores)) for c, t, n in of_tir]
    else:
        of_rows = other_spaces.rows_candidates(spec)
        found = [Candidate(choice=c, cycles=on_cores(t, n, cores)) for c, t, n in of_rows]
    return found, 0
