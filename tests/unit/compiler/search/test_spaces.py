from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest
from kernel_harness import Bench, supported
from tvm import te, topi
from unit.compiler.search.layers import LAYERS, conv, matmul, plain_conv

from veltair.compiler.kernels import tir_spec
from veltair.compiler.kernels.choices import (
    DepthwiseChoice,
    DirectChoice,
    MatmulChoice,
    PlainChoice,
    PoolChoice,
    RowsChoice,
    SketchChoice,
    WinogradChoice,
)
from veltair.compiler.kernels.sketch import sketches
from veltair.compiler.kernels.spec import ConvSpec, Kernel, Step, TirSpec
from veltair.compiler.search.example import make_example
from veltair.compiler.search.key import Spec, key_of
from veltair.compiler.search.proposal import draw_order, missing_trials, propose
from veltair.compiler.search.spaces import build, check, default_choice, space_of
from veltair.runtime.manifest import LANES

ISAS = ["x86-64-v4", "x86-64-v3"]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", LAYERS)
def test_every_candidate_fits_and_the_default_is_first(name: str, isa: str) -> None:
    spec = LAYERS[name](LANES[isa])
    space = space_of(spec, isa, cores=2)
    assert space is not None
    choices = [c.choice for c in space.candidates]
    assert choices[0] == default_choice(spec, isa)
    assert len(set(choices)) == len(choices) > 1
    assert all(c.cycles > 0 for c in space.candidates)
    for choice in choices:
        check(spec, isa, choice)


def run(kernel: Kernel, spec: Spec, bench: Bench) -> None:
    """The kernel's outputs on its example must fit the example's expectations."""
    example = make_example(spec, key_of(spec, bench.isa))
    packers = {"weight": kernel.pack_weight, "channel": kernel.pack_channel}
    inputs = []
    for operand in example.operands:
        if operand.view is not None:
            inputs.append(bench.put(operand.view, operand.values))
            continue
        packer = packers[operand.packing]
        inputs.append(operand.values if packer is None else packer(operand.values))
    computed = bench.run_all(kernel.func, inputs, [output.view for output in example.outputs])
    for got, output in zip(computed, example.outputs, strict=True):
        real = output.is_compared
        assert real.mean() > 0.5
        assert got.dtype == output.expected.dtype
        np.testing.assert_allclose(got[real], output.expected[real], rtol=1e-3, atol=2e-3)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", LAYERS)
def test_drawn_candidates_compute_the_layer(name: str, isa: str) -> None:
    if not supported(isa):
        pytest.skip(f"this CPU has no {isa}")
    spec = LAYERS[name](LANES[isa])
    space = space_of(spec, isa, cores=2)
    assert space is not None
    bench = Bench(isa)
    drawn = np.random.default_rng(5).permutation(len(space.candidates))[:4]
    ids = set()
    for number in drawn:
        kernel = build(spec, isa, space.candidates[number].choice)
        ids.add(kernel.variant_id)
        run(kernel, spec, bench)
    assert len(ids) == len(drawn), "two choices have one id"


@pytest.mark.parametrize(
    "choice",
    [
        DirectChoice(merged=3, rows=1, columns=8, blocks=1, row_tiles=1, weights_outer=False),
        DirectChoice(merged=1, rows=1, columns=60, blocks=1, row_tiles=1, weights_outer=False),
        DirectChoice(merged=1, rows=1, columns=8, blocks=4, row_tiles=1, weights_outer=False),
        DirectChoice(merged=1, rows=1, columns=8, blocks=1, row_tiles=3, weights_outer=False),
        DirectChoice(
            merged=1, rows=1, columns=8, blocks=1, row_tiles=1, weights_outer=False, passes=5
        ),
        DirectChoice(
            merged=1, rows=1, columns=8, blocks=1, row_tiles=1, weights_outer=False, unroll=0
        ),
        DirectChoice(
            merged=1, rows=1, columns=8, blocks=1, row_tiles=1, weights_outer=False, prefetch=-1
        ),
        DirectChoice(
            merged=1,
            rows=1,
            columns=8,
            blocks=1,
            row_tiles=2,
            weights_outer=False,
            passes=2,
            prefetch=32,
        ),
        WinogradChoice(size=3, tile_rows=1, columns=1, blocks=1),
        WinogradChoice(size=4, tile_rows=5, columns=1, blocks=1),
        DepthwiseChoice(pixels=4, rows=1),
        PlainChoice(channels=4, vectors=1, rows=1),
    ],
)
def test_a_choice_that_does_not_fit_is_refused(choice: object) -> None:
    spec = conv(16, ic=32, oc=32, hw=(8, 8))
    with pytest.raises(ValueError, match="the choice doesn't fit the layer"):
        check(spec, "x86-64-v4", choice)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "choice",
    [
        DirectChoice(merged=1, rows=1, columns=8, blocks=1, row_tiles=1, weights_outer=False),
        DepthwiseChoice(pixels=4, rows=1),
        PlainChoice(channels=5, vectors=1, rows=1),
        PlainChoice(channels=4, vectors=3, rows=1),
        PlainChoice(channels=16, vectors=2, rows=1),
        PlainChoice(channels=4, vectors=1, rows=5),
        PlainChoice(channels=0, vectors=1, rows=1),
    ],
)
def test_a_choice_that_does_not_fit_a_plain_convolution_is_refused(choice: object) -> None:
    spec = plain_conv(ic=6, oc=32, groups=2, hw=(8, 40))
    with pytest.raises(ValueError, match="the choice doesn't fit the layer"):
        check(spec, "x86-64-v4", choice)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["max-pool", "softmax", "batch-matmul", "element-wise"])
