"""Inception-v3: modules of branches with factorised convolutions.

Reference:
    "Rethinking the inception architecture for computer vision" (2016), table 1 and figures 5 to 7
    and 10; the channels as in torchvision's `inception_v3`, which are TensorFlow's.

Differs:
    Without what inference drops: dropout and the auxiliary classifier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from veltair.models.builder import GraphBuilder

if TYPE_CHECKING:
    import onnx

    from veltair.models.builder import Tensor

SIZE = 299
POOLED_35 = (32, 64, 64)  # channels behind the pool of each module on 35 x 35
NARROW_17 = (128, 160, 160, 192)  # channels between the long filters of each on 17 x 17
ROW, COLUMN = (1, 7), (7, 1)
SHORT_ROW, SHORT_COLUMN = (1, 3), (3, 1)


def module_35(g: GraphBuilder, name: str, x: Tensor, pooled: int) -> Tensor:
    """1x1, 5x5, two 3x3 and a pool side by side (figure 5)."""
    one = _conv(g, f"{name}.1x1", x, 64)
    five = _conv(g, f"{name}.5x5_reduce", x, 48)
    five = _conv(g, f"{name}.5x5", five, 64, kernel=5)
    three = _conv(g, f"{name}.3x3_reduce", x, 64)
    three = _conv(g, f"{name}.3x3_1", three, 96, kernel=3)
    three = _conv(g, f"{name}.3x3_2", three, 96, kernel=3)
    pool = _conv(g, f"{name}.pool_proj", _mean(g, name, x), pooled)
    return g.concat(f"{name}.output", [one, five, three, pool])


def halving_35(g: GraphBuilder, name: str, x: Tensor) -> Tensor:
    """Halves the image: 3x3, two 3x3 and a pool side by side, of stride 2 (figure 10)."""
    one = _conv(g, f"{name}.3x3", x, 384, kernel=3, stride=2, padded=False)
    two = _conv(g, f"{name}.twice_reduce", x, 64)
    two = _conv(g, f"{name}.twice_1", two, 96, kernel=3)
    two = _conv(g, f"{name}.twice_2", two, 96, kernel=3, stride=2, padded=False)
    return g.concat(f"{name}.output", [one, two, _halve(g, f"{name}.pool", x)])


def module_17(g: GraphBuilder, name: str, x: Tensor, narrow: int) -> Tensor:
    """1x1, one and two 7x7 as rows and columns, and a pool side by side (figure 6)."""
    one = _conv(g, f"{name}.1x1", x, 192)
    once = _conv(g, f"{name}.once_reduce", x, narrow)
    once = _conv(g, f"{name}.once_1x7", once, narrow, kernel=ROW)
    once = _conv(g, f"{name}.once_7x1", once, 192, kernel=COLUMN)
    twice = _conv(g, f"{name}.twice_reduce", x, narrow)
    for index, kernel in enumerate((COLUMN, ROW, COLUMN), start=1):
        twice = _conv(g, f"{name}.twice_{index}", twice, narrow, kernel=kernel)
    twice = _conv(g, f"{name}.twice_4", twice, 192, kernel=ROW)
    pool = _conv(g, f"{name}.pool_proj", _mean(g, name, x), 192)
    return g.concat(f"{name}.output", [one, once, twice, pool])


def halving_17(g: GraphBuilder, name: str, x: Tensor) -> Tensor:
    """Halves the image: 3x3, 7x7 with 3x3, and a pool side by side, of stride 2."""
    three = _conv(g, f"{name}.3x3_reduce", x, 192)
    three = _conv(g, f"{name}.3x3", three, 320, kernel=3, stride=2, padded=False)
    seven = _conv(g, f"{name}.7x7_reduce", x, 192)
    seven = _conv(g, f"{name}.1x7", seven, 192, kernel=ROW)
    seven = _conv(g, f"{name}.7x1", seven, 192, kernel=COLUMN)
    seven = _conv(g, f"{name}.7x7_3x3", seven, 192, kernel=3, stride=2, padded=False)
    return g.concat(f"{name}.output", [three, seven, _halve(g, f"{name}.pool", x)])


def module_8(g: GraphBuilder, name: str, x: Tensor) -> Tensor:
    """1x1, forked 3x3, forked two 3x3 and a pool side by side (figure 7)."""
    one = _conv(g, f"{name}.1x1", x, 320)
    once = _fork(g, f"{name}.once", _conv(g, f"{name}.once_reduce", x, 384))
    twice = _conv(g, f"{name}.twice_reduce", x, 448)
    twice = _fork(g, f"{name}.twice", _conv(g, f"{name}.twice_3x3", twice, 384, kernel=3))
    pool = _conv(g, f"{name}.pool_proj", _mean(g, name, x), 192)
    return g.concat(f"{name}.output", [one, once, twice, pool])


def inception_v3(batch: int, seed: int) -> onnx.ModelProto:
    """Writes Inception-v3: `data` float32[batch, 3, 299, 299] to `logits` [batch, 1000]."""
    g = GraphBuilder("inception_v3", batch=batch, seed=seed)
    x = _conv(g, "conv1", g.image(size=SIZE), 32, kernel=3, stride=2, padded=False)
    x = _conv(g, "conv2", x, 32, kernel=3, padded=False)
    x = _halve(g, "pool1", _conv(g, "conv3", x, 64, kernel=3))
    x = _conv(g, "conv4", x, 80)
    x = _halve(g, "pool2", _conv(g, "conv5", x, 192, kernel=3, padded=False))
    for index, pooled in enumerate(POOLED_35, start=1):
        x = module_35(g, f"mixed35_{index}", x, pooled)
    x = halving_35(g, "halved35", x)
    for index, narrow in enumerate(NARROW_17, start=1):
        x = module_17(g, f"mixed17_{index}", x, narrow)
    x = halving_17(g, "halved17", x)
    for index in (1, 2):
        x = module_8(g, f"mixed8_{index}", x)
    return g.model(g.dense("logits", g.global_average_pool("pool3", x), 1000))


def _fork(g: GraphBuilder, name: str, x: Tensor) -> Tensor:
    row = _conv(g, f"{name}.1x3", x, 384, kernel=SHORT_ROW)
    column = _conv(g, f"{name}.3x1", x, 384, kernel=SHORT_COLUMN)
    return g.concat(f"{name}.output", [row, column])


def _mean(g: GraphBuilder, name: str, x: Tensor) -> Tensor:
    return g.average_pool(f"{name}.pool", x, kernel=3, padding=1)


def _halve(g: GraphBuilder, name: str, x: Tensor) -> Tensor:
    return g.max_pool(name, x, kernel=3, stride=2, pads=(0, 0, 0, 0))


def _conv(
    g: GraphBuilder,
    name: str,
    x: Tensor,
    channels: int,
    *,
    kernel: int | tuple[int, int] = 1,
    stride: int = 1,
    padded: bool = True,
) -> Tensor:
    x = g.conv(f"{name}.conv", x, channels, kernel=kernel, stride=stride, padded=padded)
    return g.relu(f"{name}.relu", g.batch_norm(f"{name}.bn", x))
