"""The recipes are the published networks, and run as a trained one would: finite and distinct."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import replace
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto

from veltair import models
from veltair.models import bert
from veltair.models.catalog import RECIPES
from veltair.models.transformer import TransformerBuilder
from veltair.runtime.errors import InputError

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

build = lru_cache(models.build)
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64

# Learned parameters as published: torchvision's resnet50 (v1.5), mobilenet_v2, efficientnet_b0 and
# vgg19, inception_v3 without its auxiliary classifier, densenet121; BVLC's googlenet; Darknet's
# tiny-yolo-voc.weights without its statistics and header; transformers' bert-base-uncased; the
# layers of SSD300 for 21 classes; torchvision's fasterrcnn_resnet50_fpn with a ResNet-18 in place
# of its ResNet-50 (which it counts without batch normalisation) and of its wider lateral inputs.
PARAMETERS = {
    "resnet50": 25_557_032,
    "mobilenet_v2": 3_504_872,
    "googlenet": 6_998_552,
    "efficientnet_b0": 5_288_548,
    "tiny_yolov2": (63_471_556 - 16) // 4 - 2 * 3_056,
    "bert_base": 109_482_240,
    "vgg19": 143_667_240,
    "ssd300_vgg16": 26_285_486,
    "inception_v3": 23_834_568,
    "densenet121": 7_978_856,
    "fpn_heads": 41_755_286 - 23_454_912 + 11_176_512 - (3_840 - 960) * 256,
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
    "ssd300_vgg16": {
        **{"Conv": 35, "Relu": 23, "MaxPool": 5, "ReduceL2": 1, "Div": 1, "Softmax": 1, "Exp": 1},
        **{"Transpose": 13, "Reshape": 14, "Concat": 6, "Slice": 3, "Mul": 4, "Add": 4, "Sub": 1},
        **{"NonMaxSuppression": 1, "Gather": 5, "GatherND": 2, "Equal": 1, "Where": 1, "Cast": 1},
        **{"TopK": 1, "ReduceSum": 1, "Min": 1},
    },
    "inception_v3": {
        **{"Conv": 94, "BatchNormalization": 94, "Relu": 94, "Concat": 15, "MaxPool": 4},
        **{"AveragePool": 9, "GlobalAveragePool": 1, "Flatten": 1, "Gemm": 1},
    },
    "densenet121": {
        **{"Conv": 120, "BatchNormalization": 121, "Relu": 121, "Concat": 58, "MaxPool": 1},
        **{"AveragePool": 3, "GlobalAveragePool": 1, "Flatten": 1, "Gemm": 1},
    },
    "fpn_heads": {
        **{"Conv": 20 + 8 + 15, "BatchNormalization": 20, "Relu": 17 + 5 + 8, "Add": 8 + 3},
        **{"Resize": 3, "MaxPool": 2 + 3, "Flatten": 4, "Gemm": 16},
    },
}
OUTPUTS = {
    "tiny_yolov2": {"grid": [1, 125, 13, 13]},
    "bert_base": {"last_hidden_state": [1, 128, 768], "pooler_output": [1, 768]},
    "ssd300_vgg16": {
        **{"boxes": [1, 200, 4], "scores": [1, 200]},
        **{"labels": [1, 200], "count": [1]},
    },
    "fpn_heads": {
        **{f"objectness{n}": [1, 3, s, s] for n, s in enumerate((56, 28, 14, 7, 4), start=2)},
        **{f"deltas{n}": [1, 12, s, s] for n, s in enumerate((56, 28, 14, 7, 4), start=2)},
        **{f"classes{n}": [1, 91] for n in range(2, 6)},
        **{f"boxes{n}": [1, 364] for n in range(2, 6)},
    },
}
SIDES = {"tiny_yolov2": 416, "ssd300_vgg16": 300, "inception_v3": 299}
AVERAGING = ("inception_v3", "densenet121")  # so many pixels that noise of one kind looks alike
HEADS = ("ssd300_vgg16", "fpn_heads")
WORDS = 30_522
NAMES = [n for n in models.names() if n != "bert_large"]  # that one's weights are 1.3 GB
ALL = pytest.mark.parametrize("name", NAMES)
LIGHT = pytest.mark.parametrize("name", [n for n in NAMES if PARAMETERS[n] < 50_000_000])


def run(model: onnx.ModelProto, feed: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
    """The first output."""
    return next(iter(run_all(model, feed).values()))


def run_all(model: onnx.ModelProto, feed: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, map(np.asarray, session.run(names, feed)), strict=True))


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


def learned(model: onnx.ModelProto) -> int:
    ends = (".weight", ".bias", ".scale")
    return sum(math.prod(w.dims) for w in model.graph.initializer if w.name.endswith(ends))


@ALL
def test_parameters_are_the_published_count(name: str) -> None:
    assert learned(build(name)) == PARAMETERS[name]


def test_bert_large_has_the_published_parameters_and_no_more_in_each_layer() -> None:
    one, two = (learned(bert_large(layers)) for layers in (1, 2))
    assert one + (bert.LARGE.layers - 1) * (two - one) == 335_141_888


def test_bert_large_is_finite_moderate_and_follows_the_input() -> None:
    model = bert_large(2)
    assert {i.name: dims(i) for i in model.graph.output} == {
        "last_hidden_state": [1, 128, 1024],
        "pooler_output": [1, 1024],
    }
    check_values(*(run(model, noise(model, seed)) for seed in (1, 2)))


@lru_cache
def bert_large(layers: int) -> onnx.ModelProto:
    """The network with its first layers alone, the only part that is built here."""
    g = TransformerBuilder(
        "bert_large", batch=1, tokens=bert.TOKENS, heads=bert.LARGE_HEADS, seed=0
    )
    return bert.network(g, replace(bert.LARGE, layers=layers))


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
        size = SIDES.get(name, 224)
        assert inputs == {"data": [1, 3, size, size]}
    assert outputs == OUTPUTS.get(name, {graph.output[0].name: [1, 1000]})


@pytest.mark.parametrize("name", [n for n in NAMES if n not in (*AVERAGING, *HEADS)])
def test_outputs_are_finite_moderate_and_follow_the_input(name: str) -> None:
    model = build(name)
    one, other = (run(model, noise(model, seed)) for seed in (1, 2))
    if name == "googlenet":  # it ends in a softmax
        assert one.sum() == pytest.approx(1.0, abs=1e-5)
        one, other = np.log(one), np.log(other)
    check_values(one, other)
    assert one.argmax() != other.argmax()


@pytest.mark.parametrize("name", AVERAGING)
def test_outputs_are_finite_moderate_and_follow_the_colour(name: str) -> None:
    model = build(name)
    random = np.random.default_rng(1)
    shape = dims(model.graph.input[0])
    outputs = []
    for _ in range(3):
        colour = random.standard_normal((*shape[:2], 1, 1), dtype=np.float32)
        image = colour + random.standard_normal(shape, dtype=np.float32)
        outputs.append(run(model, {"data": image / np.float32(math.sqrt(2))}))
    for one, other in combinations(outputs, 2):
        check_values(one, other)
    assert len({int(output.argmax()) for output in outputs}) > 1


def test_each_head_of_the_pyramid_is_finite_moderate_and_follows_the_input() -> None:
    model = build("fpn_heads")
    one, other = (run_all(model, noise(model, seed)) for seed in (1, 2))
    for name, values in one.items():
        check_values(values, other[name])


def check_values(one: NDArray[Any], other: NDArray[Any]) -> None:
    one, other = (values.ravel().astype(np.float64) for values in (one, other))
    assert np.isfinite(one).all()
    assert 0.2 < one.std() < 5.0
    assert np.corrcoef(one, other)[0, 1] < 0.9


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
    first = [build(name).graph.initializer[0].raw_data[:64] for name in NAMES]
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
        **{"ssd300_vgg16": 100, "bert_large": 130},
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
