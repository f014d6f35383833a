"""Copies of artifacts whose profile was measured just now, for the policies and the simulator.

An artifact's profile was measured when it was compiled, perhaps on a machine that did other things
too. The copies share the files of the originals; only their manifests are written anew, so that a
server of the copies and a simulation of them decide by the same times. `veltair profile` replaces
an artifact's own.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from veltair.compiler import reprofile
from veltair.compiler.progress import Silent
from veltair.runtime.artifact import open_artifact
from veltair.runtime.errors import InputError
from veltair.runtime.manifest import MANIFEST_FILE, read_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from veltair.runtime.manifest import Manifest, Profile

_VERSION = "1"


def profiled(folder: Path) -> Profile:
    """Measures an artifact alone on this machine, on every core count."""
    return reprofile.profiled(folder, Silent())


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
        if not (source / name).is_dir():
            raise InputError(
                f"{source}: has no model {name!r}; compile it with "
                f"`veltair compile {name} -o {source}`, or name others"
            )
        artifact = open_artifact(source / name)
        folder = target / name / _VERSION
        folder.mkdir(parents=True)
        for file in artifact.manifest.files:
            _share(artifact.folder / file, folder / file)
        manifest = msgspec.structs.replace(
            artifact.manifest,
            version=int(_VERSION),
            profile=(profiles or {}).get(name, artifact.manifest.profile),
            qos_ns=(qos_ns or {}).get(name, artifact.manifest.qos_ns),
        )
        (folder / MANIFEST_FILE).write_bytes(manifest.to_json())
        made[name] = manifest
    return made


def manifests(repository: Path, models: Sequence[str]) -> dict[str, Manifest]:
    """Returns the manifests of a repository that `copy_artifacts` made."""
    return {name: read_manifest(repository / name / _VERSION) for name in models}


def _share(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)
