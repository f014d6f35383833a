"""The pages that the page cache holds a file in: looked at, and changed where the system can."""

from __future__ import annotations

import mmap
import os
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from veltair.eval.process_memory import process_bytes
from veltair.runtime import huge_pages
from veltair.runtime.huge_pages import (
    HUGE_PAGE_BYTES,
    anonymous,
    are_offered,
    huge_share,
    mapped,
    settle,
)

SIZE_BYTES = 4 * HUGE_PAGE_BYTES + 5000


@pytest.fixture
def in_small_pages(tmp_path: Path) -> Path:
    """A file that came into the page cache page by page."""
    path = tmp_path / "weights.bin"
    content = np.random.default_rng(0).integers(0, 256, SIZE_BYTES, np.uint8).tobytes()
    with path.open("wb", buffering=0) as file:
        for begin in range(0, SIZE_BYTES, mmap.PAGESIZE):
            file.write(content[begin : begin + mmap.PAGESIZE])
    return path


def share_of(path: Path) -> float:
    with path.open("rb") as file:
        return huge_share(file.fileno())


def own_huge_bytes() -> int:
    """How much of this process's own memory is in huge pages."""
    return process_bytes(os.getpid(), "AnonHugePages")


@pytest.fixture
def dropped(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How much of a file was dropped, each time; nothing is."""
    sizes: list[int] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _file, _begin, size, _what: sizes.append(size))
    return sizes


def test_a_file_is_read_again_in_huge_pages(in_small_pages: Path) -> None:
    content = in_small_pages.read_bytes()
    before = share_of(in_small_pages)
    settle(in_small_pages)
    after = share_of(in_small_pages)
    assert in_small_pages.read_bytes() == content
    with in_small_pages.open("rb") as file, mapped(file.fileno()) as mapping:
        assert mapping[:] == content
    if after == 0:
        pytest.skip("no huge pages for files here: of this file system, or of this kernel")
    assert before < 0.5
    assert after >= 0.9


def test_what_another_maps_is_left_to_it(in_small_pages: Path) -> None:
    before = share_of(in_small_pages)
    with ExitStack() as stack:
        file = stack.enter_context(in_small_pages.open("rb"))
        content = stack.enter_context(mapped(file.fileno()))
        read = content[:]
        settle(in_small_pages)
        assert share_of(in_small_pages) == before
        assert content[:] == read


def test_only_one_huge_page_is_tried_where_there_are_none(
    in_small_pages: Path, dropped: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huge_pages, "_huge_bytes", lambda _address: 0)
    settle(in_small_pages)
    assert dropped == [HUGE_PAGE_BYTES]


def test_a_file_in_huge_pages_is_left_alone(
    in_small_pages: Path, dropped: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huge_pages, "_huge_bytes", lambda _address: 4 * HUGE_PAGE_BYTES)
    settle(in_small_pages)
    assert dropped == []


@pytest.mark.parametrize("size_bytes", [0, 1, HUGE_PAGE_BYTES - 1])
def test_a_file_smaller_than_a_huge_page_is_left_alone(
    size_bytes: int, tmp_path: Path, dropped: list[int]
) -> None:
    path = tmp_path / "small"
    path.write_bytes(bytes(size_bytes))
    settle(path)
    assert dropped == []


def test_a_kernel_that_tells_of_no_huge_pages_has_none(
    in_small_pages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "smaps"
    told.write_text("7f0000000000-7f0000001000 r--p 00000000 00:00 0\nSize:  4 kB\n")
    monkeypatch.setattr(huge_pages, "_MAPPINGS", told)
    assert share_of(in_small_pages) == 0


@pytest.mark.parametrize("huge", [False, True])
def test_memory_lies_in_the_pages_that_it_asked_for(huge: bool) -> None:
    before = own_huge_bytes()
    content = anonymous(8 * HUGE_PAGE_BYTES, huge=huge)
    array = np.frombuffer(content, np.uint8)
    assert not array.any()
    array[:] = 1
    added = own_huge_bytes() - before
    if huge and added == 0 and not are_offered():
        pytest.skip("this machine gives no huge pages")
    assert added >= 4 * HUGE_PAGE_BYTES if huge else added < 4 * HUGE_PAGE_BYTES


@pytest.mark.parametrize(
    ("says", "offered"),
    [
        ("always [madvise] never\n", True),
        ("[always] madvise never\n", True),
        ("always madvise [never]\n", False),
        (None, False),
    ],
)
def test_huge_pages_are_offered_where_the_kernel_says_so(
    says: str | None, offered: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enabled = tmp_path / "enabled"
    if says is not None:
        enabled.write_text(says)
    monkeypatch.setattr(huge_pages, "_ENABLED", enabled)
    assert are_offered() == offered


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        settle(tmp_path / "missing")
