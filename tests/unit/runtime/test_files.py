"""Files are written whole or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from veltair.runtime.files import write_whole

if TYPE_CHECKING:
    from pathlib import Path


def test_replaces_and_leaves_nothing_beside(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_whole(file, b"one")
    write_whole(file, b"two")
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [
        ("a.json", b"two")
    ]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "inside").write_text("mine")
    with pytest.raises(OSError, match="directory"):
        write_whole(folder, b"new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]
    assert (folder / "inside").read_text() == "mine"
