"""The models' files: found, or the commands that make them; and how systems are named."""

from __future__ import annotations

from pathlib import Path

import pytest
from factories import write_tiny_artifact

from veltair.eval.capacity.models import candidates
from veltair.eval.capacity.ours import POLICIES, late_percent
from veltair.eval.capacity.result import ModelTarget, WorkloadFacts
from veltair.eval.capacity.systems import chosen_systems
from veltair.runtime._native import sched
from veltair.runtime.errors import InputError


def facts(*names: str) -> WorkloadFacts:
    models = tuple(ModelTarget(name=name, qos_ns=20_000_000, share=1.0) for name in names)
    return WorkloadFacts(name="mine", models=models, targets="given")


def test_a_model_has_its_artifact_and_its_inputs(tmp_path: Path) -> None:
    manifest = write_tiny_artifact(tmp_path / "tiny" / "3")
    (model,) = candidates(facts("tiny"), tmp_path, None)
    assert model.artifact == tmp_path / "tiny" / "3"
    assert model.shapes == {spec.name: tuple(spec.shape) for spec in manifest.inputs}
    assert model.onnx is None
    assert model.qos_ns == 20_000_000  # the workload's, not the artifact's


def test_models_that_are_not_compiled_say_how(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="resnet50, mine not compiled") as raised:
        candidates(facts("resnet50", "mine"), tmp_path, None)
    message = str(raised.value)
    assert "veltair export resnet50 -o resnet50.onnx && veltair compile resnet50.onnx" in message
    assert f"veltair compile mine.onnx -o {tmp_path} --qos-ms 20" in message
    assert "export mine" not in message


def test_peers_need_the_onnx_file(tmp_path: Path) -> None:
    write_tiny_artifact(tmp_path / "tiny" / "1")
    with pytest.raises(InputError, match=r"peers need .*tiny\.onnx.*--systems ours"):
        candidates(facts("tiny"), tmp_path, tmp_path)
    (tmp_path / "tiny.onnx").touch()
    (model,) = candidates(facts("tiny"), tmp_path, tmp_path)
    assert model.onnx == tmp_path / "tiny.onnx"


def test_every_policy_of_ours_is_one_of_the_servers() -> None:
    assert set(POLICIES) <= {"block-6", "block-11", *sched.policy_names()}


def test_systems_are_named_alone_or_by_kind() -> None:
    assert [each.name for each in chosen_systems("veltair,model")] == ["model", "veltair"]
    assert [each.name for each in chosen_systems("ours")] == list(POLICIES)
    assert {each.kind for each in chosen_systems("all")} >= {"ours", "null"}
    assert all(each.kind == "peer" for each in chosen_systems("peers"))
    with pytest.raises(InputError, match="did you mean 'veltair'"):
        chosen_systems("model,veltiar")


def test_ours_are_told_how_many_may_be_late() -> None:
    shares = (50, 95, 99, 99.99)
    assert [late_percent(percentile) for percentile in shares] == [50, 5, 1, 1]
