"""What bad models get, and what only looks like one."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import onnx
import pytest
from bad_models import CASES, Case, X, Y, external, functions, nested, relu_model, sparse, weighted
from fallback_models import model_of, node, value
from onnx import TensorProto, helper, numpy_helper

from veltair.compiler import clean, inference, onnx_process
from veltair.compiler.front import Front, Source, read_graph
from veltair.compiler.onnx_process import OnnxProcess
from veltair.runtime.errors import InputError


def read(path: Path) -> Front:
    return read_graph(Source(path=path, shapes={}, lanes=8))


def saved(folder: Path, model: onnx.ModelProto) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_bad_model_is_refused_by_name(tmp_path: Path, case: Case) -> None:
    path = case.write(tmp_path)
    with pytest.raises(case.error, match=case.message) as caught:
        read(path)
    said = str(caught.value)
    assert type(caught.value) is case.error
    assert "/onnxruntime_src" not in said
    assert "veltair-clean" not in said


@pytest.mark.parametrize("share", [*range(5, 100, 5), 99])
def test_a_model_that_ends_anywhere_is_refused(tmp_path: Path, share: int) -> None:
    weight = numpy_helper.from_array(np.ones((2, 30, 3), np.float32))
    data = weighted(weight).SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes(data[: len(data) * share // 100])
    with pytest.raises(InputError):
        read(path)


def test_infinite_weights_pass(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.array([0, -np.inf, np.inf], np.float32))
    assert read(saved(tmp_path, weighted(weight))).graph.outputs == ("y",)


def test_nan_that_is_chosen_or_unread_passes(tmp_path: Path) -> None:
    nodes = [node("IsNaN", "x", "c"), node("Where", "c w x", "y")]
    nan = np.full(3, np.nan, np.float32)
    model = model_of(nodes, [X], [Y], w=nan, unread=nan)
    assert read(saved(tmp_path, model)).graph.outputs == ("y",)
    model.graph.node.append(node("Add", "x w", "z"))
    with pytest.raises(InputError, match=r"'w' of operator Add.*3 of 3 elements are NaN"):
        read(saved(tmp_path, model))


def test_nodes_in_any_order_are_read(tmp_path: Path) -> None:
    nodes = [node("Exp", "b", "y"), node("Relu", "a", "b"), node("Neg", "x", "a")]
    front = read(saved(tmp_path, model_of(nodes, [X], [Y])))
    assert [n.op_type for n in front.model.graph.node] == ["Neg", "Relu", "Exp"]


def test_a_sparse_weight_is_read(tmp_path: Path) -> None:
    weight = read(saved(tmp_path, sparse([1, 5], [2, 3]))).graph.tensors["w"].data
    assert weight is not None
    assert weight.tolist() == [[0, 1, 0], [0, 0, 1]]


def test_external_data_is_read_from_its_place(tmp_path: Path) -> None:
    path = external(tmp_path, size=64, offset=16, length=24)
    numbers = np.arange(16, dtype=np.float32)
    (path.parent / "weights.bin").write_bytes(numbers.tobytes())
    weight = read(path).graph.tensors["w"].data
    assert weight is not None
    assert weight.tolist() == [[4, 5, 6], [7, 8, 9]]


def test_nan_in_external_data_is_found(tmp_path: Path) -> None:
    path = external(tmp_path)
    (path.parent / "weights.bin").write_bytes(np.full(6, np.nan, np.float32).tobytes())
    with pytest.raises(InputError, match=r"'w' of operator Add.*6 of 6 elements are NaN"):
        read(path)


def test_conditions_within_each_other_are_read(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(nested(20))
    assert [op.kind for op in read(path).graph.ops] == ["Fallback"]


def test_functions_are_put_in_the_place_of_their_calls(tmp_path: Path) -> None:
    calls = {f"f{i}": [f"f{i + 1}"] * 2 for i in range(4)}
    front = read(saved(tmp_path, functions(calls | {"f4": ["Relu", "Exp"]})))
    assert [n.op_type for n in front.model.graph.node] == ["Relu", "Exp"] * 16


def test_functions_that_call_on_and_on_are_refused(tmp_path: Path) -> None:
    calls = {f"f{i}": [f"f{i + 1}"] for i in range(3000)}
    with pytest.raises(InputError, match="more than 64 functions call each other in turn"):
        read(saved(tmp_path, functions(calls | {"f3000": ["Relu"]})))


def test_a_row_too_long_to_follow_is_read(tmp_path: Path) -> None:
    half = np.arange(1 << 20)
    nodes = [node("Concat", "a b", "all", axis=0), node("Gather", "all i", "y")]
    model = model_of(
        nodes, [value("i", [2], TensorProto.INT64)], [value("y", None, TensorProto.INT64)],
        a=half, b=half + 7,
    )  # fmt: skip
    assert read(saved(tmp_path, model)).graph.outputs == ("y",)


def test_a_type_within_a_sequence_is_checked(tmp_path: Path) -> None:
    model = relu_model()
    model.graph.value_info.append(
        helper.make_tensor_sequence_value_info("s", 999, None)  # no such type
    )
    with pytest.raises(InputError, match="value 's' is of type 999"):
        read(saved(tmp_path, model))


def test_bounds_that_are_rows_are_left_to_others(tmp_path: Path) -> None:
    model = model_of([node("Clip", "x low", "y")], [X], [Y], low=np.zeros(3, np.float32))
    assert read(saved(tmp_path, model)).graph.outputs == ("y",)


def test_a_crash_of_onnx_runtime_costs_nothing_else(tmp_path: Path) -> None:
    crash = CASES["parts_of_nothing"].write(tmp_path)
    for _ in range(2):
        with pytest.raises(InputError, match="crashes on it"):
            read(crash)
        assert read(saved(tmp_path, relu_model())).graph.outputs == ("y",)
        crash = CASES["parts_of_nothing"].write(tmp_path)


# The real child, which crashes, or comes to no end, wherever a name says so.
CHILD = """
    import os, signal
    from veltair.compiler import onnx_child

    def changed(real, endless, fatal=None):
        def function(before, after, **options):
            content = before.read_bytes()
            if fatal and fatal in content:
                os.kill(os.getpid(), signal.SIGSEGV)
            while endless in content:
                pass
            real(before, after, **options)
        return function

    onnx_child.infer = changed(onnx_child.infer, b"endless", b"fatal")
    onnx_child.clean = changed(onnx_child.clean, b"ceaseless")
    onnx_child.main()
