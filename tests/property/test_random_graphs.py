"""Random small graphs, compiled by the whole pipeline, compute what ONNX Runtime computes.

Many more than here are drawn by `pytest tests/property/test_random_graphs.py --hypothesis-profile
many`. What that has found is kept as cases.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from compiling import check_outputs
from fallback_models import model_of, node, value
from hypothesis import HealthCheck, assume, given, settings
from random_graphs import graphs, is_settled

from veltair.runtime.artifact import available_isa

ISA = available_isa()
pytestmark = pytest.mark.skipif(ISA is None, reason="this CPU can't run kernels")

FEW = settings(
    max_examples=20,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def sums_of_nothing() -> onnx.ModelProto:
    """TVM's importer took a size of 0 for an unknown one."""
    return model_of(
        [
            node("ReduceSum", "x axes", "total", keepdims=0),
            node("ReduceProd", "x axes", "product"),
            node("MatMul", "x w", "matrix"),
        ],
        [value("x", [2, 5, 0])],
        [value("total", [5]), value("product", [1, 5, 1]), value("matrix", [2, 5, 3])],
        axes=np.array([2, 0]),
        w=np.ones((0, 3), np.float32),
    )


def nothing_from_weights() -> onnx.ModelProto:
    """TVM's rules for samples of schedules refused loops that never run."""
    rng = np.random.default_rng(0)
    return model_of(
        [
            node("ConvTranspose", "x w", "wide", strides=[3, 3]),
            node("MatMul", "x v", "product"),
        ],
        [value("x", [0, 8, 4, 7])],
        [value("wide", [0, 2, 12, 22]), value("product", [0, 8, 4, 33])],
        w=rng.standard_normal((8, 2, 3, 4)).astype(np.float32),
        v=rng.standard_normal((7, 33)).astype(np.float32),
    )


def bordered_output() -> onnx.ModelProto:
    """An output that also has a border for a padded reader was copied as if it lay compactly."""
    return model_of(
        [
            node("MaxPool", "x", "pooled", kernel_shape=[2, 3], pads=[1, 1, 1, 1], strides=[1, 2]),
            node("Conv", "pooled w", "y", group=3, pads=[1, 0, 0, 0], strides=[2, 2]),
        ],
        [value("x", [1, 3, 4, 1])],
        [value("pooled", [1, 3, 5, 1]), value("y", [1, 24, 2, 1])],
        w=np.random.default_rng(0).standard_normal((24, 1, 4, 1)).astype(np.float32),
    )


FOUND: list[Callable[[], onnx.ModelProto]] = [
    sums_of_nothing,
    nothing_from_weights,
    bordered_output,
]


@pytest.mark.parametrize("case", FOUND, ids=lambda case: case.__name__)
def test_what_was_found_agrees_with_onnx_runtime(
    tmp_path: Path, case: Callable[[], onnx.ModelProto]
) -> None:
    loaded = check_outputs(tmp_path, case(), ISA, profiled=False, jobs=1)
    assert all(layer.fallback is None for layer in loaded.manifest.layers)


@(settings() if settings.get_current_profile_name() == "many" else FEW)
@given(graphs())
def test_random_graphs_agree_with_onnx_runtime(model: onnx.ModelProto) -> None:
    assume(is_settled(model))
    with tempfile.TemporaryDirectory() as folder:
        check_outputs(Path(folder), model, ISA, profiled=False, jobs=1)
