"""Files are written whole or not at all."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from veltair.runtime import files
from veltair.runtime.files import read_whole, write_whole


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


def test_what_is_no_file_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(pipe, b"figures")
        assert os.read(reader, 100) == b"figures"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert [entry.name for entry in tmp_path.iterdir()] == ["pipe"]


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    """A file may be no longer than 1 KiB: the write fails as it does on a full disk."""
    file = tmp_path / "a.json"
    write_whole(file, b"mine")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            write_whole(file, b"x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [
        ("a.json", b"mine")
    ]


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(IsADirectoryError):
        write_whole(Path(), b"figures")


def test_reads_up_to_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LONGEST_BYTES", 3 << 20)
    file = tmp_path / "a"
    file.write_bytes(b"a" * (3 << 20))
    assert len(read_whole(file)) == 3 << 20
    file.write_bytes(b"a" * (3 << 20) + b"b")
    with pytest.raises(OSError, match="longer than 3 MiB"):
        read_whole(file)
    with pytest.raises(OSError, match="longer than 3 MiB"):
        read_whole(Path("/dev/zero"))