def test_a_choice_of_another_kind_is_refused(name: str) -> None:
    spec = LAYERS[name](16)
    for choice in [
        WinogradChoice(size=4, tile_rows=1, columns=1, blocks=1),
        PoolChoice(pixels=1, rows=5),
        RowsChoice(rows=7),
        MatmulChoice(rows=1, blocks=1, pieces=7),
        SketchChoice(trace="[[],[]]", tasks=0, unroll=0),
        SketchChoice(trace="[1", tasks=4, unroll=0),
        SketchChoice(
            trace='[[["GetSBlock",[],["none","main"],["b0"]]],[]]',
            tasks=4,
            unroll=0,
        ),
    ]:
        with pytest.raises(ValueError, match="the choice doesn't fit the layer"):
            check(spec, "x86-64-v4", choice)
        with pytest.raises(ValueError, match="the choice doesn't fit the layer"):
            build(spec, "x86-64-v4", choice)


def test_sketches_are_the_same_again_and_leave_the_function_alone() -> None:
    spec = LAYERS["reduction"](16)
    assert isinstance(spec, TirSpec)
    before = spec.func.script()
    first = sketches(spec, "x86-64-v4", 4)
    assert len({sketch.trace for sketch in first}) > 4, "one sketch has four samples at most"
    assert sketches(spec, "x86-64-v4", 4) == first
    for sketch in first[:2]:
        build(spec, "x86-64-v4", SketchChoice(trace=sketch.trace, tasks=8, unroll=16))
    assert spec.func.script() == before


@pytest.mark.parametrize("tasks", [8, 32])
def test_a_sketch_is_cut_into_tasks_and_vectorised_to_the_lanes(tasks: int) -> None:
    spec = LAYERS["element-wise"](16)
    kernel = build(spec, "x86-64-v4", SketchChoice(trace="[[],[]]", tasks=tasks, unroll=0))
    assert tasks / 2 <= kernel.parallel_extent <= 2 * tasks
    assert "T.vectorized(16)" in kernel.func.script()
    elements = 3 * 8 * 8 * 16
    assert kernel.tile_bytes == pytest.approx(8 * elements / kernel.parallel_extent, rel=0.5)


def test_operators_that_compute_the_same_have_one_key_whatever_their_tensors_are_called() -> None:
    def named(data: str, size: int) -> TirSpec:
        x = te.placeholder((4, size), "float32", name=data)
        y = te.compute(x.shape, lambda i, j: x[i, j] + 1.0, name="plus")
        return tir_spec(te.create_prim_func([x, y]), "add")

    one, same, other = named("a", 32), named("b", 32), named("a", 48)
    assert one == same
    assert key_of(one, "x86-64-v4") == key_of(same, "x86-64-v4") != key_of(other, "x86-64-v4")
    assert pickle.loads(pickle.dumps(one)) == one


def test_an_operator_of_a_type_that_numpy_lacks_has_no_space() -> None:
    x = te.placeholder((4, 64), "bfloat16", name="x")
    y = te.compute(x.shape, lambda i, j: x[i, j].astype("float32"), name="y")
    spec = tir_spec(te.create_prim_func([x, y]), "cast")
    assert space_of(spec, "x86-64-v4", cores=2) is None


def test_a_function_that_is_not_made_of_stages_has_no_space() -> None:
    x = te.placeholder((4, 32), "float32", name="x")
    spec = tir_spec(te.create_prim_func([x, topi.cumsum(x, axis=1)]), "cumsum")
    assert space_of(spec, "x86-64-v4", cores=2) is None