"""


@pytest.mark.parametrize(
    ("name", "opset", "said"),
    [
        ("fatal", 17, r"ONNX's inference crashes on it \(SIGSEGV\); export it again"),
        ("fatal", 6, r"opset 6, .*ONNX's inference crashes on it \(SIGSEGV\)\); export the"),
        ("endless", 17, r"no end on it \(more than 1 s of processor time\); export it again"),
        ("ceaseless", 17, r"Runtime comes to no end with it \(more than 1 s of pro.* check what"),
    ],
)
def test_a_crash_or_hang_costs_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, opset: int, said: str
) -> None:
    process = OnnxProcess([sys.executable, "-c", textwrap.dedent(CHILD)])
    for module in (clean, inference):
        monkeypatch.setattr(module, "onnx_process", lambda: process)
    monkeypatch.setattr(onnx_process, "MOST_CPU_S", {"clean": 1, "infer": 1})
    crash = tmp_path / "crash.onnx"
    model = model_of([node("Relu", "x", name), node("Exp", name, "y")], [X], [Y])
    model.opset_import[0].version = opset
    onnx.save(model, crash)
    try:
        for _ in range(2):
            with pytest.raises(InputError, match=f"crash.onnx: .*{said}"):
                read(crash)
            assert read(saved(tmp_path, relu_model())).graph.outputs == ("y",)
    finally:
        process.stop()


def test_a_large_parent_keeps_its_child() -> None:
    """What the child has used counts, and not what it was started by has."""
    code = "from veltair.compiler.onnx_child import most_used_bytes; print(most_used_bytes())"
    held = np.ones(512 << 20, np.uint8)
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(child.stdout) < held.nbytes
