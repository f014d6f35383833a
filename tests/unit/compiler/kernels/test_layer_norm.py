from __future__ import annotations

import numpy as np
import pytest
from kernel_harness import Bench, dense

from veltair.compiler.kernels import build_layer_norm
from veltair.compiler.kernels.spec import LayerNormSpec


def reference(x: np.ndarray, epsilon: float) -> np.ndarray:
    x = x.astype(np.float64)
    difference = x - x.mean(axis=1, keepdims=True)
    return difference / np.sqrt((difference**2).mean(axis=1, keepdims=True) + epsilon)


@pytest.mark.parametrize("columns", [3, 16, 77, 128, 300])
@pytest.mark.parametrize("has_bias", [False, True])
def test_layer_norm(columns: int, has_bias: bool, bench: Bench, rng: np.random.Generator) -> None:
    view = dense(6, columns)
    spec = LayerNormSpec(data=view, output=view, epsilon=1e-3, has_bias=has_bias)
    kernel = build_layer_norm(spec, bench.isa)
    assert kernel.pack_channel is not None
    x = rng.standard_normal((6, columns)).astype(np.float32)
    x[2] *= 1e-3  # then epsilon counts
    x[3] += 1000.0  # then a sum of squares would be of no use
    scale, bias = (rng.standard_normal(columns).astype(np.float32) for _ in range(2))
    constants = [scale, bias] if has_bias else [scale]
    packed = [kernel.pack_channel(c) for c in constants]
    got = bench.run(kernel.func, [x, *packed], view)
    wanted = reference(x, 1e-3) * scale + (bias if has_bias else 0)
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(got[:2], wanted[:2], rtol=1e-4, atol=1e-5)
