from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from kernel_harness import Bench, dense, halo

from veltair.compiler.kernels import build_pool2d
from veltair.compiler.kernels.spec import PoolSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    channels: int
    hw: tuple[int, int]
    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    include_pad: bool = False
    batch: int = 1
    extra: int = 0  # rows and columns past the floor formula, as ONNX's ceil_mode gives


CASES = {
    "3x3-s2-pad": Case(
        channels=40, hw=(15, 13), kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)
    ),
    "3x3-s1-pad-include": Case(
        channels=16, hw=(9, 21), kernel=(3, 3), pads=(1, 1, 1, 1), include_pad=True
    ),
    "2x2-batch": Case(channels=20, hw=(8, 6), kernel=(2, 2), strides=(2, 2), batch=2),
    "global-7x7": Case(channels=64, hw=(7, 7), kernel=(7, 7)),
    "global-13x9": Case(channels=24, hw=(13, 9), kernel=(13, 9)),
    "asymmetric-pads": Case(
        channels=16, hw=(10, 11), kernel=(3, 4), strides=(2, 1), pads=(0, 2, 1, 1)
    ),
    "dilated": Case(channels=16, hw=(12, 12), kernel=(3, 3), dilations=(2, 2), pads=(1, 1, 1, 1)),
    "ceil": Case(channels=16, hw=(14, 14), kernel=(3, 3), strides=(2, 2), extra=1),
    "ceil-include-pad": Case(
        channels=16, hw=(14, 14), kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1),
        include_pad=True, extra=1,
    ),
    "no-whole-column": Case(channels=16, hw=(4, 2), kernel=(3, 3), pads=(1, 1, 1, 1)),
}  # fmt: skip


def out_size(case: Case) -> tuple[int, int]:
    size = []
    for i in range(2):
        span = (case.kernel[i] - 1) * case.dilations[i] + 1
        padded = case.hw[i] + case.pads[i] + case.pads[i + 2]
        size.append((padded - span) // case.strides[i] + 1 + case.extra)
    return size[0], size[1]


def reference(x: np.ndarray, case: Case, kind: str) -> np.ndarray:
    (height, width), (oh, ow) = case.hw, out_size(case)
    out = np.zeros((*x.shape[:2], oh, ow))
    for i in range(oh):
        for j in range(ow):
            rows = [
                i * case.strides[0] - case.pads[0] + y * case.dilations[0]
                for y in range(case.kernel[0])
            ]
            columns = [
                j * case.strides[1] - case.pads[1] + c * case.dilations[1]
                for c in range(case.kernel[1])
            ]
            inside = [
                x[:, :, r, c].astype(np.float64)
                for r in rows
                for c in columns
                if 0 <= r < height and 0 <= c < width
            ]
            padded = sum(
                r < height + case.pads[2] and c < width + case.pads[3]
                for r in rows
                for c in columns
            )
            if kind == "max":
                out[:, :, i, j] = np.max(inside, axis=0)
            else:
                count = padded if case.include_pad else len(inside)
                out[:, :, i, j] = np.sum(inside, axis=0) / count
    return out


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_pool(name: str, kind: str, bench: Bench, rng: np.random.Generator) -> None:
    case = CASES[name]
    blocks = -(-case.channels // bench.lanes)
    data = halo((case.batch, blocks, *case.hw, bench.lanes), 2, 2)
    output = dense(case.batch, blocks, *out_size(case), bench.lanes)
    spec = PoolSpec(
        kind="max" if kind == "max" else "avg",
        kernel=case.kernel,
        strides=case.strides,
        dilations=case.dilations,
        pads=case.pads,
        count_include_pad=case.include_pad,
        data=data,
        output=output,
    )
    # All negative: a zero taken from padding would win a maximum.
    x = -1 - rng.random((case.batch, case.channels, *case.hw)).astype(np.float32)
    kernel = build_pool2d(spec, bench.isa)
    got = bench.run(kernel.func, [bench.put(data, bench.pack(x))], output)
    wanted = reference(x, case, kind)
    np.testing.assert_allclose(bench.unpack(got, case.channels), wanted, rtol=1e-5, atol=1e-6)
