"""Models that ONNX Runtime refuses, which are cleaned, compiled and compared without it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from veltair.compiler.clean import load_clean
from veltair.compiler.definitions import inline
from veltair.compiler.fold import fold_constants
from veltair.compiler.front import Source, read_graph
from veltair.compiler.reference import reference_run
from veltair.runtime.errors import InputError, UnsupportedOperatorError


def model_of(
    nodes: Sequence[onnx.NodeProto],
    elem: int,
    *,
    weights: Sequence[onnx.TensorProto] = (),
    opset: int = 28,
) -> onnx.ModelProto:
    """Nodes from `x` to `y`, both of 600 elements."""
    ends = [helper.make_tensor_value_info(name, elem, [600]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def saved(folder: Path, model: onnx.ModelProto) -> Path:
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


def shifting() -> onnx.ModelProto:
    """`x` shifted by a sum of constants, of a type that ONNX Runtime doesn't shift."""
    ones = np.ones(600, np.int16)
    return model_of(
        [
            helper.make_node("Add", ["one", "one"], ["two"]),
            helper.make_node("BitShift", ["x", "two"], ["y"], direction="LEFT"),
        ],
        TensorProto.INT16,
        weights=[numpy_helper.from_array(ones, "one")],
    )


def test_constants_are_folded_and_weights_kept(tmp_path: Path) -> None:
    model = load_clean(saved(tmp_path, shifting()), {})
    assert [n.op_type for n in model.graph.node] == ["BitShift"]
    two = next(t for t in model.graph.initializer if t.name == "two")
    assert (numpy_helper.to_array(two) == 2).all()


@pytest.mark.parametrize("typed", [True, False])
def test_a_definition_may_read_an_output_of_the_graph(typed: bool) -> None:
    """Whether its type is known or not."""
    model = model_of(
        [
            helper.make_node("Relu" if typed else "Unheard", ["x"], ["r"]),
            helper.make_node("Clip", ["r", "", "most"], ["y"]),
        ],
        TensorProto.FLOAT,
        weights=[numpy_helper.from_array(np.float32(6), "most")],
        opset=13,
    )
    model.graph.output.append(onnx.ValueInfoProto(name="r"))
    kinds = {node.op_type for node in inline(model, {"Clip"}).graph.node}
    assert "Clip" not in kinds


def test_nodes_are_put_in_order(tmp_path: Path) -> None:
    """ONNX Runtime would do so."""
    model = shifting()
    model.graph.node.extend(
        [
            helper.make_node("Identity", ["late"], ["z"]),
            helper.make_node("BitShift", ["y", "two"], ["late"], direction="RIGHT"),
        ]
    )
    model.graph.node.reverse()
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.INT16, [600]))
    path = saved(tmp_path, model)
    made = {*(t.name for t in model.graph.initializer), "x"}
    for node in load_clean(path, {}).graph.node:
        assert made >= {name for name in node.input if name != "two"}
        made.update(node.output)
    assert {"y", "z"} <= made
    read_graph(Source(path=path, shapes={}, lanes=16, values={}))


def test_a_node_that_draws_is_not_folded() -> None:
    nodes = [
        helper.make_node("RandomUniformLike", ["one"], ["r"]),
        helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    one = numpy_helper.from_array(np.ones(600, np.float32), "one")
    folded = fold_constants(model_of(nodes, TensorProto.FLOAT, weights=[one]))
    assert [n.op_type for n in folded.graph.node] == ["RandomUniformLike", "Add"]


def test_the_definition_runs_where_the_runtime_does_not() -> None:
    x = np.arange(600, dtype=np.int16)
    (y,) = reference_run(shifting())({"x": x})
    assert (y == x << 2).all()


def test_a_type_that_an_operator_lacks_is_no_model(tmp_path: Path) -> None:
    node = helper.make_node("BitShift", ["x", "x"], ["y"], direction="LEFT")
    with pytest.raises(InputError, match=r"BitShift_0.*not valid: Type Error"):
        load_clean(saved(tmp_path, model_of([node], TensorProto.FLOAT)), {})


def test_what_nothing_runs_is_refused_by_name(tmp_path: Path) -> None:
    node = helper.make_node("Elu", ["x"], ["y"], name="last")
    path = saved(tmp_path, model_of([node], TensorProto.BFLOAT16))
    with pytest.raises(UnsupportedOperatorError, match=r"Elu 'last'.*can't run it either"):
        read_graph(Source(path=path, shapes={}, lanes=8))


def test_a_model_of_an_old_opset_is_converted(tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["x", "b"], ["y"], broadcast=1, axis=0)]
    b = numpy_helper.from_array(np.ones(600, np.float32), "b")
    path = saved(tmp_path, model_of(nodes, TensorProto.FLOAT, weights=[b], opset=6))
    model = load_clean(path, {})
    assert [n.op_type for n in model.graph.node] == ["Add"]
    assert not model.graph.node[0].attribute


def test_slopes_of_an_old_opset_are_the_channels(tmp_path: Path) -> None:
    slope = numpy_helper.from_array(np.float32([0.5, 2.0]), "slope")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2, 3]) for name in "xy"]
    node = helper.make_node("PRelu", ["x", "slope"], ["y"])
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], [slope])
    old = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 6)])
    model = load_clean(saved(tmp_path, old), {})
    (y,) = reference_run(model)({"x": np.full((1, 2, 3), -1, np.float32)})
    assert y[0].tolist() == [[-0.5] * 3, [-2.0] * 3]


@pytest.mark.parametrize("reads", [[], ["x"], ["x", ""]])
def test_a_lost_slope_of_an_old_opset_is_named(tmp_path: Path, reads: list[str]) -> None:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 3]) for name in "xy"]
    node = helper.make_node("PRelu", reads, ["y"])
    graph = helper.make_graph([node], "g", ends[:1], ends[1:])
    old = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 1)])
    with pytest.raises(InputError, match=r"operator PRelu.*not valid.*input"):
        load_clean(saved(tmp_path, old), {})
