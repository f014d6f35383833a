from __future__ import annotations

import dataclasses
import math

import msgspec
import numpy as np
import pytest
from kernel_harness import Bench, conv_reference, dense, halo

from veltair.compiler.codegen import lower
from veltair.compiler.kernels import build_conv2d
from veltair.compiler.kernels.choices import DirectChoice
from veltair.compiler.kernels.conv2d import build_direct
from veltair.compiler.kernels.direct_plan import choice_of, make_plan
from veltair.compiler.kernels.spec import ConvSpec, Step

Pair = tuple[int, int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    ic: int
    oc: int
    hw: Pair
    kernel: Pair = (1, 1)
    strides: Pair = (1, 1)
    dilations: Pair = (1, 1)
    pads: Pair = (0, 0)
    groups: int = 1
    batch: int = 1
    data_plain: bool = False
    output_plain: bool = False
    output_halo: int = 0
    batch_gap: int = 0


def make_spec(case: Case, lanes: int, epilogue: tuple[Step, ...] = ()) -> ConvSpec:
    height, width = (case.hw[i] + 2 * case.pads[i] for i in range(2))
    span = [(case.kernel[i] - 1) * case.dilations[i] + 1 for i in range(2)]
    out = tuple(((height, width)[i] - span[i]) // case.strides[i] + 1 for i in range(2))
    blocks_in, blocks_out = math.ceil(case.ic / lanes), math.ceil(case.oc / lanes)
    gap = case.batch_gap * lanes
    if case.data_plain:
        data = halo((case.batch, case.ic, height, width), 0, 0, gap)
    else:
        data = halo((case.batch, blocks_in, height, width, lanes), 0, 0, gap)
    if case.output_plain:
        output = dense(case.batch, case.oc, *out)
    else:
        shape = (case.batch, blocks_out, *out, lanes)
        output = halo(shape, case.output_halo, case.output_halo, gap)
    return ConvSpec(
        batch=case.batch,
        in_channels=case.ic,
        out_channels=case.oc,
        groups=case.groups,
        kernel=case.kernel,
        strides=case.strides,
        dilations=case.dilations,
        out_hw=(out[0], out[1]),
        data=data,
        output=output,
        data_plain=case.data_plain,
        output_plain=case.output_plain,
        epilogue=epilogue,
    )


def run_case(case: Case, bench: Bench, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    spec = make_spec(case, bench.lanes)
    kernel = build_conv2d(spec, bench.isa)
    assert kernel.pack_weight is not None
    shape = (case.batch, case.ic, *(case.hw[i] + 2 * case.pads[i] for i in range(2)))
    x = rng.standard_normal(shape).astype(np.float32)
    w = rng.standard_normal((case.oc, case.ic // case.groups, *case.kernel)).astype(np.float32)
    # Channels past C are finite but not zero: they must meet zero weights.
    packed = x if case.data_plain else bench.pack(x, pad=3.0)
    data = bench.put(spec.data, packed)
    got = bench.run(kernel.func, [data, kernel.pack_weight(w)], spec.output)
    if not case.output_plain:
        got = bench.unpack(got, case.oc)
    return got, conv_reference(x, w, case.strides, case.dilations, case.groups)


def check(got: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


DENSE = {
    "pointwise-flat-7x7": Case(ic=64, oc=80, hw=(7, 7)),
    "pointwise-1x1-spatial": Case(ic=40, oc=24, hw=(1, 1)),
    "pointwise-strided": Case(ic=32, oc=48, hw=(13, 9), strides=(2, 2)),
    "pointwise-into-halo": Case(ic=32, oc=64, hw=(14, 14), output_halo=2),
    "pointwise-batch-gaps": Case(ic=16, oc=32, hw=(6, 5), batch=2, batch_gap=3),
    "3x3": Case(ic=32, oc=64, hw=(14, 14), kernel=(3, 3), pads=(1, 1)),
    "3x3-7x7-wide": Case(ic=48, oc=112, hw=(7, 7), kernel=(3, 3), pads=(1, 1)),
    "3x3-odd-channels": Case(ic=20, oc=13, hw=(11, 17), kernel=(3, 3), pads=(1, 1), output_halo=1),
    "3x3-strided-batch": Case(ic=16, oc=40, hw=(15, 15), kernel=(3, 3), strides=(2, 2), batch=2),
    "3x3-dilated": Case(ic=16, oc=16, hw=(12, 13), kernel=(3, 3), dilations=(2, 3)),
    "1x7": Case(ic=16, oc=33, hw=(9, 12), kernel=(1, 7)),
    "5x3-mixed-strides": Case(ic=8, oc=16, hw=(16, 11), kernel=(5, 3), strides=(1, 2)),
    "stem-plain": Case(
        ic=3, oc=64, hw=(32, 32), kernel=(7, 7), strides=(2, 2), pads=(3, 3), data_plain=True
    ),
    "stem-one-channel": Case(ic=1, oc=6, hw=(28, 28), kernel=(5, 5), data_plain=True),
    "plain-output": Case(ic=24, oc=21, hw=(5, 6), kernel=(3, 3), output_plain=True),
    "wide-row": Case(ic=16, oc=16, hw=(2, 61), kernel=(1, 3)),
}


@pytest.mark.parametrize("name", DENSE)
def test_dense(name: str, bench: Bench, rng: np.random.Generator) -> None:
    check(*run_case(DENSE[name], bench, rng))


GROUPED = {
    "packed-groups": Case(ic=64, oc=128, hw=(8, 9), kernel=(3, 3), pads=(1, 1), groups=4),
    "packed-groups-strided": Case(ic=32, oc=32, hw=(9, 9), kernel=(3, 3), strides=(2, 2), groups=2),
    "plain-groups": Case(
        ic=12, oc=18, hw=(9, 21), kernel=(3, 3), groups=3, data_plain=True, output_plain=True
    ),
    "plain-groups-strided-batch": Case(
        ic=8, oc=4, hw=(10, 37), kernel=(3, 2), strides=(2, 2), groups=2, batch=2,
        data_plain=True, output_plain=True,
    ),
    "plain-depthwise-multiplier": Case(
        ic=5, oc=10, hw=(8, 33), kernel=(3, 3), groups=5, data_plain=True, output_plain=True
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GROUPED)
def test_grouped(name: str, bench: Bench, rng: np.random.Generator) -> None:
    check(*run_case(GROUPED[name], bench, rng))


DEPTHWISE = {
    "3x3": Case(ic=40, oc=40, hw=(14, 14), kernel=(3, 3), pads=(1, 1), groups=40),
    "3x3-strided": Case(
        ic=20, oc=20, hw=(15, 13), kernel=(3, 3), strides=(2, 2), pads=(1, 1), groups=20, batch=2
    ),
    "5x5-dilated": Case(ic=16, oc=16, hw=(17, 16), kernel=(5, 5), dilations=(2, 2), groups=16),
    "7x7-global": Case(ic=32, oc=32, hw=(7, 7), kernel=(7, 7), groups=32),
    "into-halo": Case(ic=32, oc=32, hw=(9, 10), kernel=(3, 3), groups=32, output_halo=2),
}


@pytest.mark.parametrize("name", DEPTHWISE)
def test_depthwise(name: str, bench: Bench, rng: np.random.Generator) -> None:
    case = DEPTHWISE[name]
    assert build_conv2d(make_spec(case, bench.lanes), bench.isa).algorithm == "depthwise"
    check(*run_case(case, bench, rng))


EPILOGUE_CASES = {
    "direct": Case(ic=32, oc=40, hw=(6, 7), kernel=(3, 3), pads=(1, 1)),
    "flat": Case(ic=16, oc=32, hw=(7, 7)),
    "depthwise": Case(ic=24, oc=24, hw=(6, 9), kernel=(3, 3), pads=(1, 1), groups=24),
    "plain": Case(
        ic=6, oc=9, hw=(6, 19), kernel=(3, 3), groups=3, data_plain=True, output_plain=True
    ),
    "plain-output": Case(ic=16, oc=21, hw=(5, 6), kernel=(3, 3), output_plain=True),
}


@pytest.mark.parametrize("name", EPILOGUE_CASES)
@pytest.mark.parametrize("bias_first", [True, False])
def test_epilogue_order(
    name: str, bias_first: bool, bench: Bench, rng: np.random.Generator
) -> None:
    """Bias, scale, residual and activation apply in the order of the steps."""
    case = EPILOGUE_CASES[name]
    out_view = make_spec(case, bench.lanes).output
    bias, scale = Step(kind="add", operand="channel"), Step(kind="mul", operand="channel")
    residual = Step(kind="add", operand="tensor", view=out_view)
    first, second = (bias, scale) if bias_first else (scale, bias)
    steps = (first, Step(kind="relu"), second, residual, Step(kind="clip", params=(-1.0, 4.0)))
    spec = make_spec(case, bench.lanes, steps)
    kernel = build_conv2d(spec, bench.isa)
    assert kernel.pack_weight is not None
    assert kernel.pack_channel is not None
    hw = tuple(case.hw[i] + 2 * case.pads[i] for i in range(2))
    x = rng.standard_normal((case.batch, case.ic, *hw)).astype(np.float32)
    w = rng.standard_normal((case.oc, case.ic // case.groups, *case.kernel)).astype(np.float32)
    one, two = (rng.standard_normal(case.oc).astype(np.float32) for _ in range(2))
    wanted = conv_reference(x, w, case.strides, case.dilations, case.groups)
    other = rng.standard_normal(wanted.shape).astype(np.float32)
    a, b = (v[None, :, None, None] for v in (one, two))
    wanted = np.maximum(wanted + a, 0) * b if bias_first else np.maximum(wanted * a, 0) + b
    wanted = np.clip(wanted + other, -1, 4)
    data = bench.put(spec.data, x if case.data_plain else bench.pack(x))
    packed_other = other if case.output_plain else bench.pack(other)
    arguments = [
        data,
        kernel.pack_weight(w),
        kernel.pack_channel(one),
        kernel.pack_channel(two),
        bench.put(out_view, packed_other),
    ]
    got = bench.run(kernel.func, arguments, spec.output)
    check(got if case.output_plain else bench.unpack(got, case.oc), wanted)


def test_big_layers_are_cut_into_many_tasks(bench: Bench) -> None:
    """Cores join and leave between tasks, so a large layer has many more than a machine's few."""
    layers = [
        Case(ic=64, oc=64, hw=(56, 56), kernel=(3, 3), pads=(1, 1)),
        Case(ic=512, oc=512, hw=(7, 7), kernel=(3, 3), pads=(1, 1)),
        Case(ic=64, oc=256, hw=(56, 56)),
        Case(ic=2048, oc=512, hw=(7, 7)),
    ]
    for case in layers:
        kernel = build_conv2d(make_spec(case, bench.lanes), bench.isa)
        assert kernel.parallel_extent >= 16, kernel.variant_id


STREAMING = {
    "3x3": Case(ic=40, oc=500, hw=(7, 7), kernel=(3, 3), pads=(1, 1)),
    "strided": Case(ic=48, oc=528, hw=(11, 9), kernel=(3, 3), strides=(2, 2), pads=(1, 1)),
    "pointwise": Case(ic=320, oc=496, hw=(7, 7), batch=2),
    "packed-groups": Case(ic=128, oc=512, hw=(6, 6), kernel=(3, 3), pads=(1, 1), groups=2),
}


@pytest.mark.parametrize("name", STREAMING)
def test_passes_over_the_reduction_keep_the_result(
    name: str, bench: Bench, rng: np.random.Generator
) -> None:
    spec = make_spec(STREAMING[name], bench.lanes)
    assert make_plan(spec, bench.isa).passes > 1
    check_streaming(name, choice_of(spec, bench.isa), bench, rng)


@pytest.mark.parametrize("name", STREAMING)
def test_weights_that_are_fetched_ahead_keep_the_result(
    name: str, bench: Bench, rng: np.random.Generator
) -> None:
    spec = make_spec(STREAMING[name], bench.lanes)
    without = msgspec.structs.replace(choice_of(spec, bench.isa), passes=1)
    choice = msgspec.structs.replace(without, prefetch=32)
    fetched = []
    for each in (without, choice):
        kernel = build_direct(spec, bench.isa, each)
        assert ("_f32" in kernel.variant_id) == (each is choice)
        assembly = lower("k", kernel.func, bench.isa).inspect_source("asm")
        fetched.append(assembly.count("\tprefetch"))
    assert fetched[0] == 0 < fetched[1]
    check_streaming(name, choice, bench, rng)


def check_streaming(
    name: str, choice: DirectChoice, bench: Bench, rng: np.random.Generator
) -> None:
    case = STREAMING[name]
    spec = make_spec(case, bench.lanes)
    x = rng.standard_normal((case.batch, case.ic, *(case.hw[i] + 2 * case.pads[i] for i in (0, 1))))
    w = rng.standard_normal((case.oc, case.ic // case.groups, *case.kernel)).astype(np.float32)
    bias = rng.standard_normal(case.oc).astype(np.float32)
    steps = (Step(kind="add", operand="channel"), Step(kind="relu"))
    kernel = build_direct(dataclasses.replace(spec, epilogue=steps), bench.isa, choice)
    assert kernel.pack_weight is not None
    assert kernel.pack_channel is not None
    data = bench.put(spec.data, bench.pack(x.astype(np.float32), pad=3.0))
    arguments = [data, kernel.pack_weight(w), kernel.pack_channel(bias)]
    got = bench.unpack(bench.run(kernel.func, arguments, spec.output), case.oc)
    wanted = conv_reference(x, w, case.strides, case.dilations, case.groups)
    check(got, np.maximum(wanted + bias[:, None, None], 0))
