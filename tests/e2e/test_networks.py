"""The recipes' networks, small: few layers on small images, by the whole pipeline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from compiling import check_outputs

from veltair.models import (
    bert,
    densenet,
    efficientnet,
    fpn,
    inception,
    minilm,
    tiny_yolo,
    vgg,
)
from veltair.models.builder import GraphBuilder
from veltair.models.efficientnet import Stage
from veltair.models.transformer import TransformerBuilder
from veltair.runtime.manifest import LANES, Isa


def efficientnet_b0() -> onnx.ModelProto:
    """Two samples; a block without widening, one with, and two that have a shortcut."""
    g = GraphBuilder("e", batch=2, seed=3)
    stages = (Stage(1, 16, 1, 1, 3), Stage(6, 24, 2, 2, 5), Stage(4, 24, 1, 1, 3))
    return g.model(efficientnet.network(g, g.image(size=41), stages, 80))


def tiny_yolov2() -> onnx.ModelProto:
    g = GraphBuilder("t", batch=1, seed=3)
    return g.model(tiny_yolo.network(g, g.image(size=44), (16, 24), 40), image=(11, 11))


def vgg19() -> onnx.ModelProto:
    g = GraphBuilder("v", batch=1, seed=3)
    return g.model(vgg.network(g, g.image(size=28), ((16, 2), (40, 1)), 49, 272))


def bert_base() -> onnx.ModelProto:
    """Two samples of 11 tokens, two layers."""
    g = TransformerBuilder("b", batch=2, tokens=11, heads=3, seed=3)
    sizes = bert.Sizes(layers=2, channels=48, hidden=80, words=50, positions=20)
    return bert.network(g, sizes)


def minilm_l6_v2() -> onnx.ModelProto:
    """Two samples of 9 tokens, one layer, drawn weights."""
    g = TransformerBuilder("m", batch=2, tokens=9, heads=3, seed=3)
    sizes = bert.Sizes(layers=1, channels=48, hidden=80, words=50, positions=20)
    return minilm.network(g, sizes)


def inception_v3() -> onnx.ModelProto:
    """A module of each kind, one halving between them, all of their channels, on few pixels."""
    g = GraphBuilder("i", batch=1, seed=3)
    x = inception.halving_35(g, "b", inception.module_35(g, "a", g.image(size=11), 32))
    x = inception.module_8(g, "d", inception.module_17(g, "c", x, 128))
    return g.model(x, image=(5, 5))


def densenet121() -> onnx.ModelProto:
    """Two samples; two blocks."""
    g = GraphBuilder("d", batch=2, seed=3)
    return g.model(densenet.network(g, g.image(size=45), 16, (2, 2), 12))


def fpn_heads() -> onnx.ModelProto:
    """Three stages, four levels, fourteen outputs."""
    g = GraphBuilder("f", batch=1, seed=3)
    sizes = fpn.Sizes(
        size=112, stages=((16, 1), (24, 1), (40, 1)), channels=16, anchors=2, hidden=40, classes=5
    )
    return g.model_of_several(fpn.network(g, g.image(size=sizes.size), sizes))


CASES: list[Callable[[], onnx.ModelProto]] = [
    *(efficientnet_b0, tiny_yolov2, vgg19, bert_base, minilm_l6_v2),
    *(inception_v3, densenet121, fpn_heads),
]


@pytest.mark.parametrize("isa", LANES)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.__name__)
def test_small_network_agrees_with_onnx_runtime(
    tmp_path: Path, case: Callable[[], onnx.ModelProto], isa: Isa
) -> None:
    check_outputs(tmp_path, case(), isa)
