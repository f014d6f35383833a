"""Models that are trained on what is known, and tested on what isn't."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from veltair.eval.simulated_counters import SOURCES, simulated
from veltair.proxy.features import Feature
from veltair.proxy.observations import Table, table_of
from veltair.proxy.principal_components import carried, components_of
from veltair.proxy.proxy_file import ProxyFile, decoded
from veltair.proxy.training import (
    KINDS,
    OWN_LEVEL,
    PAPERS_TWO,
    as_told,
    best_subset,
    boosted,
    cross_validated,
    data_of,
    linear,
    source_sets,
    train,
)
from veltair.runtime.errors import InputError

LAYERS, ROWS = 8, 25
NAMES = ("llc_miss_rate", "llc_references_per_cycle", "instructions_per_cycle", "block_level")


def table(
    *, layers: int = LAYERS, effect: float = 1.0, noise: float = 0.01, seed: int = 0
) -> Table:
    """The level shows in the miss rate and the references; a third feature is the layer's own."""
    draw = np.random.default_rng(seed)
    layer = np.repeat(np.arange(layers), ROWS)
    alone = np.arange(len(layer)) % ROWS == 0
    level = np.where(alone, 0.0, draw.uniform(0, 1, len(layer)))
    references = draw.normal(0, 1, len(layer))
    miss_rate = effect * level + 0.5 * references + noise * draw.normal(0, 1, len(layer))
    own = draw.normal(0, 1, layers)[layer]
    blocks = level + 0.3 * draw.normal(0, 1, len(layer))
    values = np.stack([miss_rate, references, own, blocks], axis=1)
    return Table(
        features=NAMES,
        sources=("perf-task",) * 3 + ("self",),
        values=values,
        confidence=np.ones_like(values),
        level=level,
        layer=layer,
        alone=alone,
    )


def test_a_linear_relation_is_found_on_unseen_layers() -> None:
    data = data_of(table(), ["perf-task"])
    accuracy = cross_validated(linear, data)
    assert accuracy.r2 > 0.99
    assert len(accuracy.r2_folds) == len(accuracy.mae_folds) == 5
    assert max(accuracy.mae_folds) < 0.05


def test_only_the_features_that_carry_the_level_are_chosen() -> None:
    data = data_of(table(), ["perf-task"])
    assert [data.features[column] for column in best_subset(data).columns] == list(PAPERS_TWO[0])


def test_no_layer_is_in_both_halves() -> None:
    # The level is a property of the layer: trees learn it by heart, and know no other layer's.
    known = table()
    by_layer = np.random.default_rng(1).uniform(0, 1, LAYERS)
    told = Table(
        features=known.features,
        sources=known.sources,
        values=known.values,
        confidence=known.confidence,
        level=by_layer[known.layer],
        layer=known.layer,
        alone=known.alone,
    )
    data = data_of(told, ["perf-task"])
    fitted = boosted(data)
    assert np.corrcoef(fitted(data.values), data.level)[0, 1] > 0.99
    assert cross_validated(boosted, data).r2 < 0.3


def test_rows_that_nobody_believes_do_not_matter() -> None:
    known = table()
    wrong = np.arange(len(known.level)) % 2 == 0
    level = np.where(wrong, 1 - known.level, known.level)
    confidence = np.where(wrong[:, None], 1e-6, 1.0) * np.ones_like(known.values)
    doubtful = Table(
        features=known.features,
        sources=known.sources,
        values=known.values,
        confidence=confidence,
        level=level,
        layer=known.layer,
        alone=known.alone,
    )
    assert cross_validated(linear, data_of(doubtful, ["perf-task"])).r2 > 0.99


def test_rows_and_columns_without_a_value_are_left_out() -> None:
    known = table()
    known.values[:120, 2] = np.nan  # more than half
    known.values[5, 0] = np.nan
    data = data_of(known, ["perf-task"])
    assert data.features == NAMES[:2]
    assert len(data.level) == LAYERS * ROWS - 1


def test_each_set_of_sources_has_a_model_that_uses_them() -> None:
    trained = train(table(noise=0.3), {"cpu": "c"})
    assert trained.models[0].sources == ("perf-task", "self")
    assert {model.sources for model in trained.models} == {
        ("perf-task",),
        ("self",),
        ("perf-task", "self"),
    }
    ranks = [model.accuracy.r2 for model in trained.models]
    assert ranks == sorted(ranks, reverse=True)
    # Blocks that add nothing to the counters aren't asked for beside them.
    assert [model.sources for model in train(table(), {}).models] == [("perf-task",), ("self",)]


