"""The zoo's graphs that come with onnx, with weights, against ONNX Runtime."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from veltair.compiler.reference import relative_difference
from veltair.eval.children import python
from veltair.eval.light_models import agrees, light_model, names
from veltair.runtime.artifact import available_isa
from veltair.runtime.errors import InputError


@pytest.mark.skipif(available_isa() is None, reason="this CPU can't run kernels")
def test_saves_how_far_a_graph_is_from_onnx_runtime(tmp_path: Path) -> None:
    file = tmp_path / "light.json"
    options = ["--networks", "squeezenet", "--batch", "4", "--json", str(file)]
    command = python("veltair.eval.light_models", *options)
    subprocess.run(command, check=True, capture_output=True, text=True)
    result = json.loads(file.read_text())
    (case,) = result["cases"]
    assert (case["network"], case["batch"]) == ("squeezenet", 4)
    assert 0 <= case["difference"] <= result["tolerance"] == 1e-3
    assert case["spread"] > 0.1
    assert (case["layers"] > 20, case["fall_back"]) == (True, 0)


def test_a_batch_of_four_has_four_answers_that_differ() -> None:
    model = light_model("shufflenet", 4)  # it reshapes on its way
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    images = np.random.default_rng(0).standard_normal((4, 3, 224, 224), np.float32)
    (answers,) = session.run(None, {session.get_inputs()[0].name: images})
    assert answers.shape == (4, 1000)
    assert len({tuple(np.argsort(answer)) for answer in answers}) == 4
    alone = onnxruntime.InferenceSession(light_model("shufflenet", 1).SerializeToString())
    (first,) = alone.run(None, {alone.get_inputs()[0].name: images[:1]})
    assert relative_difference(answers[:1], first) <= 1e-3


def test_an_unknown_graph_is_refused() -> None:
    assert "squeezenet" in names()
    with pytest.raises(InputError, match=r"'lenet' is no such graph; there are .*squeezenet"):
        light_model("lenet", 1)


def test_what_fails_or_differs_does_not_agree() -> None:
    assert agrees({"difference": 1e-4})
    assert agrees({"refused": "no batch"})
    assert not agrees({"difference": 2e-3})
    assert not agrees({"difference": float("nan")})
    assert not agrees({"failed": "no kernel"})
