"""A model of one sample as one of a batch: what is rewritten, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from veltair.compiler.batching import Batcher
from veltair.compiler.front import Front, Source, read_graph
from veltair.runtime.errors import InputError


def source_of(
    tmp_path: Path,
    nodes: Sequence[onnx.NodeProto],
    shape: Sequence[int],
    constants: dict[str, np.ndarray],
) -> Source:
    """A saved model from `x` to the last node's output."""
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [onnx.ValueInfoProto(name=nodes[-1].output[0])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return Source(path=path, shapes={}, lanes=8)


def refusal(source: Source, front: Front, size: int) -> str:
    def batch() -> None:
        batcher = Batcher(source, front)
        several = batcher.batched(size)
        batcher.graph(several)
        batcher.reference(several, size)

    with pytest.raises(InputError) as caught:
        batch()
    return str(caught.value)


@pytest.mark.parametrize(
    ("target", "read", "written"),
    [
        ([1, -1], (1, 3, 4), (5, 12)),
        ([1, 12], (1, 3, 4), (5, 12)),
        ([-1, 12], (1, 3, 4), (5, 12)),
        ([0, -1], (1, 3, 4), (5, 12)),
        ([3, 4], (1, 3, 4), (15, 4)),  # samples flattened into rows
        ([1, 2, 6], (3, 4), (5, 2, 6)),  # and back
        ([3, 2, -1], (1, 3, 4), (15, 2, 2)),
    ],
)
def test_reshapes_mean_whatever_number_of_samples(
    tmp_path: Path, target: list[int], read: tuple[int, ...], written: tuple[int, ...]
) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Reshape", ["r", "target"], ["y"]),
    ]
    source = source_of(tmp_path, nodes, read, {"target": np.array(target)})
    batcher = Batcher(source, read_graph(source))
    several = batcher.batched(5)
    assert batcher.graph(several).tensors["y"].shape == written
    reference = batcher.reference(several, 5)
    assert reference is not None
    assert reference.expected[0].shape == written
    np.testing.assert_array_equal(
        reference.expected[0].ravel(), np.maximum(reference.feed["x"], 0).ravel()
    )


def test_a_constant_that_others_read_stays(tmp_path: Path) -> None:
    """The shape of a reshape is also what is added up."""
    nodes = [
        helper.make_node("Reshape", ["x", "target"], ["r"]),
        helper.make_node("Cast", ["target"], ["c"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["r", "c"], ["y"]),
    ]
    source = source_of(tmp_path, nodes, (1, 2), {"target": np.array([1, 2])})
    batcher = Batcher(source, read_graph(source))
    reference = batcher.reference(batcher.batched(3), 3)
    assert reference is not None
    np.testing.assert_array_equal(reference.expected[0], reference.feed["x"] * [1, 2])


def test_resize_to_sizes(tmp_path: Path) -> None:
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="nearest")
    source = source_of(tmp_path, [node], (1, 2, 4, 4), {"sizes": np.array([1, 2, 8, 8])})
    batcher = Batcher(source, read_graph(source))
    assert batcher.graph(batcher.batched(4)).tensors["y"].shape == (4, 2, 8, 8)


def test_constants_are_those_of_one_sample(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    weight = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
    source = source_of(tmp_path, nodes, (1, 16), {"w": weight})
    front = read_graph(source)
    batcher = Batcher(source, front)
    several = batcher.graph(batcher.batched(2))
    one = [t.data for t in front.graph.tensors.values() if t.data is not None]
    assert one
    assert all(any(t.data is data for t in several.tensors.values()) for data in one)


def test_samples_that_are_not_independent(tmp_path: Path) -> None:
    node = helper.make_node("Softmax", ["x"], ["y"], axis=0)
    source = source_of(tmp_path, [node], (2, 3), {})
    text = refusal(source, read_graph(source), 4)
    assert "--batch 4: output 'y' of a batch differs from its samples' own" in text


def test_an_output_without_samples(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="first"),
        helper.make_node("ReduceSum", ["r"], ["y"], name="total", keepdims=0),
    ]
    source = source_of(tmp_path, nodes, (1, 3), {})
    text = refusal(source, read_graph(source), 2)
    assert "output 'y' would be []" in text
    assert "node 'total'" in text
    assert "leave out --batch" in text


def test_a_node_that_takes_one_sample_only(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Squeeze", ["x", "first"], ["s"], name="drop"),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    source = source_of(tmp_path, nodes, (1, 3), {"first": np.array([0])})
    text = refusal(source, read_graph(source), 2)
    assert "--batch 2" in text
    assert "drop" in text


def test_an_input_without_dimensions(tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    source = source_of(tmp_path, [node], (), {})
    text = refusal(source, read_graph(source), 2)
    assert "input 'x' has no first dimension" in text


def test_outputs_whose_size_only_a_value_tells(tmp_path: Path) -> None:
    node = helper.make_node("NonZero", ["x"], ["y"])
    source = source_of(tmp_path, [node], (1, 4), {})
    text = refusal(source, read_graph(source), 2)
    assert "only its value tells the size of 'y'" in text
