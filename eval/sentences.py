"""The sentences of `make demo-text`, as tokens, and which of them are near another."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from veltair.models.minilm import missing, package_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from veltair.eval.demo_model import Arrays

_FILE = Path(__file__).resolve().parent / "data" / "sentences.txt"


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """One line of the file.

    Attributes:
        topic: the heading that it stands below.
        text: itself.
    """

    topic: str
    text: str


def read_sentences(text: str | None = None) -> tuple[Sentence, ...]:
    """Reads sentences, one a line below a heading `# TOPIC`.

    Args:
        text: of a file; where there is none, of ours.
    """
    topic, sentences = "", []
    for line in (_FILE.read_text() if text is None else text).splitlines():
        if line.startswith("#"):
            topic = line.removeprefix("#").strip()
        elif line.strip():
            sentences.append(Sentence(topic=topic, text=line.strip()))
    return tuple(sentences)


class WordPieces:
    """Turns a sentence into the network's inputs, by the tokenizer of the network's package.

    Raises:
        InputError: a package is not installed.
    """

    def __init__(self) -> None:
        try:
            from tokenizers import Tokenizer  # noqa: PLC0415 # not installed by all
        except ModuleNotFoundError:
            raise missing("tokenizers") from None
        self._tokenizer = Tokenizer.from_file(str(package_file("tokenizer.json")))

    def __call__(self, sentence: str) -> Arrays:
        """Returns a sentence's tokens, cut and padded to the length that the network takes.

        Returns:
            `input_ids`, `attention_mask` and `token_type_ids`, each int64[1, 128].
        """
        pieces = self._tokenizer.encode(sentence)
        inputs = {
            "input_ids": pieces.ids,
            "attention_mask": pieces.attention_mask,
            "token_type_ids": pieces.type_ids,
        }
        return {name: np.array([values], dtype=np.int64) for name, values in inputs.items()}


def nearest(
    embedding: NDArray[np.float32], embeddings: NDArray[np.float32], count: int
) -> list[tuple[int, float]]:
    """Finds the embeddings that are nearest to one.

    Args:
        embedding: float32[channels], of length 1.
        embeddings: float32[sentences, channels], each of length 1.
        count: how many to find.

    Returns:
        Index and cosine similarity of each, the nearest first.
    """
    similarities = embeddings @ embedding
    order = np.argsort(-similarities, kind="stable")[:count]
    return [(int(index), float(similarities[index])) for index in order]
