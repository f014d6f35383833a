"""Copies of artifacts with another profile or target; the originals are untouched.

They share the files of the originals; only their manifests are written anew.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from veltair.runtime.artifact import open_artifact
from veltair.runtime.errors import InputError
from veltair.runtime.manifest import MANIFEST_FILE, read_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from veltair.runtime.artifact import Artifact
    from veltair.runtime.manifest import Manifest, Profile

_VERSION = "1"


def copy_artifacts(
    source: Path,
    target: Path,
    models: Sequence[str],
    *,
    profiles: Mapping[str, Profile] | None = None,
    qos_ns: Mapping[str, int] | None = None,
) -> dict[str, Manifest]:
    """Makes a repository of some of another's models.

    Args:
        source: a repository; each model's highest version is taken.
        target: replaced where it exists.
        models: their names.
        profiles: in place of the manifests'.
        qos_ns: in place of the manifests'.

    Returns:
        The new manifests, by model.

    Raises:
        InputError: no such model in `source`.
        ArtifactError: one can't be used here.
    """
    shutil.rmtree(target, ignore_errors=True)
    made = {}
    for name in models:
        made[name] = copy_artifact(
            _find(source, name),
            target / name,
            profile=(profiles or {}).get(name),
            qos_ns=(qos_ns or {}).get(name),
        )
    return made


def check_targets(repository: Path, models: Sequence[str]) -> None:
    """Refuses models that have no latency target: nothing would be late, or in time.

    Raises:
        InputError: no such model in `repository`, or one without a target.
        ArtifactError: one can't be used here.
    """
    for name in models:
        if _find(repository, name, verify=False).manifest.qos_ns == 0:
            raise InputError(
                f"{repository / name}: the artifact has no latency target; compile it with "
                f"`veltair compile {name} --qos-ms T -o {repository}`"
            )


def _find(repository: Path, name: str, *, verify: bool = True) -> Artifact:
    if not (repository / name).is_dir():
        raise InputError(
            f"{repository}: has no model {name!r}; compile it with "
            f"`veltair compile {name} -o {repository}`, or name others"
        )
    return open_artifact(repository / name, verify=verify)


def copy_artifact(
    artifact: Artifact, target: Path, *, profile: Profile | None = None, qos_ns: int | None = None
) -> Manifest:
    """Makes version 1 of a model from one that was opened.

    Args:
        artifact: the original.
        target: the model's folder in a repository; made.
        profile: in place of the manifest's.
        qos_ns: in place of the manifest's.
    """
    folder = target / _VERSION
    folder.mkdir(parents=True)
    for file in artifact.manifest.files:
        _share(artifact.folder / file, folder / file)
    manifest = msgspec.structs.replace(
        artifact.manifest,
        version=int(_VERSION),
        profile=profile or artifact.manifest.profile,
        qos_ns=artifact.manifest.qos_ns if qos_ns is None else qos_ns,
    )
    (folder / MANIFEST_FILE).write_bytes(manifest.to_json())
    return manifest


def manifests(repository: Path, models: Sequence[str]) -> dict[str, Manifest]:
    """Returns the manifests of a repository that `copy_artifacts` made."""
    return {name: read_manifest(repository / name / _VERSION) for name in models}


def _share(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)
