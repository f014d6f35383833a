"""A process's hand on the record of decisions."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from veltair.runtime.server.recording import OpenRecord

if TYPE_CHECKING:
    from pathlib import Path


def test_closes_what_it_opened(tmp_path: Path) -> None:
    path = tmp_path / "record"
    path.touch()
    record = OpenRecord(str(path), who="rank 0")
    descriptor = record.descriptor
    assert descriptor is not None
    os.write(descriptor, b"a")
    record.close()
    assert record.descriptor is None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(descriptor, b"b")
    record.close()  # a second time closes nothing of others


def test_says_once_who_serves_on_without_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    record = OpenRecord(str(tmp_path / "none"), who="rank 0")
    assert record.descriptor is None
    record.warn(5)
    (line,) = caplog.messages
    assert "No such file" in line
    assert "rank 0 serves on" in line
