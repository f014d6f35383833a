"""The recipes are the published networks, and run as a trained one would: finite and distinct."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto

from veltair import models
from veltair.models.catalog import RECIPES
from veltair.runtime.errors import InputError

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

build = lru_cache(models.build)
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64

# Learned parameters as published: torchvision's resnet50 (v1.5), mobilenet_v2, efficientnet_b0 and
# vgg19, BVLC's googlenet; Darknet's tiny-yolo-voc.weights without its statistics and header;
# transformers' bert-base-uncased.
PARAMETERS = {
    "resnet50": 25_557_032,
    "mobilenet_v2": 3_504_872,
    "googlenet": 6_998_552,
    "efficientnet_b0": 5_288_548,
    "tiny_yolov2": (63_471_556 - 16) // 4 - 2 * 3_056,
    "bert_base": 109_482_240,
    "vgg19": 143_667_240,
}
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
    "efficientnet_b0": {
        **{"Conv": 81, "BatchNormalization": 49, "Sigmoid": 65, "Mul": 65, "Add": 9},
        **{"GlobalAveragePool": 17, "Flatten": 1, "Gemm": 1},
    },
    "tiny_yolov2": {"Conv": 9, "BatchNormalization": 8, "LeakyRelu": 8, "MaxPool": 6},
    "bert_base": {
        **{"MatMul": 96, "Add": 122, "Reshape": 48, "Transpose": 48, "Softmax": 12, "Div": 24},
        **{"LayerNormalization": 25, "Erf": 12, "Mul": 25, "Gather": 4, "Gemm": 1, "Tanh": 1},
        **{"Unsqueeze": 1, "Cast": 1, "Sub": 1},
    },
    "vgg19": {"Conv": 16, "Relu": 18, "MaxPool": 5, "Flatten": 1, "Gemm": 3},
}
OUTPUTS = {
    "tiny_yolov2": {"grid": [1, 125, 13, 13]},
    "bert_base": {"last_hidden_state": [1, 128, 768], "pooler_output": [1, 768]},
}
WORDS = 30_522
ALL = pytest.mark.parametrize("name", models.names())
LIGHT = pytest.mark.parametrize("name", [n for n in models.names() if PARAMETERS[n] < 50_000_000])


def run(model: onnx.ModelProto, feed: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
    """The first output."""
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feed)[0])


def noise(model: onnx.ModelProto, seed: int) -> dict[str, NDArray[Any]]:
    """Images of noise; random words, all of which count, in one segment."""
    random = np.random.default_rng(seed)
    feed: dict[str, NDArray[Any]] = {}
    for info in model.graph.input:
        shape = dims(info)
        if info.name == "data":
            feed[info.name] = random.standard_normal(shape, dtype=np.float32)
        else:
            words = random.integers(0, WORDS, shape)
            constant = {"attention_mask": np.ones_like(words), "token_type_ids": words * 0}
            feed[info.name] = constant.get(info.name, words)
    return feed


def dims(info: onnx.ValueInfoProto) -> list[int]:
    return [d.dim_value for d in info.type.tensor_type.shape.dim]


@ALL
def test_parameters_are_the_published_count(name: str) -> None:
    not_learned = (".mean", ".variance")
    learned = (
        math.prod(weight.dims)
        for weight in build(name).graph.initializer
        if weight.dims and weight.data_type == FLOAT and not weight.name.endswith(not_learned)
    )
    assert sum(learned) == PARAMETERS[name]


@ALL
def test_layers_are_the_published_ones(name: str) -> None:
    assert Counter(node.op_type for node in build(name).graph.node) == NODES[name]


@ALL
def test_inputs_and_outputs_are_the_data_sets(name: str) -> None:
    graph = build(name).graph
    inputs = {info.name: dims(info) for info in graph.input}
    outputs = {info.name: dims(info) for info in graph.output}
    if name == "bert_base":
        tokens = ("input_ids", "attention_mask", "token_type_ids")
        assert inputs == {token: [1, 128] for token in tokens}
        assert all(info.type.tensor_type.elem_type == INT64 for info in graph.input)
    else:
        size = 416 if name == "tiny_yolov2" else 224
        assert inputs == {"data": [1, 3, size, size]}
    assert outputs == OUTPUTS.get(name, {graph.output[0].name: [1, 1000]})


@ALL
def test_outputs_are_finite_moderate_and_follow_the_input(name: str) -> None:
    model = build(name)
    one, other = (run(model, noise(model, seed)).ravel().astype(np.float64) for seed in (1, 2))
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
    deviations = [float(np.std(value)) for value in session.run(None, noise(build("resnet50"), 1))]
    assert len(deviations) == 16
    assert all(0.5 < deviation < 10.0 for deviation in deviations)


@LIGHT
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
    model = models.build("mobilenet_v2", batch=2)
    feed = noise(model, 3)
    both = run(model, feed)
    alone = run(build("mobilenet_v2"), {"data": feed["data"][1:]})
    assert both.shape == (2, 1000)
    np.testing.assert_allclose(both[1:], alone, atol=1e-3)


def test_qos_is_the_papers_where_it_says_so() -> None:
    paper = {name: e.paper_qos_ms for name, e in RECIPES.items() if not e.derivation}
    assert paper == {
        **{"resnet50": 15, "googlenet": 15, "mobilenet_v2": 10},
        **{"efficientnet_b0": 10, "tiny_yolov2": 10},
    }
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
