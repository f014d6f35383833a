from __future__ import annotations

import dataclasses
import math

import msgspec
import numpy as np
import pytest
from kernel_harness import Bench, conv_reference, halo

from veltair.compiler.kernels import build_conv2d, winograd
from veltair.compiler.kernels.choices import WinogradChoice
from veltair.compiler.kernels.spec import ConvSpec, Step
from veltair.compiler.kernels.winograd_transform import TRANSFORMS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    ic: int
    oc: int
    out_hw: tuple[int, int]
    rows: int  # tile rows a block
    batch: int = 1
    samples: int = 1  # whose rows are all in a block, where more than one
    whole: bool = False


CASES = {
    "whole-tiles": Case(ic=32, oc=48, out_hw=(8, 12), rows=1),
    "overhanging-tiles": Case(ic=16, oc=33, out_hw=(7, 9), rows=2, batch=2),
    "many-blocks": Case(ic=20, oc=16, out_hw=(16, 6), rows=2),
    "smaller-than-a-tile": Case(ic=8, oc=8, out_hw=(1, 3), rows=1),
    "rows-of-several-samples": Case(ic=24, oc=40, out_hw=(7, 5), rows=2, batch=6, samples=3),
    "all-samples-in-one-block": Case(ic=16, oc=16, out_hw=(8, 8), rows=2, batch=4, samples=4),
    "last-block-begins-earlier": Case(ic=16, oc=24, out_hw=(27, 9), rows=4, batch=2),
    "and-so-in-tasks": Case(ic=24, oc=16, out_hw=(19, 6), rows=3, batch=2, whole=True),
    "partial-chunk": Case(ic=64, oc=112, out_hw=(14, 14), rows=1),
}


def spec_of(case: Case, lanes: int, epilogue: tuple[Step, ...] = ()) -> ConvSpec:
    height, width = case.out_hw
    data = (case.batch, math.ceil(case.ic / lanes), height + 2, width + 2, lanes)
    output = (case.batch, math.ceil(case.oc / lanes), height, width, lanes)
    return ConvSpec(
        batch=case.batch,
        in_channels=case.ic,
        out_channels=case.oc,
        groups=1,
        kernel=(3, 3),
        strides=(1, 1),
        dilations=(1, 1),
        out_hw=case.out_hw,
        data=halo(data, 1, 1, 2 * lanes),
        output=halo(output, 2, 2),
        epilogue=epilogue,
    )


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", CASES)
def test_winograd(name: str, size: int, bench: Bench, rng: np.random.Generator) -> None:
    case = CASES[name]
    output = spec_of(case, bench.lanes).output
    steps = (
        Step(kind="add", operand="channel"),
        Step(kind="add", operand="tensor", view=output),
        Step(kind="relu"),
    )
    spec = spec_of(case, bench.lanes, steps)
    tile_rows = math.ceil(case.out_hw[0] / size)
    rows = tile_rows * case.samples if case.samples > 1 else min(case.rows, tile_rows)
    assert rows in winograd.block_rows(spec, size)
    plan = winograd.make_plan(spec, bench.isa, TRANSFORMS[size], rows)
    plan = dataclasses.replace(plan, whole=case.whole)
    kernel = winograd.build_winograd(spec, plan)
    assert kernel.pack_weight is not None
    assert kernel.pack_channel is not None
    height, width = case.out_hw
    x = rng.standard_normal((case.batch, case.ic, height + 2, width + 2)).astype(np.float32)
    w = rng.standard_normal((case.oc, case.ic, 3, 3)).astype(np.float32)
    bias = rng.standard_normal(case.oc).astype(np.float32)
    wanted = conv_reference(x, w, (1, 1), (1, 1), 1) + bias[:, None, None]
    other = rng.standard_normal(wanted.shape).astype(np.float32)
    arguments = [
        bench.put(spec.data, bench.pack(x, pad=3.0)),
        kernel.pack_weight(w),
        kernel.pack_channel(bias),
        bench.put(output, bench.pack(other)),
    ]
    got = bench.unpack(bench.run(kernel.func, arguments, spec.output), case.oc)
    wanted = np.maximum(wanted + other, 0)
    assert np.abs(got - wanted).max() < 2e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("size", [2, 4])
def test_transforms_are_exact_minimal_filters(size: int) -> None:
    transform = TRANSFORMS[size]
    data, weight, output = (
        np.array(m) for m in (transform.data, transform.weight, transform.output)
    )
    rng = np.random.default_rng(3)
    d, g = rng.standard_normal(transform.points), rng.standard_normal(3)
    filtered = output @ ((weight @ g) * (data @ d))
    np.testing.assert_allclose(filtered, np.convolve(d, g[::-1], "valid"), atol=1e-12)


def test_scratch_is_bounded(bench: Bench) -> None:
    spec = spec_of(Case(ic=256, oc=256, out_hw=(75, 75), rows=1), bench.lanes)
    choice = WinogradChoice(size=4, tile_rows=10, columns=2, blocks=1)
    # 36 points of 10 rows of 19 tiles, of 256 channels each before and after.
    assert winograd.plan_of(spec, bench.isa, choice).tile_bytes == 36 * 190 * 512 * 4
    with pytest.raises(ValueError, match="bytes between the stages"):
        winograd.plan_of(spec, bench.isa, msgspec.structs.replace(choice, tile_rows=19))
    with pytest.raises(ValueError, match="bytes between the stages"):
        winograd.plan_of(spec, bench.isa, msgspec.structs.replace(choice, whole=True))


def test_it_is_chosen_where_it_pays_and_only_there(bench: Bench) -> None:
    def algorithm(ic: int, oc: int, size: int, **changes: object) -> str:
        spec = spec_of(Case(ic=ic, oc=oc, out_hw=(size, size), rows=1), bench.lanes)
        return build_conv2d(dataclasses.replace(spec, **changes), bench.isa).algorithm  # type: ignore[arg-type]

    assert algorithm(64, 64, 56) == "winograd"
    assert algorithm(128, 128, 28) == "winograd"
    assert algorithm(512, 512, 3) == "direct"  # the weights would be read for nine pixels
    assert algorithm(64, 64, 56, strides=(2, 2), out_hw=(28, 28)) == "direct"
    assert algorithm(64, 64, 56, dilations=(2, 2), out_hw=(54, 54)) == "direct"
