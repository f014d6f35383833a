from __future__ import annotations

import numpy as np
import pytest
from kernel_harness import Bench, dense, halo

from veltair.compiler.kernels import build_lrn, build_softmax
from veltair.compiler.kernels.spec import LrnSpec, SoftmaxSpec, View


@pytest.mark.parametrize("columns", [1, 3, 16, 47, 1000])
@pytest.mark.parametrize("log", [False, True])
def test_softmax(columns: int, log: bool, bench: Bench, rng: np.random.Generator) -> None:
    rows = 6
    data = View(shape=(rows, columns), strides=(columns + 7, 1))
    output = View(shape=(rows, columns), strides=(columns + 2, 1))
    x = (20 * rng.standard_normal((rows, columns))).astype(np.float32)
    x[0] += 500  # overflows unless the maximum is taken off first
    kernel = build_softmax(SoftmaxSpec(data=data, output=output, log=log), bench.isa)
    got = bench.run(kernel.func, [bench.put(data, x)], output)
    shifted = x.astype(np.float64) - x.max(axis=1, keepdims=True)
    total = np.exp(shifted).sum(axis=1, keepdims=True)
    if log:
        np.testing.assert_allclose(got, shifted - np.log(total), rtol=1e-5, atol=1e-4)
    else:
        np.testing.assert_allclose(got, np.exp(shifted) / total, rtol=1e-5, atol=1e-7)


LRN = {
    "googlenet": (48, 5, 1e-4, 0.75, 1.0),
    "partial-block": (37, 5, 0.5, 0.75, 2.0),
    "one-block": (9, 3, 1.0, 0.5, 1.0),
    "even-window": (40, 4, 0.3, 1.0, 1.5),
    "wider-than-a-vector": (20, 19, 0.1, 0.75, 1.0),
    "window-of-one": (33, 1, 0.2, 0.6, 1.0),
}


@pytest.mark.parametrize("name", LRN)
def test_lrn(name: str, bench: Bench, rng: np.random.Generator) -> None:
    channels, size, alpha, beta, bias = LRN[name]
    blocks = -(-channels // bench.lanes)
    data = halo((2, blocks, 5, 6, bench.lanes), 2, 2)
    output = dense(2, blocks, 5, 6, bench.lanes)
    spec = LrnSpec(
        channels=channels, size=size, alpha=alpha, beta=beta, bias=bias, data=data, output=output
    )
    x = (3 * rng.standard_normal((2, channels, 5, 6))).astype(np.float32)
    # What lies past C must not enter the last channels' windows.
    window = bench.put(data, bench.pack(x, pad=100.0))
    got = bench.run(build_lrn(spec, bench.isa).func, [window], output)
    squares = x.astype(np.float64) ** 2
    total = np.zeros_like(squares)
    for c in range(channels):
        low, high = max(0, c - (size - 1) // 2), min(channels, c + size // 2 + 1)
        total[:, c] = squares[:, low:high].sum(axis=1)
    wanted = x / (bias + alpha / size * total) ** beta
    np.testing.assert_allclose(bench.unpack(got, channels), wanted, rtol=1e-5, atol=1e-6)
