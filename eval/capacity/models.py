"""The files of a workload's models: artifacts for ours, ONNX files for peers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from veltair.eval.capacity.system import Candidate
from veltair.models.catalog import RECIPES
from veltair.runtime.artifact import open_artifact
from veltair.runtime.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    from veltair.eval.capacity.result import ModelTarget, WorkloadFacts

_NS_PER_MS = 1e6


def candidates(facts: WorkloadFacts, repository: Path, onnx: Path | None) -> tuple[Candidate, ...]:
    """Finds the files of a workload's models.

    Args:
        facts: the workload.
        repository: folder of artifacts; the systems learn the models' inputs from these.
        onnx: folder of ONNX files, `<model>.onnx`; None: no system needs them.

    Raises:
        InputError: one is missing; the message has the commands that make it.
        ArtifactError: an artifact can't be used here.
    """
    missing = [each for each in facts.models if not (repository / each.name).is_dir()]
    if missing:
        lines = "; ".join(_compiling(each, repository, onnx) for each in missing)
        names = ", ".join(each.name for each in missing)
        raise InputError(
            f"workload {facts.name!r}: {names} not compiled in --repository {repository}; run: "
            f"{lines}"
        )
    if onnx is not None:
        for each in facts.models:
            if not _onnx_file(each.name, onnx).is_file():
                raise InputError(
                    f"workload {facts.name!r}: peers need {_onnx_file(each.name, onnx)}; run: "
                    f"{_exporting(each.name, onnx)}; or leave peers out with --systems ours"
                )
    return tuple(_candidate(each, repository, onnx) for each in facts.models)


def _candidate(target: ModelTarget, repository: Path, onnx: Path | None) -> Candidate:
    artifact = open_artifact(repository / target.name, verify=False)
    inputs = artifact.manifest.inputs
    return Candidate(
        name=target.name,
        onnx=None if onnx is None else _onnx_file(target.name, onnx),
        artifact=artifact.folder,
        shapes={spec.name: tuple(spec.shape) for spec in inputs},
        dtypes={spec.name: spec.dtype for spec in inputs},
        qos_ns=target.qos_ns,
    )


def _onnx_file(name: str, onnx: Path) -> Path:
    return onnx / f"{name}.onnx"


def _compiling(target: ModelTarget, repository: Path, onnx: Path | None) -> str:
    file = f"{target.name}.onnx" if onnx is None else str(_onnx_file(target.name, onnx))
    qos_ms = target.qos_ns / _NS_PER_MS
    compiling = f"veltair compile {file} -o {repository} --qos-ms {qos_ms:g}"
    if target.name in RECIPES:
        return f"veltair export {target.name} -o {file} && {compiling}"
    return f"{compiling} (from your ONNX file)"


def _exporting(name: str, onnx: Path) -> str:
    if name in RECIPES:
        return f"veltair export {name} -o {_onnx_file(name, onnx)}"
    return "put the model's ONNX file there"
