"""Finds artifacts and decides whether they can be loaded here: schema, files, instruction set."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from veltair.runtime.errors import ArtifactError, InputError
from veltair.runtime.huge_pages import mapped, settle
from veltair.runtime.machine import cpu_flags
from veltair.runtime.manifest import (
    KERNELS_FILE,
    MANIFEST_FILE,
    WEIGHTS_FILE,
    FileDigest,
    Isa,
    Manifest,
    read_manifest,
)

# What /proc/cpuinfo lists for each level of the x86-64 psABI, beyond x86-64-v2.
_V3_FLAGS = frozenset({"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe", "abm"})
_V4_FLAGS = _V3_FLAGS | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
ISA_FLAGS: dict[Isa, frozenset[str]] = {"x86-64-v3": _V3_FLAGS, "x86-64-v4": _V4_FLAGS}


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A compiled model whose files are complete and run on this CPU."""

    folder: Path
    manifest: Manifest


@dataclass(frozen=True, kw_only=True)
class FoundArtifact:
    """A model's version in a repository: either usable, or with the reason why not.

    Attributes:
        name: the model's folder.
        version: the version's folder; 0 where the model's folder has none.
        folder: where it lies.
        artifact: the opened artifact, or None.
        error: why it can't be used, or None.
    """

    name: str
    version: int
    folder: Path
    artifact: Artifact | None
    error: ArtifactError | None


def available_isa(flags: frozenset[str] | None = None) -> Isa | None:
    """Returns the highest instruction set of `ISA_FLAGS` that this CPU has.

    Args:
        flags: the CPU's features; read from the operating system if not given.
    """
    present = cpu_flags() if flags is None else flags
    best: Isa | None = None
    for isa in ISA_FLAGS:
        if not missing_flags(isa, present):
            best = isa
    return best


def missing_flags(isa: Isa, flags: frozenset[str]) -> list[str]:
    """Returns what `isa` needs and `flags` lacks, sorted; Linux names `lzcnt` either way."""
    present = flags | {"abm"} if "lzcnt" in flags else flags
    return sorted(ISA_FLAGS[isa] - present)


def resolve_folder(path: Path) -> Path:
    """Returns the artifact's folder: `path` itself, or its highest version where it has versions.

    Raises:
        ArtifactError: `path` is neither.
    """
    if (path / MANIFEST_FILE).exists():
        return path
    versions = _versions(path) if path.is_dir() else []
    if not versions:
        raise ArtifactError(
            f"{path}: not an artifact: no {MANIFEST_FILE} and no version folder (1, 2, ...) in it; "
            "give a folder that `veltair compile` wrote"
        )
    return path / str(versions[-1])


def open_artifact(folder: Path, *, verify: bool = True) -> Artifact:
    """Opens an artifact for loading.

    Args:
        folder: `<model>/<version>`, or `<model>` for the highest version.
        verify: whether the SHA-256 of each file is compared too, not only its size.

    Raises:
        ArtifactError: it is incomplete, damaged, of another schema, or for another CPU.
    """
    folder = resolve_folder(folder)
    manifest = read_manifest(folder)
    _check_isa(folder, manifest.isa)
    for name in (KERNELS_FILE, WEIGHTS_FILE):
        if name not in manifest.files:
            raise ArtifactError(
                f"{folder / MANIFEST_FILE}: damaged: no entry for {name}; compile the model again"
            )
    for name, digest in manifest.files.items():
        _check_file(folder, name, digest, verify=verify)
    return Artifact(folder=folder, manifest=manifest)


def find_artifacts(repository: Path, *, verify: bool = True) -> list[FoundArtifact]:
    """Opens every `<repository>/<model>/<version>/`, ordered by model and version.

    Hidden folders are skipped: an artifact being written is one. A model that can't be used is in
    the list with its reason, so that the others can be served.

    Raises:
        InputError: the repository is not a folder.
    """
    if not repository.is_dir():
        raise InputError(
            f"{repository}: not a folder; a repository holds artifacts as <model>/<version>/, "
            "as `veltair compile -o` writes them"
        )
    found: list[FoundArtifact] = []
    for model in sorted(repository.iterdir()):
        if not model.is_dir() or model.name.startswith("."):
            continue
        for version in _versions(model) or [0]:
            found.append(_open_version(model, version, verify=verify))
    return found


def _open_version(model: Path, version: int, *, verify: bool) -> FoundArtifact:
    folder = model / str(version) if version else model
    artifact, error = None, None
    try:
        artifact = open_artifact(folder, verify=verify)
    except ArtifactError as reason:
        error = reason
    return FoundArtifact(
        name=model.name, version=version, folder=folder, artifact=artifact, error=error
    )


def _versions(model: Path) -> list[int]:
    """The version folders of a model, ascending: numbers from 1, written without leading zeros."""
    names = [path.name for path in model.iterdir() if path.is_dir()]
    return sorted(
        int(name) for name in names if name.isascii() and name.isdigit() and name[0] != "0"
    )


def _check_isa(folder: Path, isa: Isa) -> None:
    flags = cpu_flags()
    missing = missing_flags(isa, flags)
    if missing:
        here = available_isa(flags)
        remedy = (
            f"compile the model again with --isa {here}"
            if here
            else f"Veltair needs a CPU with at least {min(ISA_FLAGS)}"
        )
        raise ArtifactError(
            f"{folder}: compiled for {isa}, this CPU lacks {', '.join(missing)}; {remedy}"
        )


def _check_file(folder: Path, name: str, digest: FileDigest, *, verify: bool) -> None:
    if name != Path(name).name and not _is_inside(folder, name):
        raise ArtifactError(
            f"{folder / MANIFEST_FILE}: damaged: file {name!r} lies outside the artifact; "
            "compile the model again"
        )
    path = folder / name
    try:
        size_bytes = path.stat().st_size
        if size_bytes != digest.size_bytes:
            raise ArtifactError(
                f"{path}: {size_bytes} bytes long, the manifest says {digest.size_bytes}; "
                "copy the artifact again, or compile the model again"
            )
        if verify and _sha256(path) != digest.sha256:
            raise ArtifactError(
                f"{path}: its content differs from what was compiled (SHA-256 is not "
                f"{digest.sha256[:12]}...); copy the artifact again, or compile the model again"
            )
    except OSError as error:
        raise ArtifactError(
            f"{path}: can't be read ({error.strerror}); "
            "copy the artifact again, or compile the model again"
        ) from error


def _is_inside(folder: Path, name: str) -> bool:
    return (folder / name).resolve().is_relative_to(folder.resolve())


def _sha256(path: Path) -> str:
    """The file's hash."""
    settle(path)  # a mapping, as the one below, keeps the file in the pages that it lies in
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return hashlib.sha256().hexdigest()
        with mapped(file.fileno()) as content:
            return hashlib.sha256(content).hexdigest()
