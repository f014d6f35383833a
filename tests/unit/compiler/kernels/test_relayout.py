from __future__ import annotations

import numpy as np
import pytest
from kernel_harness import Bench, dense, halo

from veltair.compiler.kernels import build_relayout
from veltair.compiler.kernels.spec import RelayoutSpec

SHAPES = [(1, 3, 5, 40), (2, 37, 9, 7), (1, 64, 1, 1), (2, 16, 4, 16), (1, 48, 3, 33)]


def ids(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


@pytest.mark.parametrize("shape", SHAPES, ids=ids)
@pytest.mark.parametrize("border", [0, 2])
def test_pack_writes_zeros_past_the_channels(
    shape: tuple[int, int, int, int], border: int, bench: Bench, rng: np.random.Generator
) -> None:
    n, c, h, w = shape
    data = dense(*shape)
    output = halo((n, -(-c // bench.lanes), h, w, bench.lanes), border, border)
    spec = RelayoutSpec(channels=c, data=data, output=output)
    x = rng.standard_normal(shape).astype(np.float32)
    got = bench.run(build_relayout(spec, bench.isa).func, [x], output)
    np.testing.assert_array_equal(got, bench.pack(x))


@pytest.mark.parametrize("shape", SHAPES, ids=ids)
def test_unpack_drops_what_is_past_the_channels(
    shape: tuple[int, int, int, int], bench: Bench, rng: np.random.Generator
) -> None:
    n, c, h, w = shape
    data = halo((n, -(-c // bench.lanes), h, w, bench.lanes), 2, 2)
    output = halo(shape, 0, 0, batch_gap=5)
    spec = RelayoutSpec(channels=c, data=data, output=output)
    x = rng.standard_normal(shape).astype(np.float32)
    packed = bench.put(data, bench.pack(x, pad=9.0))
    np.testing.assert_array_equal(
        bench.run(build_relayout(spec, bench.isa).func, [packed], output), x
    )


@pytest.mark.parametrize("shape", SHAPES, ids=ids)
@pytest.mark.parametrize("packed", [True, False])
def test_copy_within_a_layout(
    shape: tuple[int, int, int, int], packed: bool, bench: Bench, rng: np.random.Generator
) -> None:
    n, c, h, w = shape
    x = rng.standard_normal(shape).astype(np.float32)
    whole = (n, -(-c // bench.lanes), h, w, bench.lanes) if packed else shape
    data, output = halo(whole, 1, 1), halo(whole, 2, 2, batch_gap=2 * bench.lanes)
    spec = RelayoutSpec(channels=c, data=data, output=output)
    source = bench.put(data, bench.pack(x, pad=9.0) if packed else x)
    got = bench.run(build_relayout(spec, bench.isa).func, [source], output)
    np.testing.assert_array_equal(got, bench.pack(x) if packed else x)
