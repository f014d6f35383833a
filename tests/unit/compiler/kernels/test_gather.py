from __future__ import annotations

import numpy as np
import pytest
from kernel_harness import Bench, dense

from veltair.compiler.kernels import build_gather
from veltair.compiler.kernels.spec import GatherSpec, View


def spec_of(outer: int, rows: int, width: int, count: int, dtype: str) -> GatherSpec:
    return GatherSpec(
        data=dense(outer, rows, width),
        index=View(shape=(count,), strides=(1,), dtype=dtype),
        output=dense(outer, count, width),
    )


@pytest.mark.parametrize("shape", [(1, 50, 40, 12), (3, 7, 1, 5), (1, 9, 33, 1)])
@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_gather(
    shape: tuple[int, int, int, int], dtype: str, bench: Bench, rng: np.random.Generator
) -> None:
    spec = spec_of(*shape, dtype)
    x = rng.standard_normal(spec.data.shape).astype(np.float32)
    index = rng.integers(-shape[1], shape[1], shape[3]).astype(dtype)
    whole, window = bench.storage(spec.output)
    bench.call(build_gather(spec, bench.isa).func, [x, index, window])
    np.testing.assert_array_equal(window, x[:, index])
    assert whole.size == window.size


def test_index_outside_of_the_table_reads_its_nearest_row(
    bench: Bench, rng: np.random.Generator
) -> None:
    spec = spec_of(1, 5, 20, 4, "int64")
    x = rng.standard_normal(spec.data.shape).astype(np.float32)
    index = np.array([5, 2**62, -6, -(2**62)])
    _, window = bench.storage(spec.output)
    bench.call(build_gather(spec, bench.isa).func, [x, index, window])
    np.testing.assert_array_equal(window, x[:, [4, 4, 0, 0]])
