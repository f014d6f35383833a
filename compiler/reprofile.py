"""Measures an artifact's profile again, in place: the kernels stay, the manifest is replaced whole.

A profile is of the machine and the moment that it was measured in. An artifact that was compiled
elsewhere, or beside others, gets one of here and now, or one with levels of interference.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from veltair.compiler.profile import doubt, measure_profile
from veltair.compiler.search.samples import SEARCH_FILE, read_search
from veltair.compiler.spare import no_spare, note_removed, without_spare_of_all
from veltair.proxy.co_runners import BUBBLES
from veltair.runtime.artifact import open_artifact
from veltair.runtime.disturbance import Watch
from veltair.runtime.errors import InputError, VeltairError
from veltair.runtime.files import write_whole
from veltair.runtime.manifest import MANIFEST_FILE
from veltair.runtime.model import Model

if TYPE_CHECKING:
    from pathlib import Path

    from veltair.compiler.progress import Progress
    from veltair.proxy.co_runners import CoRunner
    from veltair.runtime.manifest import Manifest, Profile


@dataclass(frozen=True, kw_only=True)
class Reprofiled:
    """An artifact with its new profile.

    Attributes:
        folder: where it lies.
        manifest: as written.
        doubt: why the profile shouldn't be trusted; empty where it can be.
        removed: versions that it showed to be spare.
    """

    folder: Path
    manifest: Manifest
    doubt: str
    removed: int


def profiled(
    folder: Path, progress: Progress, *, levels: int = 1, co_runner: CoRunner = BUBBLES
) -> Profile:
    """Measures an artifact on this machine, on every core count; it stays as it is.

    Raises:
        ArtifactError: it can't be used here.
        InputError: it can't be measured at so many levels.
    """
    model = Model.load(folder)
    return measure_profile(
        model, model.manifest, progress, levels=levels, co_runner=co_runner
    ).profile


def reprofile(
    folder: Path, progress: Progress, *, levels: int = 1, co_runner: CoRunner = BUBBLES
) -> Reprofiled:
    """Measures an artifact and replaces the profile in its manifest.

    Versions that levels of interference show to be spare go from the manifest, unless the machine
    was busy meanwhile. Until the last moment the old one stays, whatever ends this.

    Args:
        folder: `<model>/<version>`, or `<model>` for the highest version.
        progress: hears of each stage.
        levels: of interference, the one alone included.
        co_runner: what they are made with.

    Raises:
        ArtifactError: the artifact can't be used here.
        InputError: it can't be measured at so many levels, or its folder can't be written.
        VeltairError: the artifact was replaced meanwhile.
    """
    artifact = open_artifact(folder)
    folder = artifact.folder
    path = folder / MANIFEST_FILE
    before = path.read_bytes()
    watch, begun_ns = Watch(), time.monotonic_ns()
    model = Model.load(folder, verify=False)
    measured = measure_profile(
        model, artifact.manifest, progress, levels=levels, co_runner=co_runner
    )
    processor_s = (time.monotonic_ns() - begun_ns) / 1e9 * (os.cpu_count() or 1)
    doubted = doubt(watch.seen(), processor_s)
    search = read_search(folder)
    # What a busy machine measured is no reason to remove anything.
    manifest, removed = (
        (measured, no_spare(measured)) if doubted else without_spare_of_all(measured, search)
    )
    try:
        if path.read_bytes() != before:
            raise VeltairError(
                f"{folder}: was compiled or profiled by another command meanwhile, and is left as "
                "it is now; profile it again"
            )
        write_whole(path, manifest.to_json())
        if search is not None:
            write_whole(folder / SEARCH_FILE, note_removed(search, removed).to_json())
    except OSError as error:
        raise InputError(
            f"{path}: can't be written ({error.strerror}); the profile is as it was"
        ) from error
    return Reprofiled(
        folder=folder, manifest=manifest, doubt=doubted, removed=sum(map(len, removed))
    )
