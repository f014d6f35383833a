"""What the demo feeds a network, how it fills in symbolic shapes, and what it asks of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from veltair.eval.demo import load_s, target_ns
from veltair.eval.demo_model import prepare, sample, usual_shapes
from veltair.runtime.errors import InputError
from veltair.runtime.manifest import TensorSpec

if TYPE_CHECKING:
    from pathlib import Path


def spec(*shape: int, dtype: str = "float32", name: str = "x") -> TensorSpec:
    return TensorSpec(name=name, dtype=dtype, shape=shape)


def save(path: Path, *shapes: list[int | str]) -> Path:
    inputs = [
        helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, shape)
        for i, shape in enumerate(shapes)
    ]
    node = helper.make_node("Identity", ["x0"], ["y"])
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, shapes[0])
    onnx.save(helper.make_model(helper.make_graph([node], "g", inputs, [output])), path)
    return path


@pytest.mark.parametrize("shape", [(1, 3, 224, 224), (2, 3, 64, 96)])
def test_an_image_input_gets_the_photograph(shape: tuple[int, ...]) -> None:
    inputs, what = sample((spec(*shape),))
    assert "photograph" in what
    assert inputs["x"].shape == shape
    assert inputs["x"].dtype == np.float32
    np.testing.assert_array_equal(inputs["x"][0], inputs["x"][-1])


def test_other_inputs_get_random_numbers_of_their_kind() -> None:
    wanted = (
        spec(1, 8, dtype="int64", name="ids"),
        spec(1, 8, dtype="bool", name="mask"),
        spec(2, 4, name="features"),
    )
    inputs, what = sample(wanted)
    assert what == "random numbers"
    for tensor in wanted:
        assert inputs[tensor.name].shape == tensor.shape
        assert inputs[tensor.name].dtype == np.dtype(tensor.dtype)
        assert len(np.unique(inputs[tensor.name])) > 1


def test_symbolic_image_dimensions_get_the_usual_sizes(tmp_path: Path) -> None:
    file = save(tmp_path / "m.onnx", ["n", 3, "h", 96])
    assert usual_shapes(file) == ["x0=1,3,224,96"]


def test_fixed_and_other_shapes_are_the_compilers_matter(tmp_path: Path) -> None:
    assert usual_shapes(save(tmp_path / "a.onnx", [1, 3, 8, 8], ["n", 4])) == []


def test_what_is_no_onnx_is_the_compilers_matter(tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    file.write_bytes(b"\xffnot a model")
    assert usual_shapes(file) == []


def test_missing_file_is_named_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.onnx: no such file.*resnet50"):
        prepare(str(tmp_path / "none.onnx"), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_target_that_the_machine_cannot_keep_is_not_asked_for() -> None:
    assert target_ns(50_000_000, 25_000_000.0) == 50_000_000
    assert target_ns(50_000_000, 98_000_000.0) == 392_000_000
    assert target_ns(0, 98_000_000.0) == 392_000_000  # none of its own


def test_slow_networks_are_loaded_for_longer() -> None:
    assert load_s(1000.0) == 10
    assert load_s(5.0) == 30
    assert load_s(0.1) == 60
