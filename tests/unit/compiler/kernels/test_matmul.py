from __future__ import annotations

import numpy as np
import pytest
from kernel_harness import Bench, dense

from veltair.compiler.kernels import build_batch_matmul, build_matmul
from veltair.compiler.kernels.spec import BatchMatmulSpec, MatmulSpec, Step, View

SHAPES = {
    "gemv": (1, 200, 1000),
    "gemv-one-output": (1, 33, 1),
    "few-columns": (5, 7, 3),
    "two-rows": (2, 64, 40),
    "rows-28": (28, 96, 64),
    "rows-128": (128, 64, 96),
    "tall": (301, 16, 20),
    "odd": (13, 37, 51),
}


def check(got: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("name", SHAPES)
def test_matmul(name: str, bench: Bench, rng: np.random.Generator) -> None:
    m, k, n = SHAPES[name]
    data = View(shape=(m, k), strides=(k + 5, 1))
    output = View(shape=(m, n), strides=(n + 3, 1))
    other = View(shape=(m, n), strides=(n + 1, 1))
    steps = (
        Step(kind="add", operand="channel"),
        Step(kind="add", operand="tensor", view=other),
        Step(kind="relu"),
    )
    kernel = build_matmul(
        MatmulSpec(m=m, k=k, n=n, data=data, output=output, epilogue=steps), bench.isa
    )
    assert kernel.pack_weight is not None
    assert kernel.pack_channel is not None
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))
    bias, residual = (rng.standard_normal(s).astype(np.float32) for s in (n, (m, n)))
    arguments = [
        bench.put(data, x),
        kernel.pack_weight(w),
        kernel.pack_channel(bias),
        bench.put(other, residual),
    ]
    got = bench.run(kernel.func, arguments, output)
    check(got, np.maximum(x.astype(np.float64) @ w + bias + residual, 0))


def test_matmul_without_epilogue(bench: Bench, rng: np.random.Generator) -> None:
    spec = MatmulSpec(m=3, k=20, n=50, data=dense(3, 20), output=dense(3, 50))
    kernel = build_matmul(spec, bench.isa)
    assert kernel.pack_weight is not None
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((3, 20), (20, 50)))
    check(bench.run(kernel.func, [x, kernel.pack_weight(w)], spec.output), x @ w)


BATCHED = {
    "heads": (12, 128, 64, 128),
    "narrow": (3, 5, 9, 7),
    "one-row": (4, 1, 32, 40),
    "one-column": (2, 17, 8, 1),
    "wide": (1, 30, 12, 133),
}


@pytest.mark.parametrize("name", BATCHED)
@pytest.mark.parametrize("transposed", [False, True])
def test_batch_matmul(name: str, transposed: bool, bench: Bench, rng: np.random.Generator) -> None:
    """`b` by rows or by columns, `a` and the output as slices of wider tensors."""
    batch, m, k, n = BATCHED[name]
    a_view = View(shape=(batch, m, k), strides=(k + 2, batch * (k + 2), 1))  # heads side by side
    b_strides = (k * n + 1, 1, k) if transposed else (k * n + 1, n, 1)
    b_view = View(shape=(batch, k, n), strides=b_strides)
    scale = Step(kind="clip", params=(-3.0, 3.0))
    output = dense(batch, m, n)
    spec = BatchMatmulSpec(a=a_view, b=b_view, output=output, epilogue=(scale,))
    kernel = build_batch_matmul(spec, bench.isa)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((batch, m, k), (batch, k, n)))
    got = bench.run(kernel.func, [bench.put(a_view, a), bench.put(b_view, b)], output)
    check(got, np.clip(a.astype(np.float64) @ b, -3, 3))


def test_batch_matmul_writes_transposed(bench: Bench, rng: np.random.Generator) -> None:
    output = View(shape=(2, 6, 19), strides=(114, 1, 6))
    spec = BatchMatmulSpec(a=dense(2, 6, 10), b=dense(2, 10, 19), output=output)
    kernel = build_batch_matmul(spec, bench.isa)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((2, 6, 10), (2, 10, 19)))
    check(bench.run(kernel.func, [a, b], output), a @ b)


def test_batch_matmul_of_heads_with_a_mask(bench: Bench, rng: np.random.Generator) -> None:
    """Two batch dimensions in another order than they lie, and a mask of one row a sample."""
    n, heads, tokens, size = 2, 3, 21, 16
    lying = dense(n, tokens, heads, size)
    strides = tuple(lying.strides[i] for i in (0, 2, 1, 3))
    a_view = View(shape=(n, heads, tokens, size), strides=strides)
    b_view = View(shape=(n, heads, size, tokens), strides=(*strides[:2], strides[3], strides[2]))
    mask_view = View(shape=(n, heads, tokens, tokens), strides=(tokens, 0, 0, 1))
    output = dense(n, heads, tokens, tokens)
    steps = (
        Step(kind="mul", operand="channel"),
        Step(kind="add", operand="tensor", view=mask_view),
    )
    spec = BatchMatmulSpec(a=a_view, b=b_view, output=output, epilogue=steps)
    kernel = build_batch_matmul(spec, bench.isa)
    a, b = (rng.standard_normal(lying.shape).astype(np.float32) for _ in range(2))
    scale = bench.put(dense(tokens), rng.standard_normal(tokens).astype(np.float32))
    mask = rng.standard_normal((n, tokens)).astype(np.float32)
    operands = [
        np.lib.stride_tricks.as_strided(
            np.ascontiguousarray(x), view.shape, [4 * s for s in view.strides]
        )
        for x, view in ((a, a_view), (b, b_view), (mask, mask_view))
    ]
    _, window = bench.storage(output)
    bench.call(kernel.func, [*operands[:2], scale, operands[2], window])
    scores = np.einsum("nqhc,nkhc->nhqk", a.astype(np.float64), b)
    check(window, scores * scale + mask[:, None, None])
