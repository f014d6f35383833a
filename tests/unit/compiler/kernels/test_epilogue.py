from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from kernel_harness import Bench, dense

from veltair.compiler.kernels import vector_math as vm
from veltair.compiler.kernels.epilogue import activate
from veltair.compiler.kernels.loops import Expr, Loops, load
from veltair.compiler.kernels.spec import Step

COUNT = 512


def run(body: Callable[[Loops, Expr], Expr], x: np.ndarray, bench: Bench) -> np.ndarray:
    """Maps an emitted vector function over x."""
    b = Loops(bench.lanes)
    view = dense(COUNT)
    source, target = b.buffer("x", view), b.buffer("y", view)
    with b.loop(COUNT // bench.lanes, "i", "parallel") as i:
        at = i * bench.lanes
        b.store(target, [at], body(b, load(source, [at], bench.lanes)))
    return bench.run(b.function([source, target]), [x], view)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.vectorize(math.erf)(x * math.sqrt(0.5)))


Activation = tuple[Sequence[float], Callable[[np.ndarray], np.ndarray]]
ACTIVATIONS: dict[str, Activation] = {
    "relu": ((), lambda x: np.maximum(x, 0)),
    "clip": ((-0.5, 6.0), lambda x: np.clip(x, -0.5, 6)),
    "sigmoid": ((), sigmoid),
    "silu": ((), lambda x: x * sigmoid(x)),
    "hardsigmoid": ((0.3, 0.4), lambda x: np.clip(0.3 * x + 0.4, 0, 1)),
    "hardswish": ((), lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "leaky_relu": ((0.1,), lambda x: np.where(x < 0, 0.1 * x, x)),
    "tanh": ((), np.tanh),
    "gelu": ((), gelu),
    "elu": ((1.3,), lambda x: np.where(x < 0, 1.3 * np.expm1(x), x)),
    "softplus": ((), lambda x: np.logaddexp(x, 0)),
}


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_activation(kind: str, bench: Bench, rng: np.random.Generator) -> None:
    params, reference = ACTIVATIONS[kind]
    step = Step(kind=kind, params=tuple(params))
    x = np.concatenate([4 * rng.standard_normal(COUNT - 4), [0.0, -0.0, 60.0, -60.0]]).astype(
        np.float32
    )
    got = run(lambda b, v: activate(b, step, v), x, bench)
    np.testing.assert_allclose(got, reference(x.astype(np.float64)), rtol=3e-6, atol=1e-6)


def test_an_unknown_activation_is_named() -> None:
    with pytest.raises(ValueError, match="'swoosh'"):
        activate(Loops(16), Step(kind="swoosh"), None)


def test_exp_is_accurate_over_its_range(bench: Bench) -> None:
    x = np.linspace(-87, 88, COUNT, dtype=np.float32)
    got = run(vm.exp, x, bench)
    np.testing.assert_allclose(got, np.exp(x.astype(np.float64)), rtol=5e-7)


def test_log_is_accurate_over_its_range(bench: Bench) -> None:
    x = np.exp(np.linspace(-80, 80, COUNT)).astype(np.float32)
    got = run(vm.log, x, bench)
    np.testing.assert_allclose(got, np.log(x.astype(np.float64)), rtol=5e-7, atol=1e-7)


def test_sigmoid_and_erf_of_extreme_values(bench: Bench) -> None:
    x = np.tile(np.array([-np.inf, -3e38, -100, 0, 100, 3e38, np.inf, np.nan], np.float32), 64)
    got = run(vm.sigmoid, x, bench)
    np.testing.assert_allclose(got, np.tile([0, 0, 0, 0.5, 1, 1, 1, np.nan], 64), atol=1e-30)
    np.testing.assert_allclose(run(vm.erf, x, bench), np.sign(x), atol=2e-7)


def test_reciprocal_is_accurate(bench: Bench) -> None:
    x = np.exp(np.linspace(-80, 80, COUNT)).astype(np.float32)
    np.testing.assert_allclose(run(vm.reciprocal, x, bench), 1 / x, rtol=5e-7)
