"""What the front end reads, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from veltair.compiler.clean import infer_shapes, load_clean
from veltair.compiler.inference import value_shapes
from veltair.runtime.errors import InputError, UnsupportedOperatorError


def conv_bn_model(shape: list[int | str], opset: int = 17) -> onnx.ModelProto:
    """A convolution and a batch normalisation, the weight listed among the inputs too."""
    rng = np.random.default_rng(0)

    def weight(name: str, *dims: int) -> onnx.TensorProto:
        return numpy_helper.from_array(rng.random(dims, dtype=np.float32) + 0.5, name)

    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["y"], name="bn"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 3, 3, 3]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [weight("w", 4, 3, 3, 3), *(weight(n, 4) for n in "sbmv")],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", opset)])


def saved(tmp_path: Path, model: onnx.ModelProto) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    return path


def test_batch_norm_is_folded_and_weights_are_no_inputs(tmp_path: Path) -> None:
    model = load_clean(saved(tmp_path, conv_bn_model([1, 3, 8, 8])), {})
    assert [n.op_type for n in model.graph.node] == ["Conv"]
    assert [i.name for i in model.graph.input] == ["x"]
    assert value_shapes(model)["y"][0] == (1, 4, 8, 8)


def test_symbolic_dimension_is_bound_by_shape(tmp_path: Path) -> None:
    path = saved(tmp_path, conv_bn_model(["n", 3, "h", "w"]))
    model = load_clean(path, {"x": (2, 3, 6, 5)})
    assert value_shapes(model)["y"][0] == (2, 4, 6, 5)


def test_symbolic_dimension_without_shape_names_input_and_example(tmp_path: Path) -> None:
    path = saved(tmp_path, conv_bn_model(["n", 3, "h", "w"]))
    with pytest.raises(InputError, match=r"'x'.*--shape x=1,3,224,224"):
        load_clean(path, {})


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"z": (1, 3, 8, 8)}, "no such input"),
        ({"x": (1, 4, 8, 8)}, "doesn't fit"),
        ({"x": (3, 8, 8)}, "doesn't fit"),
    ],
)
def test_shape_that_does_not_fit_is_refused(
    tmp_path: Path, shapes: dict[str, tuple[int, ...]], message: str
) -> None:
    path = saved(tmp_path, conv_bn_model(["n", 3, "h", "w"]))
    with pytest.raises(InputError, match=message):
        load_clean(path, shapes)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.onnx: no such file"):
        load_clean(tmp_path / "absent.onnx", {})


@pytest.mark.parametrize("data", [b"", b"\x89PNG\r\n\x1a\n", b"text, not a model\n"])
def test_file_that_is_no_onnx_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    with pytest.raises(InputError, match="not an ONNX model"):
        load_clean(path, {})


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_truncated_file_is_refused(tmp_path: Path, share: float) -> None:
    data = conv_bn_model([1, 3, 8, 8]).SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(InputError, match=r"truncated|not a valid ONNX model"):
        load_clean(path, {})


def test_opset_out_of_range_is_refused(tmp_path: Path) -> None:
    model = conv_bn_model([1, 3, 8, 8], 999)
    with pytest.raises(InputError, match=r"opset 999; Veltair reads opsets to \d+"):
        load_clean(saved(tmp_path, model), {})


def test_an_old_opset_that_onnx_cannot_convert_is_refused(tmp_path: Path) -> None:
    model = conv_bn_model([1, 3, 8, 8], 5)
    model.graph.node[1].op_type = "Frobnicate"
    with pytest.raises(InputError, match=r"opset 5, which ONNX can't convert to 7 \(.*Frobnicate"):
        load_clean(saved(tmp_path, model), {})


def test_an_old_model_whose_weights_are_no_inputs_is_refused(tmp_path: Path) -> None:
    """The format wanted it then; ONNX's converter still does."""
    model = conv_bn_model([1, 3, 8, 8], 5)
    model.ir_version = 3
    kept = [value for value in model.graph.input if value.name == "x"]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    assert model.graph.initializer
    with pytest.raises(InputError, match=r"opset 5, which ONNX can't convert to 7 \(.*undefined"):
        load_clean(saved(tmp_path, model), {})


@pytest.mark.parametrize(("op", "domain"), [("Frobnicate", ""), ("Fused", "com.example")])
def test_unknown_operator_is_named_with_its_place(tmp_path: Path, op: str, domain: str) -> None:
    model = conv_bn_model([1, 3, 8, 8])
    model.graph.node[1].CopyFrom(helper.make_node(op, ["c"], ["y"], name="odd", domain=domain))
    if domain:
        model.opset_import.append(helper.make_opsetid(domain, 1))
    with pytest.raises(UnsupportedOperatorError, match=rf"{op}, node 'odd' \(from c to y\)"):
        load_clean(saved(tmp_path, model), {})


def test_a_shape_that_depends_on_data_stays_unknown(tmp_path: Path) -> None:
    model = conv_bn_model([1, 3, 8, 8])
    model.graph.node.append(helper.make_node("NonZero", ["y"], ["z"], name="where"))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("z", TensorProto.INT64, None))
    shapes = value_shapes(load_clean(saved(tmp_path, model), {}))
    assert shapes["y"] == ((1, 4, 8, 8), TensorProto.FLOAT)
    assert "z" not in shapes


def test_each_node_gets_a_name_of_its_own() -> None:
    nodes = [helper.make_node("Relu", ["x"], [f"y{i}"], name="same" * (i % 2)) for i in range(6)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    outputs = [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, [2]) for i in range(6)]
    model = infer_shapes(helper.make_model(helper.make_graph(nodes, "g", [x], outputs)))
    names = [node.name for node in model.graph.node]
    assert names == ["Relu_0", "same", "Relu_2", "same.1", "Relu_4", "same.2"]


def test_format_that_lists_weights_among_the_inputs_is_read(tmp_path: Path) -> None:
    model = conv_bn_model([1, 3, 8, 8], opset=9)
    model.ir_version = 3
    model.graph.input.extend(
        helper.make_tensor_value_info(w.name, TensorProto.FLOAT, w.dims)
        for w in model.graph.initializer
        if w.name != "w"
    )
    cleaned = load_clean(saved(tmp_path, model), {})
    assert [i.name for i in cleaned.graph.input] == ["x"]
    assert value_shapes(cleaned)["y"][0] == (1, 4, 8, 8)


@pytest.mark.parametrize("name", ["squeezenet", "bvlc_alexnet", "shufflenet"])
def test_graphs_of_the_model_zoo_are_read(name: str) -> None:
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    model = load_clean(folder / f"light_{name}.onnx", {})
    assert len(model.graph.input) == 1
    assert value_shapes(model)[model.graph.output[0].name][0][1] == 1000
