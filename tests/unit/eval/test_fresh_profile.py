"""Copies of artifacts with a profile of now: they load and run, the originals are untouched."""

from __future__ import annotations

from pathlib import Path

import pytest
from factories import tiny_input, tiny_reference, write_tiny_artifact

from veltair.eval.artifact_copies import check_targets, copy_artifacts
from veltair.eval.fresh_profile import profiled
from veltair.runtime.artifact import open_artifact
from veltair.runtime.errors import InputError
from veltair.runtime.model import Model


def test_a_profile_has_every_variant_on_every_core_count(tmp_path: Path) -> None:
    manifest = write_tiny_artifact(tmp_path / "tiny" / "1")
    found = profiled(tmp_path / "tiny" / "1")
    assert found.levels == (0.0,)
    assert [len(layer) for layer in found.layer_ns] == [
        len(layer.variants) for layer in manifest.layers
    ]
    for layer in found.layer_ns:
        for variant in layer:
            assert len(variant) == len(found.cores)
            assert all(times[0] > 0 for times in variant)
    assert all(times[0] > 0 for times in found.model_ns)


def test_a_copy_runs_and_leaves_the_original_as_it_was(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    write_tiny_artifact(source / "tiny" / "1", seed=1)
    newest = write_tiny_artifact(source / "tiny" / "2", seed=2)
    before = (source / "tiny" / "2" / "manifest.json").read_bytes()
    found = profiled(source / "tiny" / "2")
    for _ in range(2):  # the second one replaces the first
        made = copy_artifacts(
            source, target, ["tiny"], profiles={"tiny": found}, qos_ns={"tiny": 5}
        )
    artifact = open_artifact(target / "tiny")
    assert artifact.manifest == made["tiny"]
    assert (artifact.manifest.profile, artifact.manifest.qos_ns) == (found, 5)
    assert artifact.manifest.files == newest.files
    answer = Model.load(target / "tiny").run({"data": tiny_input()})["scores"]
    assert answer == pytest.approx(tiny_reference(tiny_input(), seed=2), rel=1e-4, abs=1e-4)
    assert (source / "tiny" / "2" / "manifest.json").read_bytes() == before


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no model 'tiny'"):
        copy_artifacts(tmp_path, tmp_path / "target", ["tiny"])


def test_a_model_without_a_target_is_refused(tmp_path: Path) -> None:
    write_tiny_artifact(tmp_path / "source" / "tiny" / "1", seed=1)
    copy_artifacts(tmp_path / "source", tmp_path / "aimless", ["tiny"], qos_ns={"tiny": 0})
    copy_artifacts(tmp_path / "source", tmp_path / "aiming", ["tiny"], qos_ns={"tiny": 5})
    check_targets(tmp_path / "aiming", ["tiny"])
    with pytest.raises(InputError, match=r"aimless/tiny: the artifact has no latency target"):
        check_targets(tmp_path / "aimless", ["tiny"])
    with pytest.raises(InputError, match="has no model 'small'"):
        check_targets(tmp_path / "aiming", ["small"])
