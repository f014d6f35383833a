"""Reads of memory in small and in huge pages."""

from __future__ import annotations

import json
import mmap
import subprocess
from typing import TYPE_CHECKING

import pytest

from veltair.eval import bench_pages
from veltair.eval.children import python
from veltair.runtime.errors import InputError
from veltair.runtime.huge_pages import are_offered

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.skipif(not are_offered(), reason="no transparent huge pages")
def test_saves_what_it_found(tmp_path: Path) -> None:
    file = tmp_path / "pages.json"
    options = ["--mib", "4", "--seconds", "0.1", "--json", str(file)]
    command = python("veltair.eval.bench_pages", *options)
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    assert run.stderr == ""
    assert run.stdout.count("ms of idleness\n") == 2
    result = json.loads(file.read_text())
    assert "bench_pages" in result["command"]
    assert set(result["pages"]) == {f"{mmap.PAGESIZE >> 10} KiB", "2048 KiB"}
    for found in result["pages"].values():
        assert found["hot_ns"]["p10"] > 0
        assert [each["idle_ns"] for each in found["after"]] == [5e7, 2e8, 1e9]
        assert all(each["run_ns"]["p10"] > 0 for each in found["after"])


def test_a_folder_that_is_missing_is_said_before(tmp_path: Path) -> None:
    file = tmp_path / "missing" / "pages.json"
    command = python("veltair.eval.bench_pages", "--json", str(file))
    run = subprocess.run(command, check=False, capture_output=True, text=True)
    assert run.returncode != 0
    assert "create it first" in run.stderr


def test_nothing_is_compared_where_there_are_no_huge_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench_pages, "are_offered", lambda: False)
    with pytest.raises(InputError, match="has to say madvise or always"):
        bench_pages.command()