def test_a_plain_convolution_s_tiles_fit_the_registers_and_the_row() -> None:
    spec = plain_conv(ic=6, oc=48, groups=2, hw=(12, 70))
    space = space_of(spec, "x86-64-v3", cores=2)
    assert space is not None
    tiles = set()
    for candidate in space.candidates:
        assert isinstance(candidate.choice, PlainChoice)
        tiles.add((candidate.choice.channels, candidate.choice.vectors))
    assert all(c * v + v + 1 <= 16 and v <= 70 // 8 and 24 % c == 0 for c, v in tiles)
    assert len(tiles) > 3
    assert space.dropped > 0


def test_what_cannot_fit_the_registers_is_counted() -> None:
    space = space_of(conv(16, ic=64, oc=64, hw=(28, 28)), "x86-64-v4", cores=2)
    assert space is not None
    assert space.dropped > len(space.candidates)
    for candidate in space.candidates:
        if isinstance(candidate.choice, DirectChoice):
            sums = candidate.choice.rows * candidate.choice.columns * candidate.choice.blocks
            assert sums < 32


def test_a_key_tells_layers_apart_and_not_their_places() -> None:
    one = conv(16, ic=32, oc=32, hw=(8, 8))
    assert isinstance(one, ConvSpec)
    moved = dataclasses.replace(
        one, output=dataclasses.replace(one.output, strides=(9999, *one.output.strides[1:]))
    )
    assert key_of(one, "x86-64-v4") == key_of(moved, "x86-64-v4")
    others = [
        conv(16, ic=32, oc=48, hw=(8, 8)),
        conv(16, ic=32, oc=32, hw=(8, 9)),
        dataclasses.replace(one, epilogue=(Step(kind="relu"),)),
        dataclasses.replace(one, epilogue=(Step(kind="clip", params=(0.0, 6.0)),)),
        matmul(16, m=8, k=32, n=32),
    ]
    assert len({key_of(spec, "x86-64-v4") for spec in (one, *others)}) == len(others) + 1


def test_a_draw_is_the_same_again_and_prefers_good_estimates() -> None:
    spec = conv(16, ic=64, oc=64, hw=(28, 28))
    space = space_of(spec, "x86-64-v4", cores=2)
    assert space is not None
    order = draw_order(space, "key")
    assert order == draw_order(space, "key") != draw_order(space, "other")
    assert order[0] == space.candidates[0]
    assert sorted(c.cycles for c in order) == sorted(c.cycles for c in space.candidates)
    half = len(order) // 2
    assert sum(c.cycles for c in order[:half]) < sum(c.cycles for c in order[half:])


def test_hints_come_right_after_the_default() -> None:
    space = space_of(conv(16, ic=64, oc=64, hw=(28, 28)), "x86-64-v4", cores=2)
    other = space_of(conv(16, ic=64, oc=64, hw=(28, 28)), "x86-64-v4", cores=64)
    assert space is not None
    assert other is not None
    own = {c.choice for c in space.candidates}
    foreign = next(c.choice for c in other.candidates if c.choice not in own)
    default, last = space.candidates[0], space.candidates[-1]
    order = draw_order(space, "key", [last.choice, default.choice, foreign])
    assert order[:2] == (default, last)
    assert order[2].choice == foreign
    unhinted = draw_order(space, "key")
    assert order[3:] == tuple(c for c in unhinted if c not in (default, last))
    assert missing_trials(order, {default.choice}, 3) == 2
    assert missing_trials(order, {c.choice for c in order[1:]}, 10**6) == 1
    assert missing_trials(order, {default.choice, last.choice}, 2) == 0


def test_proposals_are_new_and_half_of_them_near_the_fastest() -> None:
    spec = conv(16, ic=64, oc=64, hw=(28, 28), kernel=(1, 1))
    space = space_of(spec, "x86-64-v4", cores=2)
    assert space is not None
    order = draw_order(space, "key")
    first = propose(order, {}, {}, 8)
    assert first == [c.choice for c in order[:8]]
    times = {choice: 100.0 + i for i, choice in enumerate(first)}
    fastest = first[5]
    times[fastest] = 1.0
    later = propose(order, times, times, 8)
    assert not set(first) & set(later)
    assert len(set(later)) == 8
    near = [c for c in later if _differing(c, fastest) == 1]
    assert len(near) >= 3
    everything = [c.choice for c in order]
    assert propose(order, dict.fromkeys(everything, 1.0), everything, 8) == []


def _differing(one: object, other: object) -> int:
    if type(one) is not type(other):
        return 99
    fields = type(one).__struct_fields__  # type: ignore[attr-defined]
    return sum(getattr(one, f) != getattr(other, f) for f in fields)
