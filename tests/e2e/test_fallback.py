"""What can't be compiled runs on ONNX Runtime within the model, and agrees with it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from compiling import check_outputs, compiled
from fallback_models import (
    FLOAT,
    between_convolutions,
    large_weights,
    model_of,
    no_numbers,
    node,
    nothing_compiled,
    selections,
    shapes_of_the_data,
    subgraphs,
    value,
    words,
)
from onnx import helper

from veltair.eval.children import python
from veltair.runtime.artifact import available_isa
from veltair.runtime.errors import (
    ArtifactError,
    InputError,
    KernelError,
    UnsupportedOperatorError,
)
from veltair.runtime.manifest import Manifest
from veltair.runtime.model import Model

ISA = available_isa()
pytestmark = pytest.mark.skipif(ISA is None, reason="this CPU can't run kernels")


# What falls back of each, by the nodes' names.
CASES: dict[Callable[[], onnx.ModelProto], list[set[str]]] = {
    between_convolutions: [{"n_v"}],
    shapes_of_the_data: [{"n_where", "n_rows", "n_chosen", "n_total", "n_count"}],
    subgraphs: [{"n_chosen", "n_looped", "n_both", "n_y"}],  # a loop may change its state's shape
    no_numbers: [{"n_text", "n_back", "n_parts", "n_whole", "n_y"}],
    nothing_compiled: [{"n_d", "n_y"}],
    large_weights: [{"n_y"}],
}
# Of those, which fall back for their own sake, where not all of them do.
ROOTS = {
    shapes_of_the_data: {"n_where"},
    subgraphs: {"n_chosen", "n_looped"},
    no_numbers: {"n_text", "n_parts"},
}


def segments(manifest: Manifest) -> list[set[str]]:
    return [set(layer.nodes) for layer in manifest.layers if layer.fallback is not None]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_outputs_agree_with_onnx_runtime(
    tmp_path: Path, case: Callable[[], onnx.ModelProto]
) -> None:
    loaded = check_outputs(tmp_path, case(), ISA)
    assert segments(loaded.manifest) == CASES[case]
    for layer in loaded.manifest.layers:
        if layer.fallback is not None:
            assert layer.op.startswith("fallback ")
            assert layer.fallback.reasons
            assert {v.algorithm for v in layer.variants} == {"onnxruntime"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_strict_refuses_and_names_the_nodes(
    tmp_path: Path, case: Callable[[], onnx.ModelProto]
) -> None:
    with pytest.raises(UnsupportedOperatorError) as caught:
        compiled(tmp_path, case(), ISA, strict=True)
    named = {node for node in set().union(*CASES[case]) if f"'{node}'" in str(caught.value)}
    assert named == ROOTS.get(case, CASES[case][0])


def test_weights_are_stored_once(tmp_path: Path) -> None:
    folder = compiled(tmp_path, large_weights(), ISA).folder
    assert (folder / "fallback.bin").stat().st_size == 2 * 64 * 64 * 4
    assert (folder / "fallback0.onnx").stat().st_size < 4096


@pytest.mark.parametrize("name", ["fallback0.onnx", "fallback.bin"])
def test_a_damaged_segment_is_refused(tmp_path: Path, name: str) -> None:
    folder = compiled(tmp_path, large_weights(), ISA).folder
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 0xFF
    (folder / name).write_bytes(data)
    with pytest.raises(ArtifactError, match="its content differs from what was compiled"):
        Model.load(folder)


@pytest.mark.parametrize("case", [selections, words], ids=lambda case: case.__name__)
def test_outputs_that_carry_their_shapes_agree_with_onnx_runtime(
    tmp_path: Path, case: Callable[[], onnx.ModelProto]
) -> None:
    loaded = check_outputs(tmp_path, case(), ISA)
    shapes = {o.name: (o.dtype, o.shape) for o in loaded.manifest.outputs if o.is_framed}
    if case is selections:
        assert shapes == {
            "where": ("int64", (2, -1)),
            "chosen": ("float32", (-1,)),
            "large": ("bool", (-1,)),
        }
    else:
        assert shapes == {"joined": ("string", (2, 3)), "parts": ("string", (2, 3, -1))}


def test_an_output_without_room_fails_the_run_and_says_how_much_it_needs(tmp_path: Path) -> None:
    room = 16 * 24
    loaded = compiled(tmp_path, selections(), ISA, most_bytes={"where": room}, profiled=False)
    few = np.zeros((5, 7), np.float32)
    few[0, :2] = 1.0
    assert loaded.run({"x": few})["where"].tolist() == [[0, 0], [0, 1]]
    many = np.ones((5, 7), np.float32)
    with pytest.raises(KernelError, match=rf"'where' has 560 bytes, room is for {room}; .*=560"):
        loaded.run({"x": many})
    assert loaded.run({"x": few})["chosen"].tolist() == [1.0, 1.0]


def test_strings_of_another_shape_are_refused(tmp_path: Path) -> None:
    loaded = compiled(tmp_path, words(), ISA)
    good = np.full((2, 3), "a", np.object_)
    for bad in (np.full((3, 2), "b", np.object_), np.zeros((1, 3))):
        with pytest.raises(InputError, match=r"'b': .* must be strings of shape \[1, 3\]"):
            loaded.run({"a": good, "b": bad})
    huge = np.full((1, 3), "b" * 400_000, np.object_)
    with pytest.raises(InputError, match=r"b: has 1200012 bytes .* at most 1048576"):
        loaded.run({"a": good, "b": huge})


def test_room_for_what_has_a_fixed_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--most-bytes r=\.\.\.: .* those are: where, chosen"):
        compiled(tmp_path, selections(), ISA, most_bytes={"r": 64})


def test_an_output_that_is_no_tensor_is_refused(tmp_path: Path) -> None:
    parts = helper.make_tensor_sequence_value_info("y", FLOAT, None)
    model = model_of([node("SplitToSequence", "x", "y")], [value("x", [2])], [parts])
    with pytest.raises(InputError, match="'y' is a sequence; clients send and receive tensors"):
        compiled(tmp_path, model, ISA)


def test_a_segment_has_as_many_threads_as_cores_where_nobody_chooses(tmp_path: Path) -> None:
    loaded = compiled(tmp_path, nothing_compiled(), ISA, profiled=False)
    (layer,) = loaded.manifest.layers
    threads = [variant.parallel_extent for variant in layer.variants]
    cores = len(loaded.cpus)
    assert threads[0] == 1
    assert threads[-1] == cores
    for count in range(1, cores + 1):
        fitting = threads[layer.usual_variant(count)]
        assert fitting <= count
        assert not any(fitting < other <= count for other in threads)


def test_the_benchmark_compares_a_model_that_falls_back_with_onnx_runtime(tmp_path: Path) -> None:
    path, saved = tmp_path / "model.onnx", tmp_path / "result.json"
    onnx.save(shapes_of_the_data(), path)
    options = ["--cores", "1", "--seconds", "0.1", "--json", str(saved)]
    subprocess.run(python("veltair.eval.bench_fallback", str(path), *options), check=True)
    (case,) = json.loads(saved.read_text())["cases"]
    assert case["model"] == "model"
    assert [engine["engine"] for engine in case["engines"]] == ["veltair", "onnxruntime"]
    assert case["engines"][1]["ratio"]["p50"] > 0
