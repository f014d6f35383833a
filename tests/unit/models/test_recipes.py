"""The recipes are the published networks, and run as a trained one would: finite and distinct."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime as ort
import pytest

from veltair import models
from veltair.models.catalog import RECIPES
from veltair.runtime.errors import InputError

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

build = lru_cache(models.build)

# Learned parameters as published: torchvision's resnet50 (v1.5) and mobilenet_v2, BVLC's googlenet.
PARAMETERS = {"resnet50": 25_557_032, "mobilenet_v2": 3_504_872, "googlenet": 6_998_552}
NODES = {
    "resnet50": {
        **{"Conv": 53, "BatchNormalization": 53, "Relu": 49, "Add": 16, "MaxPool": 1},
        **{"GlobalAveragePool": 1, "Flatten": 1, "Gemm": 1},
    },
    "mobilenet_v2": {
        **{"Conv": 52, "BatchNormalization": 52, "Clip": 35, "Add": 10},
        **{"GlobalAveragePool": 1, "Flatten": 1, "Gemm": 1},
    },
    "googlenet": {
        **{"Conv": 57, "Relu": 57, "Concat": 9, "MaxPool": 13, "LRN": 2, "AveragePool": 1},
        **{"Flatten": 1, "Gemm": 1, "Softmax": 1},
    },
}
ALL = pytest.mark.parametrize("name", models.names())


def run(model: onnx.ModelProto, data: NDArray[np.float32]) -> NDArray[np.float32]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"data": data})[0])


def noise(seed: int, batch: int = 1) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((batch, 3, 224, 224), dtype=np.float32)


@ALL
def test_parameters_are_the_published_count(name: str) -> None:
    not_learned = (".mean", ".variance")
    learned = (
        math.prod(weight.dims)
        for weight in build(name).graph.initializer
        if weight.dims and not weight.name.endswith(not_learned)
    )
    assert sum(learned) == PARAMETERS[name]


@ALL
def test_layers_are_the_published_ones(name: str) -> None:
    assert Counter(node.op_type for node in build(name).graph.node) == NODES[name]


@ALL
def test_input_and_output_are_imagenets(name: str) -> None:
    graph = build(name).graph
    (data,), (output,) = graph.input, graph.output
    assert data.name == "data"
    assert [d.dim_value for d in data.type.tensor_type.shape.dim] == [1, 3, 224, 224]
    assert [d.dim_value for d in output.type.tensor_type.shape.dim] == [1, 1000]


@ALL
def test_outputs_are_finite_moderate_and_follow_the_input(name: str) -> None:
    one, other = (run(build(name), noise(seed)).ravel().astype(np.float64) for seed in (1, 2))
    if name == "googlenet":  # it ends in a softmax
        assert one.sum() == pytest.approx(1.0, abs=1e-5)
        one, other = np.log(one), np.log(other)
    assert np.isfinite(one).all()
    assert 0.2 < one.std() < 5.0
    assert np.corrcoef(one, other)[0, 1] < 0.9
    assert one.argmax() != other.argmax()


def test_activations_keep_their_scale_through_the_depth() -> None:
    model = models.build("resnet50")
    ends = [node.output[0] for node in model.graph.node if node.op_type == "Add"]
    del model.graph.output[:]
    model.graph.output.extend(type(model.graph.input[0])(name=end) for end in ends)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    deviations = [float(np.std(value)) for value in session.run(None, {"data": noise(1)})]
    assert len(deviations) == 16
    assert all(0.5 < deviation < 10.0 for deviation in deviations)


@ALL
def test_same_seed_gives_the_same_bytes(name: str) -> None:
    assert digest(models.build(name)) == digest(build(name))


def test_weights_follow_the_seed_and_the_network() -> None:
    other = models.build("mobilenet_v2", seed=1)
    assert digest(other) != digest(build("mobilenet_v2"))
    first = [build(name).graph.initializer[0].raw_data[:64] for name in models.names()]
    assert len(set(first)) == len(first)


def digest(model: onnx.ModelProto) -> str:
    return hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()


def test_batch_runs_each_sample_by_itself() -> None:
    data = noise(3, batch=2)
    both = run(models.build("mobilenet_v2", batch=2), data)
    alone = run(build("mobilenet_v2"), data[1:])
    assert both.shape == (2, 1000)
    np.testing.assert_allclose(both[1:], alone, atol=1e-3)


def test_qos_is_the_papers_where_it_says_so() -> None:
    paper = {name: entry.paper_qos_ms for name, entry in RECIPES.items()}
    assert paper == {"resnet50": 15, "googlenet": 15, "mobilenet_v2": 10}
    assert models.qos_ms("resnet50") == 50


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"name": "resnet5"}, "did you mean 'resnet50'"),
        ({"name": "resnet50", "batch": 0}, "batch 0"),
        ({"name": "resnet50", "seed": -1}, "seed -1"),
    ],
)
def test_what_can_not_be_built_is_refused(arguments: dict[str, str | int], said: str) -> None:
    with pytest.raises(InputError, match=said):
        models.build(**arguments)  # type: ignore[arg-type] # wrong on purpose
