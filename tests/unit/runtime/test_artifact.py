from __future__ import annotations

import hashlib
import json
from pathlib import Path

import factories
import msgspec
import pytest

from veltair.runtime import artifact
from veltair.runtime.artifact import (
    ISA_FLAGS,
    available_isa,
    find_artifacts,
    open_artifact,
    resolve_folder,
)
from veltair.runtime.errors import ArtifactError, InputError
from veltair.runtime.manifest import KERNELS_FILE, MANIFEST_FILE, WEIGHTS_FILE, read_manifest


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    factories.write_tiny_artifact(tmp_path / "tiny" / "1")
    return tmp_path / "tiny"


def change(folder: Path, **fields: object) -> None:
    path = folder / MANIFEST_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_the_highest_version_is_a_number_not_a_text(tiny: Path) -> None:
    for version in ("2", "10"):
        factories.write_tiny_artifact(tiny / version)
    for other in (".11.tmp", "old", "012"):
        (tiny / other).mkdir()
    assert resolve_folder(tiny) == tiny / "10"
    assert resolve_folder(tiny / "2") == tiny / "2"
    assert open_artifact(tiny).manifest.version == 10


def test_a_folder_that_is_no_artifact_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ArtifactError, match="not an artifact"):
            open_artifact(folder)


@pytest.mark.parametrize("name", [KERNELS_FILE, WEIGHTS_FILE])
def test_one_changed_byte_is_found(tiny: Path, name: str) -> None:
    path = tiny / "1" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArtifactError, match=rf"{name}: its content differs"):
        open_artifact(tiny)
    open_artifact(tiny, verify=False)


def test_empty_weights_have_a_hash_too(tiny: Path) -> None:
    files = json.loads((tiny / "1" / MANIFEST_FILE).read_text())["files"]
    empty = {"size_bytes": 0, "sha256": hashlib.sha256().hexdigest()}
    change(tiny / "1", files={**files, WEIGHTS_FILE: empty})
    (tiny / "1" / WEIGHTS_FILE).write_bytes(b"")
    open_artifact(tiny)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("name", [KERNELS_FILE, WEIGHTS_FILE])
def test_a_shortened_or_missing_file_is_found(tiny: Path, name: str, verify: bool) -> None:
    path = tiny / "1" / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ArtifactError, match=rf"{name}: \d+ bytes long, the manifest says \d+"):
        open_artifact(tiny, verify=verify)
    path.unlink()
    with pytest.raises(ArtifactError, match=rf"{name}: can't be read"):
        open_artifact(tiny, verify=verify)


def test_another_schema_is_refused_before_its_fields(tiny: Path) -> None:
    (tiny / "1" / MANIFEST_FILE).write_text('{"schema": 0, "unheard_of": true}')
    with pytest.raises(ArtifactError, match="schema 0, this Veltair reads schema 2"):
        open_artifact(tiny)


def test_batches_ascend(tiny: Path) -> None:
    manifest = read_manifest(tiny / "1")
    two, four = (manifest.having(size, manifest).batches[0] for size in (2, 4))
    for batches, ok in (((two, four), True), ((four, two), False), ((two, two), False)):
        changed = msgspec.structs.replace(manifest, batches=batches)
        (tiny / "1" / MANIFEST_FILE).write_bytes(changed.to_json())
        if ok:
            assert read_manifest(tiny / "1").sizes == (1, 2, 4)
            continue
        with pytest.raises(ArtifactError, match="damaged: batches"):
            read_manifest(tiny / "1")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 2}', "\x00" * 100])
def test_a_damaged_manifest_is_refused(tiny: Path, text: str) -> None:
    (tiny / "1" / MANIFEST_FILE).write_text(text)
    with pytest.raises(ArtifactError, match="damaged"):
        open_artifact(tiny)


def test_files_must_be_listed_and_inside(tiny: Path) -> None:
    change(tiny / "1", files={})
    with pytest.raises(ArtifactError, match=f"no entry for {KERNELS_FILE}"):
        open_artifact(tiny)
    digest = {"size_bytes": 0, "sha256": ""}
    names = (KERNELS_FILE, WEIGHTS_FILE, "../../secret")
    change(tiny / "1", files=dict.fromkeys(names, digest))
    (tiny.parent / "secret").touch()
    for name in names[:2]:
        (tiny / "1" / name).write_bytes(b"")
    with pytest.raises(ArtifactError, match="lies outside the artifact"):
        open_artifact(tiny, verify=False)


def test_another_cpus_artifact_is_refused(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change(tiny / "1", isa="x86-64-v4")
    flags = ISA_FLAGS["x86-64-v3"]
    monkeypatch.setattr(artifact, "cpu_flags", lambda: flags)
    with pytest.raises(ArtifactError, match=r"x86-64-v4.*lacks avx512bw.*--isa x86-64-v3"):
        open_artifact(tiny)
    monkeypatch.setattr(artifact, "cpu_flags", lambda: frozenset({"sse2"}))
    with pytest.raises(ArtifactError, match="needs a CPU with at least x86-64-v3"):
        open_artifact(tiny)


def test_levels_follow_the_flags() -> None:
    v3, v4 = ISA_FLAGS["x86-64-v3"], ISA_FLAGS["x86-64-v4"]
    assert available_isa(v4) == "x86-64-v4"
    assert available_isa(v4 - {"avx512vl"}) == "x86-64-v3"
    assert available_isa(v3) == "x86-64-v3"
    assert available_isa(v3 - {"fma"}) is None
    assert available_isa(v3 - {"abm"}) is None
    assert available_isa(v3 - {"abm"} | {"lzcnt"}) == "x86-64-v3"  # some kernels name abm so


def test_a_repository_lists_the_bad_beside_the_good(tiny: Path) -> None:
    repository = tiny.parent
    factories.write_tiny_artifact(repository / "tiny" / "3")
    factories.write_tiny_artifact(repository / "broken" / "1")
    (repository / "broken" / "1" / WEIGHTS_FILE).unlink()
    (repository / "empty").mkdir()
    (repository / ".half-written").mkdir()
    (repository / "notes.txt").touch()
    found = find_artifacts(repository)
    assert [(item.name, item.version, item.error is None) for item in found] == [
        ("broken", 1, False),
        ("empty", 0, False),
        ("tiny", 1, True),
        ("tiny", 3, True),
    ]
    assert "weights.bin: can't be read" in str(found[0].error)
    assert all((item.artifact is None) == (item.error is not None) for item in found)


def test_a_repository_must_be_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a folder"):
        find_artifacts(tmp_path / "missing")
