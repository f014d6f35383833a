"""Which versions are worth keeping, and what becomes of the others."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from factories import disturbed_profile, many_versions, tiny_input, tiny_reference, tiny_weights
from factories import write_tiny_artifact as write

from veltair.compiler.search.samples import SEARCH_FILE, read_search
from veltair.compiler.spare import drop_weights, note_removed, remove_spare, without_spare
from veltair.compiler.versions import (
    Condition,
    best_choices,
    condition_times,
    conditions_of,
    fewest,
    model_losses,
)
from veltair.runtime.manifest import MANIFEST_FILE, WEIGHTS_FILE, Manifest, Variant
from veltair.runtime.model import Model

ALONE = Condition(cores=0, level=0)
BESIDE = Condition(cores=0, level=1)
BOTH = (ALONE, BESIDE)


def test_the_best_choice_of_versions() -> None:
    """The first alone, then those that are fastest at either end."""
    kept = best_choices(((10, 40), (14, 20), (30, 10)), BOTH)
    assert [each.versions for each in kept] == [(0,), (0, 2), (0, 1, 2)]
    assert kept[0].loss == pytest.approx((0, 3.0))
    assert kept[0].mean_loss == pytest.approx(1.5)
    assert kept[0].worst == pytest.approx(30)
    assert kept[1].loss == kept[2].loss == (0, 0)
    assert kept[1].fastest_ns == (10, 10)


def test_more_versions_than_can_be_tried_out() -> None:
    times = tuple((100 + v, 200 - 5 * v) for v in range(14))
    kept = best_choices(times, BOTH)
    assert [len(each.versions) for each in kept] == list(range(1, 15))
    losses = [each.mean_loss for each in kept]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] == 0
    assert all(each.versions[0] == 0 for each in kept)


def test_the_models_loss_is_of_the_sum() -> None:
    first, second = ((10, 40), (30, 20)), ((5, 5),)
    losses = model_losses([best_choices(times, BOTH) for times in (first, second)])
    assert losses[1] == (0, 0)
    # The first version of the first layer: (10 + 5, 40 + 5) against (10 + 5, 20 + 5).
    assert losses[0] == pytest.approx((0, 0.8))


@pytest.mark.parametrize(
    ("times", "versions"),
    [
        (((100, 109), (120, 100)), (0,)),  # 9 % slower beside others: one will do
        (((100, 111), (120, 100)), (0, 1)),
        (((104, 100), (100, 120)), (0,)),
        (((106, 100), (100, 120)), (0, 1)),  # alone less is allowed
        # The second gains 50 % alone on some cores, the third nothing; both are fast beside others.
        (((150, 120), (100, 100), (151, 100)), (0, 1)),
    ],
)
def test_no_more_stay_than_are_needed(
    times: tuple[tuple[int, ...], ...], versions: tuple[int, ...]
) -> None:
    assert fewest(best_choices(times, BOTH)).versions == versions


def test_what_was_estimated_does_not_count() -> None:
    profile = disturbed_profile()  # beside bubbles on one core only
    conditions = conditions_of(profile)
    assert [(c.cores, c.level) for c in conditions] == [(0, 0), (0, 1), (0, 2), (1, 0)]
    times = condition_times(profile.layer_ns[0], conditions)
    assert times == ((50_000, 60_000, 110_000, 30_000), (60_000, 65_000, 70_000, 35_000))


def alike(manifest: Manifest) -> Manifest:
    """The same with a second version that gains 7 % at one level."""
    tables = (
        ((100_000, 107_000, 120_000), (60_000, 64_000, 72_000)),
        ((110_000, 100_000, 125_000), (66_000, 60_000, 75_000)),
    )
    profile = msgspec.structs.replace(
        manifest.profile, layer_ns=(tables, *manifest.profile.layer_ns[1:])
    )
    return msgspec.structs.replace(manifest, profile=profile)


def test_a_version_that_helps_stays_and_one_that_does_not_goes(tmp_path: Path) -> None:
    manifest = write(tmp_path / "1", profile=disturbed_profile())
    assert without_spare(manifest) == (manifest, ((), ()))
    trimmed, removed = without_spare(alike(manifest))
    assert trimmed.layers[0].variants == manifest.layers[0].variants[:1]
    assert trimmed.profile.layer_ns[0] == alike(manifest).profile.layer_ns[0][:1]
    ((lost,), none) = removed
    assert none == ()
    assert lost.id == manifest.layers[0].variants[1].id
    assert lost.reason.startswith("those kept are at most 7.0% slower")
    assert lost.layer_ns == alike(manifest).profile.layer_ns[0][1]


def test_without_interference_all_stay(tmp_path: Path) -> None:
    manifest = alike(write(tmp_path / "1", profile=disturbed_profile()))
    profile = msgspec.structs.replace(
        manifest.profile,
        levels=(0.0,),
        interference=None,
        layer_ns=tuple(
            tuple(tuple(row[:1] for row in v) for v in layer) for layer in manifest.profile.layer_ns
        ),
    )
    alone = msgspec.structs.replace(manifest, profile=profile)
    assert without_spare(alone) == (alone, ((), ()))


def test_what_is_removed_is_no_longer_chosen_and_keeps_its_reason() -> None:
    manifest, search = many_versions(layers=6, versions=5, levels=2)
    trimmed, removed = without_spare(manifest)
    assert any(removed)
    noted = note_removed(search, removed)
    for layer, report in zip(trimmed.layers, noted.layers, strict=True):
        assert {v.id for v in layer.variants} == {s.id for s in report.samples if s.is_chosen}
    twice, none = without_spare(trimmed, noted)
    for old, new, lost in zip(trimmed.layers, twice.layers, none, strict=True):
        before = next(each.removed for each in noted.layers if each.name == old.name)
        assert not before or (new == old and not lost), "losses must not add up"
    again = note_removed(noted, [() for _ in removed])
    for old, new in zip(noted.layers, again.layers, strict=True):
        assert [r.id for r in new.removed] == [r.id for r in old.removed]
        assert not any(r.layer_ns for r in new.removed), "its times are of another profile"


def test_weights_that_nothing_reads_go(tmp_path: Path) -> None:
    folder = tmp_path / "1"
    manifest = write(folder, profile=disturbed_profile())
    padding = bytes(range(64)) * 3
    weights = folder / WEIGHTS_FILE
    weights.write_bytes(padding + weights.read_bytes())

    def moved(variant: Variant) -> Variant:
        return msgspec.structs.replace(
            variant,
            arguments=tuple(
                msgspec.structs.replace(a, offset_bytes=a.offset_bytes + len(padding))
                if a.storage == "weights"
                else a
                for a in variant.arguments
            ),
        )

    layers = tuple(
        msgspec.structs.replace(layer, variants=tuple(map(moved, layer.variants)))
        for layer in manifest.layers
    )
    smaller = drop_weights(folder, msgspec.structs.replace(manifest, layers=layers))
    (folder / MANIFEST_FILE).write_bytes(smaller.to_json())
    assert weights.stat().st_size == tiny_weights().nbytes
    assert list(folder.glob(".*")) == []
    model = Model.load(folder)
    (got,) = model.run({manifest.inputs[0].name: tiny_input()}).values()
    np.testing.assert_allclose(got, tiny_reference(tiny_input()), rtol=1e-5, atol=1e-5)


def test_a_new_artifact_without_its_spare_versions_is_whole(tmp_path: Path) -> None:
    folder = tmp_path / "1"
    manifest = alike(write(folder, profile=disturbed_profile()))
    _, drawn = many_versions(layers=2)
    layers = tuple(
        msgspec.structs.replace(
            each,
            name=layer.name,
            samples=tuple(
                msgspec.structs.replace(s, id=v.id, is_chosen=True)
                for s, v in zip(each.samples, layer.variants, strict=False)
            ),
        )
        for each, layer in zip(drawn.layers, manifest.layers, strict=True)
    )
    search = msgspec.structs.replace(drawn, layers=layers)
    smaller, noted = remove_spare(folder, manifest, search)
    assert read_search(folder) == noted
    assert [len(layer.removed) for layer in noted.layers] == [1, 0]
    assert [s.is_chosen for s in noted.layers[0].samples] == [True, False]
    (folder / MANIFEST_FILE).write_bytes(smaller.to_json())
    model = Model.load(folder)
    assert [len(layer.variants) for layer in model.manifest.layers] == [1, 1]
    (got,) = model.run({manifest.inputs[0].name: tiny_input()}).values()
    np.testing.assert_allclose(got, tiny_reference(tiny_input()), rtol=1e-5, atol=1e-5)


def test_search_files_carry_what_was_removed(tmp_path: Path) -> None:
    manifest, search = many_versions(layers=6, versions=5, levels=2)
    noted = note_removed(search, without_spare(manifest)[1])
    (tmp_path / SEARCH_FILE).write_bytes(noted.to_json())
    assert read_search(tmp_path) == noted
