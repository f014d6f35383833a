from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from kernel_harness import Bench, dense
from tvm import relax
from tvm.tirx import PrimFunc

from veltair.compiler import codegen
from veltair.compiler.kernels import default_schedule, parallel_extent

LANES = 8

Build = Callable[[Any], Any]


def legalised(build: Build, shape: tuple[int, ...]) -> PrimFunc:
    """The fused PrimFunc of a Relax expression of one input."""
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            result = bb.emit_output(bb.normalize(build(x)))
        bb.emit_func_output(result)
    module = tvm.ir.transform.Sequential(
        [
            relax.transform.LegalizeOps(),
            relax.transform.AnnotateTIROpPattern(),
            relax.transform.FuseOps(fuse_opt_level=2),
            relax.transform.FuseTIR(),
        ]
    )(bb.get())
    funcs = [f for f in module.functions.values() if isinstance(f, tvm.tirx.PrimFunc)]
    assert len(funcs) == 1
    return funcs[0]


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


CASES: dict[str, tuple[Build, Callable[[np.ndarray], np.ndarray], tuple[int, ...]]] = {
    "elementwise": (
        lambda x: relax.op.nn.relu(relax.op.add(x, relax.const(1.5))),
        lambda x: np.maximum(x + 1.5, 0),
        (3, 17, 29),
    ),
    "transcendental": (
        lambda x: relax.op.multiply(relax.op.sigmoid(x), relax.op.tanh(x)),
        lambda x: np.tanh(x) / (1 + np.exp(-x)),
        (5, 33, 40),
    ),
    "transpose": (
        lambda x: relax.op.permute_dims(x, [0, 2, 3, 1]),
        lambda x: x.transpose(0, 2, 3, 1),
        (2, 9, 15, 33),
    ),
    "softmax": (relax.op.nn.softmax, softmax, (4, 40, 57)),
    "mean-inner": (lambda x: relax.op.mean(x, axis=[2]), lambda x: x.mean(axis=2), (20, 31, 64)),
    "mean-outer": (lambda x: relax.op.mean(x, axis=[0]), lambda x: x.mean(axis=0), (31, 20, 64)),
    "sum-all": (relax.op.sum, lambda x: x.sum(), (40, 50, 3)),
    "scalar-like": (lambda x: relax.op.add(x, relax.const(1.0)), lambda x: x + 1, (1,)),
    "pad-slice": (
        lambda x: relax.op.strided_slice(
            relax.op.nn.pad(x, [0, 0, 2, 3]), axes=[1], begin=[1], end=[60], strides=[2]
        ),
        lambda x: np.pad(x, ((0, 0), (2, 3)))[:, 1:60:2],
        (70, 64),
    ),
    "matmul": (
        lambda x: relax.op.matmul(x, relax.const(np.ones((40, 33), np.float32))),
        lambda x: x @ np.ones((40, 33)),
        (96, 40),
    ),
    "variance": (lambda x: relax.op.variance(x, axis=[1]), lambda x: x.var(axis=1), (60, 80)),
}


@pytest.mark.parametrize("name", CASES)
def test_default_schedule_keeps_the_result(
    name: str, bench: Bench, rng: np.random.Generator
) -> None:
    build, reference, shape = CASES[name]
    x = rng.standard_normal(shape).astype(np.float32)
    func = default_schedule(legalised(build, shape), LANES)
    wanted = reference(x.astype(np.float64))
    constants = [np.ones((40, 33), np.float32)] if name == "matmul" else []
    got = bench.run(func, [x, *constants], dense(*np.shape(wanted)))
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_exponentials_of_extreme_values(bench: Bench) -> None:
    x = np.tile(np.array([-np.inf, -200, -88, 0, 88, 89, np.inf, np.nan], np.float32), 16)
    func = default_schedule(legalised(relax.op.exp, x.shape), LANES)
    with np.errstate(over="ignore"):
        wanted = np.exp(x)
    wanted[wanted < np.finfo(np.float32).tiny] = 0
    np.testing.assert_allclose(bench.run(func, [x], dense(*x.shape)), wanted, rtol=5e-7)


def test_transcendentals_are_not_library_calls(bench: Bench) -> None:
    for operator in (relax.op.exp, relax.op.tanh, relax.op.erf, relax.op.sigmoid):
        func = default_schedule(legalised(operator, (64, 128)), LANES)
        assembly = codegen.lower("kernel", func, bench.isa).inspect_source("asm")
        assert not re.search(r"(exp|tanh|erf)f@PLT", assembly)


def test_large_work_is_parallel_and_small_is_not() -> None:
    build, _, _ = CASES["elementwise"]
    assert parallel_extent(default_schedule(legalised(build, (64, 100, 30)), LANES)) >= 64
    assert parallel_extent(default_schedule(legalised(build, (4, 4)), LANES)) == 1


def test_a_function_without_blocks_is_left_as_it_is() -> None:
    a = tvm.tirx.decl_buffer((4,), "float32", "a")
    i = tvm.tirx.Var("i", "int32")
    store = tvm.tirx.BufferStore(a, tvm.tirx.const(1.0, "float32"), [i])
    func = tvm.tirx.PrimFunc([a], tvm.tirx.For(i, 0, 4, tvm.tirx.ForKind.SERIAL, store))
    tvm.ir.assert_structural_equal(default_schedule(func, LANES), func)
