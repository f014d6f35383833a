"""BERT, uncased, over 128 tokens.

BERT-base has twelve layers of 768 channels and 12 heads, BERT-large 24 of 1024 channels and 16.

Reference:
    "BERT: pre-training of deep bidirectional transformers for language understanding" (2019),
    section 3; constants and inputs as in transformers' `bert-base-uncased` and
    `bert-large-uncased`.

Differs:
    The words' embeddings are drawn with variance one; what follows normalises the sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from veltair.models.transformer import TransformerBuilder

if TYPE_CHECKING:
    import onnx

    from veltair.models.builder import Tensor

TOKENS, HEADS = 128, 12
SEGMENTS = 2
EPSILON = 1e-12
# What is the same for every input (places, segments) and what is added to the residual stream is
# weak, as in a trained network. At full strength all inputs would end alike after twelve layers.
PLACE_SCALE = 0.2
BRANCH_SCALE = 0.5


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What the sizes of BERT differ in, and its tables' rows."""

    layers: int = 12
    channels: int = 768
    hidden: int = 3072
    words: int = 30522
    positions: int = 512


LARGE, LARGE_HEADS = Sizes(layers=24, channels=1024, hidden=4096), 16


def layer(g: TransformerBuilder, name: str, x: Tensor, mask: Tensor, hidden: int) -> Tensor:
    """Attention, then two matrix products; each is added to its input. All but the last norm."""
    y = g.attention(f"{name}.attention", x, mask)
    y = g.linear(f"{name}.attention.output", y, x.channels, scale=BRANCH_SCALE)
    x = g.layer_norm(f"{name}.attention.norm", g.add(f"{name}.attention.add", y, x), EPSILON)
    y = g.gelu(f"{name}.gelu", g.linear(f"{name}.intermediate", x, hidden))
    y = g.linear(f"{name}.output", y, x.channels, scale=BRANCH_SCALE)
    return g.add(f"{name}.add", y, x)


def embeddings(g: TransformerBuilder, words: Tensor, segments: Tensor, sizes: Sizes) -> Tensor:
    """What a token's word, its segment and its place stand for, in one normalised sum."""
    channels = sizes.channels
    x = g.add(
        "embeddings.kinds",
        g.embedding("embeddings.words", words, sizes.words, channels),
        g.embedding("embeddings.segments", segments, SEGMENTS, channels, scale=PLACE_SCALE),
    )
    places = g.positions("embeddings.positions", sizes.positions, channels, scale=PLACE_SCALE)
    return g.layer_norm("embeddings.norm", g.add("embeddings.sum", x, places), EPSILON)


def network(g: TransformerBuilder, sizes: Sizes) -> onnx.ModelProto:
    """The encoder of these sizes, with its inputs and outputs."""
    x, _ = encoder(g, sizes, "last_hidden_state")
    first = g.fully_connected("pooler", g.first_token("pooler.token", x), sizes.channels)
    return g.encoder(x, g.tanh("pooler_output", first))


def encoder(g: TransformerBuilder, sizes: Sizes, output: str) -> tuple[Tensor, Tensor]:
    """The layers over the inputs: the last one's output, of this name, and the attention's mask."""
    words, attended, segments = (
        g.indices(name) for name in ("input_ids", "attention_mask", "token_type_ids")
    )
    x = embeddings(g, words, segments, sizes)
    mask = g.mask("mask", attended)
    for index in range(sizes.layers):
        x = layer(g, f"layer{index}", x, mask, sizes.hidden)
        last = index == sizes.layers - 1
        x = g.layer_norm(output if last else f"layer{index}.norm", x, EPSILON)
    return x, attended


def bert_base(batch: int, seed: int) -> onnx.ModelProto:
    """Writes BERT-base over 128 tokens.

    `input_ids`, `attention_mask` and `token_type_ids` int64[batch, 128] to `last_hidden_state`
    float32[batch, 128, 768] and `pooler_output` [batch, 768].
    """
    g = TransformerBuilder("bert_base", batch=batch, tokens=TOKENS, heads=HEADS, seed=seed)
    return network(g, Sizes())


def bert_large(batch: int, seed: int) -> onnx.ModelProto:
    """Writes BERT-large over 128 tokens.

    `input_ids`, `attention_mask` and `token_type_ids` int64[batch, 128] to `last_hidden_state`
    float32[batch, 128, 1024] and `pooler_output` [batch, 1024].
    """
    g = TransformerBuilder("bert_large", batch=batch, tokens=TOKENS, heads=LARGE_HEADS, seed=seed)
    return network(g, LARGE)