def test_what_blocks_tell_is_taken_as_it_is_where_no_fit_does_better() -> None:
    # Some layers' blocks are so noisy that they count for little, and yet lead a fit astray.
    known = table()
    draw = np.random.default_rng(2)
    doubtful = known.layer % 2 == 1
    known.values[:, 3] = known.level + 0.1 * draw.normal(0, 1, len(known.level))
    known.values[doubtful, 3] += 30 * draw.normal(0, 1, doubtful.sum())
    known.confidence[doubtful] = 0.01
    data = data_of(known, ["self"])
    assert cross_validated(linear, data).r2 < 0.6
    assert cross_validated(as_told, data).r2 > 0.8
    model = train(known, {}).model_for("self")
    assert model is not None
    assert [term.feature for term in model.terms] == [OWN_LEVEL]
    assert model.accuracy == cross_validated(as_told, data)
    seen = {OWN_LEVEL: Feature(value=0.3, confidence=1.0)}
    assert model.estimate(seen).level == pytest.approx(0.3)


def test_a_server_that_runs_alone_is_told_of_no_level() -> None:
    # Where features are as noisy, a model with a free intercept would tell of 0.26 there.
    noisy = table(noise=0.3)
    model = train(noisy, {}).model_for("perf-task")
    assert model is not None
    told = [
        model.estimate(
            {
                name: Feature(value=float(value), confidence=1.0)
                for name, value in zip(NAMES, row, strict=True)
            }
        ).level
        for row in noisy.values
    ]
    assert np.mean(np.array(told)[noisy.alone]) == pytest.approx(0.0, abs=0.01)
    assert model.intercept == pytest.approx(np.mean(told), abs=0.01)


def test_what_is_trained_gives_the_levels_that_it_was_trained_on() -> None:
    known = table()
    trained = train(known, {"cpu": "c"})
    model = trained.model_for("perf-task")
    assert model is not None
    assert (model.rows, model.layers) == (LAYERS * ROWS, LAYERS)
    for row in range(0, len(known.level), 10):
        seen = {
            name: Feature(value=float(value), confidence=1.0)
            for name, value in zip(NAMES, known.values[row], strict=True)
        }
        estimate = model.estimate(seen)
        assert estimate.level == pytest.approx(known.level[row], abs=0.05)
        assert estimate.confidence == pytest.approx(model.accuracy.r2)
    assert trained.alone["block_level"] == pytest.approx(np.median(known.values[known.alone, 3]))
    assert isinstance(trained, ProxyFile)


def test_what_is_trained_can_be_written_and_read(tmp_path: Path) -> None:
    trained = train(table(), {"cpu": "c"})
    trained.write(tmp_path / "proxy.json")
    assert ProxyFile.read(tmp_path / "proxy.json") == trained
    assert decoded((tmp_path / "proxy.json").read_bytes(), "p") == trained


def test_noise_gives_no_model() -> None:
    noise = table(effect=0.0)
    noise.values[:, 3] = noise.values[:, 1]
    with pytest.raises(InputError, match="nothing that perf-task, self counts here explains"):
        train(noise, {})


def test_three_layers_are_too_few() -> None:
    with pytest.raises(InputError, match=r"3 layers can be measured here.*more --artifacts"):
        train(table(layers=3), {})


def test_a_feature_that_never_changes_is_no_harm() -> None:
    known = table()
    known.values[:, 2] = 5.0
    assert cross_validated(linear, data_of(known, ["perf-task"])).r2 > 0.99


def test_components_share_out_the_level() -> None:
    data = data_of(table(), ["perf-task"])
    components = components_of(data)
    assert sum(each.explained for each in components) == pytest.approx(1.0)
    assert all(
        sum(loading**2 for loading in each.loadings.values()) == pytest.approx(1.0)
        for each in components
    )
    shares = carried(components)
    assert sum(shares.values()) > 0.98  # a linear model explains nearly all
    assert next(iter(shares)) in PAPERS_TWO[0]
    assert shares["instructions_per_cycle"] < 0.1


@pytest.mark.parametrize("maker", ["intel", "amd"])
def test_simulated_counters_can_be_trained_on(maker: str) -> None:
    rows = simulated(maker, layers=12)
    assert {each.setting for each in rows} == set(range(16))
    alone = [each for each in rows if each.setting == 0]
    assert {(each.level, each.slowdown) for each in alone} == {(0.0, 0.0)}
    assert max(each.level for each in rows) > 0.2
    made = table_of(rows)
    assert source_sets(made) == [(SOURCES[maker],)]
    assert set(PAPERS_TWO[0 if maker == "intel" else 1]) <= set(made.features)
    again = table_of(simulated(maker, layers=12))
    assert np.array_equal(again.values, made.values)


def test_counters_of_the_whole_cache_tell_the_simulated_level() -> None:
    data = data_of(table_of(simulated("amd", layers=20)), ["perf-uncore"])
    assert cross_validated(KINDS["chosen"], data).r2 > 0.6
