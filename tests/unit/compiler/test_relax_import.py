"""Regions lowered through Relax: names, constants, and what can't be lowered."""

from __future__ import annotations

import signal
from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from veltair.compiler import relax_import
from veltair.compiler.clean import infer_shapes
from veltair.compiler.graph import Graph, Op, from_model
from veltair.compiler.relax_import import Region, copy_function, lower_region
from veltair.runtime.errors import UnsupportedOperatorError


def region_of(
    nodes: list[onnx.NodeProto], outputs: list[str], weights: Sequence[onnx.TensorProto] = ()
) -> tuple[Graph, Op]:
    """All nodes as one `Default` operation over `x`, float32[1, 4, 8]."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 8])],
        [onnx.ValueInfoProto(name=n) for n in outputs],
        list(weights),
    )
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 18)])
    imported = from_model(infer_shapes(model))
    operation = Op(
        kind="Default",
        inputs=("x",),
        outputs=tuple(outputs),
        nodes=("first",),
        protos=tuple(model.graph.node),
    )
    return imported, operation


def lowered(nodes: list[onnx.NodeProto], outputs: list[str]) -> Region:
    graph, operation = region_of(nodes, outputs)
    return lower_region(graph, operation, {})


def test_several_outputs_and_values_that_are_the_same() -> None:
    region = lowered(
        [
            helper.make_node("Split", ["x"], ["a", "b"], axis=1, num_outputs=2),
            helper.make_node("Relu", ["a"], ["r"]),
            helper.make_node("Identity", ["r"], ["same"]),
            helper.make_node("Identity", ["x"], ["input"]),
        ],
        ["same", "r", "b", "input"],
    )
    assert [(c.name, c.inputs, c.outputs) for c in region.calls] == [
        ("split", ("x",), ("first/lv.0", "b")),
        ("fused_relu", ("first/lv.0",), ("same",)),
        ("copy", ("same",), ("r",)),
        ("copy", ("x",), ("input",)),
    ]
    assert region.shapes == {"first/lv.0": ((1, 2, 8), "float32")}


@pytest.mark.parametrize("rows", [100, 50_000])
def test_a_large_constant_of_one_value_is_computed(rows: int) -> None:
    """A file of a few bytes can ask for gigabytes, which must not lie among the weights."""
    sizes = numpy_helper.from_array(np.array([rows, 1, 8]), "s")
    fill = numpy_helper.from_array(np.float32([2.5]))
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["c"], value=fill),
        helper.make_node("Mul", ["x", "c"], ["y"]),
    ]
    graph, operation = region_of(nodes, ["y"], [sizes])
    calls = lower_region(graph, operation.replaced(inputs=("x", "s")), {"s": (3,)}).calls
    assert calls[-1].outputs == ("y",)
    constants = [i for call in calls for i in call.inputs if not isinstance(i, str)]
    assert sum(constant.size for constant in constants) == (0 if rows > 100 else rows * 8)


def test_elementwise_run_becomes_one_kernel() -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Neg", ["e"], ["n"]),
        helper.make_node("Sqrt", ["e"], ["s"]),
        helper.make_node("Add", ["n", "s"], ["y"]),
    ]
    (call,) = lowered(nodes, ["y"]).calls
    assert (call.inputs, call.outputs) == (("x",), ("y",))


@pytest.mark.filterwarnings("ignore:No Op registered")  # TVM's own, before it refuses
def test_node_without_lowering_is_the_one_that_is_named() -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["e"], name="fine"),
        helper.make_node("Neg", ["e"], ["h"], name="odd"),
    ]
    graph, operation = region_of(nodes, ["h"])
    unheard = onnx.NodeProto()
    unheard.CopyFrom(helper.make_node("Unheard", ["e"], ["h"], name="odd"))
    broken = operation.replaced(protos=(operation.protos[0], unheard))
    with pytest.raises(UnsupportedOperatorError, match=r"Unheard, node 'odd' \(from e to h\)"):
        lower_region(graph, broken, {})


def test_constant_operand_is_kept_as_an_array() -> None:
    value = onnx.numpy_helper.from_array(np.arange(8, dtype=np.float32), "k")
    nodes = [
        helper.make_node("Constant", [], ["k"], value=value),
        helper.make_node("Add", ["x", "k"], ["y"]),
    ]
    graph, operation = region_of(nodes, ["y"])
    operation = operation.replaced(inputs=("x", "k"), protos=operation.protos[1:])
    (call,) = lower_region(graph, operation, {"k": (8,)}).calls
    (constant,) = (i for i in call.inputs if not isinstance(i, str))
    assert np.array_equal(constant.reshape(-1), np.arange(8, dtype=np.float32))


def test_operator_that_relax_imports_but_cannot_lower_is_named() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="fine"),
        helper.make_node("TopK", ["r", "k"], ["v", "i"], name="top"),
    ]
    weight = onnx.numpy_helper.from_array(np.array([3]), "k")
    graph, operation = region_of(nodes, ["v", "i"], [weight])
    operation = operation.replaced(inputs=("x", "k"))
    with pytest.raises(UnsupportedOperatorError, match=r"TopK, node 'top'.*relax\.topk"):
        lower_region(graph, operation, {"k": (1,)})


def test_a_scalar_that_has_a_dimension_is_copied_into_one_that_has_none() -> None:
    function = copy_function((), "float32", (1,))
    assert [tuple(map(int, buffer.shape)) for buffer in function.params] == [(1,), ()]


def test_padding_whose_table_would_fill_the_memory_is_no_kernel() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="fine"),
        helper.make_node("Pad", ["r", "pads"], ["y"], name="wide", mode="edge"),
    ]
    pads = onnx.numpy_helper.from_array(np.array([0, 0, 0, 0, 0, 2**31]), "pads")
    graph, operation = region_of(nodes, ["y"], [pads])
    operation = operation.replaced(inputs=("x", "pads"))
    with pytest.raises(UnsupportedOperatorError, match=r"Pad.*by edge to 21474836\d\d elements"):
        lower_region(graph, operation, {"pads": (6,)})


def test_resizing_whose_table_would_fill_the_memory_is_no_kernel() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="fine"),
        helper.make_node("Resize", ["r", "", "", "sizes"], ["y"], name="wide", mode="linear"),
    ]
    sizes = onnx.numpy_helper.from_array(np.array([1, 4, 2**31]), "sizes")
    graph, operation = region_of(nodes, ["y"], [sizes])
    operation = operation.replaced(inputs=("x", "sizes"))
    with pytest.raises(UnsupportedOperatorError, match=r"Resize.*interpolation to 2147483648"):
        lower_region(graph, operation, {"sizes": (3,)})


def test_an_interrupt_stays_one_though_tvm_fails_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> None:
        signal.raise_signal(signal.SIGINT)
        raise RuntimeError

    monkeypatch.setattr(relax_import._Lowering, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lowered([helper.make_node("Relu", ["x"], ["y"])], ["y"])
