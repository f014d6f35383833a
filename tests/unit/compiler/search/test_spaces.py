from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from kernel_harness import Bench, supported
from unit.compiler.search.layers import LAYERS, conv, matmul

from veltair.compiler.kernels.choices import DepthwiseChoice, DirectChoice, WinogradChoice
from veltair.compiler.kernels.spec import LANES, ConvSpec, Kernel, Step
from veltair.compiler.search.example import make_example
from veltair.compiler.search.key import Spec, key_of
from veltair.compiler.search.proposal import draw_order, missing_trials, propose
from veltair.compiler.search.spaces import build, check, default_choice, space_of

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


def run(kernel: Kernel, spec: Spec, bench: Bench) -> np.ndarray:
    """The kernel's output on its example, which must fit the example's expectation."""
    example = make_example(spec, key_of(spec, bench.isa))
    assert kernel.pack_weight is not None
    assert kernel.pack_channel is not None
    steps = [step for step in spec.epilogue if step.operand != "none"]
    operands = [
        bench.put(step.view, operand) if step.view else kernel.pack_channel(operand)
        for step, operand in zip(steps, example.operands, strict=True)
    ]
    data = bench.put(spec.data, example.data)
    got = bench.run(kernel.func, [data, kernel.pack_weight(example.weight), *operands], spec.output)
    real = ~np.isnan(example.expected)
    np.testing.assert_allclose(got[real], example.expected[real], rtol=1e-3, atol=2e-3)
    return got


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
        WinogradChoice(size=3, tile_rows=1, columns=1, blocks=1),
        WinogradChoice(size=4, tile_rows=5, columns=1, blocks=1),
        DepthwiseChoice(pixels=4, rows=1),
    ],
)
def test_a_choice_that_does_not_fit_is_refused(choice: object) -> None:
    spec = conv(16, ic=32, oc=32, hw=(8, 8))
    with pytest.raises(ValueError, match="the choice doesn't fit the layer"):
        check(spec, "x86-64-v4", choice)  # type: ignore[arg-type]


def test_a_layer_with_one_plain_kernel_has_no_space() -> None:
    spec = conv(16, ic=32, oc=32, hw=(8, 8))
    plain = dataclasses.replace(spec, data_plain=True, output_plain=True)
    assert space_of(plain, "x86-64-v4", cores=2) is None


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
