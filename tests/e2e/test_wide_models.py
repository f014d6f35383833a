"""Weights that a file of ONNX can't hold, and weights of half the width."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from compiling import Quiet, check_outputs
from fallback_models import INT64, model_of, node, value
from onnx import TensorProto

from veltair.compiler.pipeline import CompileOptions, compile_model
from veltair.compiler.target_options import choose_isa
from veltair.runtime.artifact import available_isa
from veltair.runtime.machine import available_memory_bytes
from veltair.runtime.model import Model

ISA = available_isa()
pytestmark = pytest.mark.skipif(ISA is None, reason="this CPU can't run kernels")
_ROWS, _COLUMNS = 530_000, 1024  # of float32: 2.2 GB
_NEEDED_BYTES = 12 << 30


def large_table(folder: Path) -> Path:
    """Rows are looked up in a table that lies outside of the model, in a file that is all holes
    but for what is read of it, and multiplied."""
    model = model_of(
        [node("Gather", "table rows", "found"), node("MatMul", "found w", "y")],
        [value("rows", [3], INT64)],
        [value("y", [3, 8])],
        w=np.ones((_COLUMNS, 8), np.float32),
    )
    table = model.graph.initializer.add(name="table", data_type=TensorProto.FLOAT)
    table.dims[:] = [_ROWS, _COLUMNS]
    table.data_location = TensorProto.EXTERNAL
    table.external_data.add(key="location", value="table.bin")
    with (folder / "table.bin").open("wb") as file:
        file.truncate(4 * _ROWS * _COLUMNS)
        for row in (0, 7, _ROWS - 1):
            file.seek(4 * row * _COLUMNS)
            file.write(np.full(_COLUMNS, row % 100 + 1, np.float32).tobytes())
    path = folder / "table.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.skipif(
    available_memory_bytes() < _NEEDED_BYTES, reason=f"it needs {_NEEDED_BYTES >> 30} GiB of memory"
)
def test_a_model_over_2_gb_is_compiled(tmp_path: Path) -> None:
    options = CompileOptions(
        model=large_table(tmp_path),
        repository=tmp_path / "repository",
        name="table",
        version=1,
        qos_ns=0,
        shapes={},
        isa=choose_isa("auto"),
        jobs=2,
        force=False,
        strict=True,
        profiled=False,
    )
    compile_model(options, Quiet())
    assert (options.target / "weights.bin").stat().st_size > 1 << 31
    found = Model.load(options.target).run({"rows": np.array([0, _ROWS - 1, 7])})["y"]
    assert found.tolist() == [[1024.0 * n] * 8 for n in (1, (_ROWS - 1) % 100 + 1, 8)]


def half_model() -> onnx.ModelProto:
    """All of it in float16: a convolution, a normalisation folded into it, and a product."""
    rng = np.random.default_rng(0)
    half = TensorProto.FLOAT16
    return model_of(
        [
            node("Conv", "x w", "c", pads=[1, 1, 1, 1]),
            node("BatchNormalization", "c s b m v", "n"),
            node("Relu", "n", "r"),
            node("GlobalAveragePool", "r", "p"),
            node("Flatten", "p", "f"),
            node("Gemm", "f u", "y"),
        ],
        [value("x", [1, 3, 9, 9], half)],
        [value("y", [1, 5], half)],
        w=(rng.standard_normal((8, 3, 3, 3)) / 5).astype(np.float16),
        u=rng.standard_normal((8, 5)).astype(np.float16),
        **{name: (rng.random(8) + 0.5).astype(np.float16) for name in "sbmv"},
    )


def halved_weights() -> onnx.ModelProto:
    """Weights of float16 that the graph makes float32 before it uses them."""
    rng = np.random.default_rng(0)
    return model_of(
        [
            node("Cast", "w", "w32", to=TensorProto.FLOAT),
            node("Conv", "x w32", "c", pads=[1, 1, 1, 1]),
            node("Relu", "c", "r"),
            node("Gather", "table rows", "found"),
            node("Cast", "found", "found32", to=TensorProto.FLOAT),
            node("Add", "r found32", "y"),
        ],
        [value("x", [1, 3, 9, 9]), value("rows", [9], INT64)],
        [value("y", [1, 8, 9, 9])],
        w=(rng.standard_normal((8, 3, 3, 3)) / 5).astype(np.float16),
        table=rng.standard_normal((20, 9)).astype(np.float16),
    )


def test_weights_of_half_the_width_that_are_cast_are_compiled(tmp_path: Path) -> None:
    loaded = check_outputs(tmp_path, halved_weights(), choose_isa("auto"), profiled=False)
    assert not [layer for layer in loaded.manifest.layers if layer.fallback is not None]


def test_a_model_of_half_the_width_is_run(tmp_path: Path) -> None:
    loaded = check_outputs(tmp_path, half_model(), choose_isa("auto"), profiled=False)
    assert loaded.manifest.inputs[0].dtype == "float16"
