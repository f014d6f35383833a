"""Huge pages: has the page cache hold a file in them, and memory ask for them.

Who reads a mapped file needs a translation for each page that the page cache holds it in, and how
large those are was decided by whoever wrote the file or read it first. On a virtual machine
translations cost most, and are forgotten while nobody asks: see "Huge pages" in
`docs/scheduling.md`. ext4 (since Linux 6.16), XFS and others read a file in huge pages for a
mapping that asks for them, unless it is in memory already.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

HUGE_PAGE_BYTES = 2 << 20

_ENOUGH = 0.9  # of what could be in huge pages
_POPULATE_READ = 22  # MADV_POPULATE_READ, Linux 5.14, which Python doesn't name
_MAPPINGS = Path("/proc/self/smaps")
_ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def are_offered() -> bool:
    """Returns whether this kernel gives huge pages to memory that asks for them."""
    try:
        return "[never]" not in _ENABLED.read_text()
    except OSError:  # a kernel built without
        return False


def anonymous(size_bytes: int, *, huge: bool = True) -> mmap.mmap:
    """Returns memory of this process's own, zeroed; Python's default is memory to be shared.

    That gets huge pages only where `shmem_enabled` has them, which is hardly anywhere.

    Args:
        size_bytes: 1 or more.
        huge: whether it asks for huge pages, or against them.

    Raises:
        OSError: there isn't as much.
    """
    content = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    _advise(content, "MADV_HUGEPAGE" if huge else "MADV_NOHUGEPAGE")
    return content


def settle(path: Path) -> None:
    """Has the page cache hold a file in huge pages; whoever maps it does so before.

    What it holds in small pages is dropped and read again, but for what another process maps. One
    huge page is tried first: a file system that has none is left alone.

    Args:
        path: of the file.

    Raises:
        OSError: it can't be read.
    """
    with path.open("rb") as opened:
        file = opened.fileno()
        size_bytes = os.fstat(file).st_size
        if size_bytes < HUGE_PAGE_BYTES:
            return
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)  # one looks and drops while nobody else has it mapped
        if huge_share(file) >= _ENOUGH:
            return
        with contextlib.suppress(OSError):
            os.fsync(file)  # what isn't written yet can't be dropped
        for piece_bytes in (HUGE_PAGE_BYTES, size_bytes):
            os.posix_fadvise(file, 0, piece_bytes, os.POSIX_FADV_DONTNEED)
            if huge_share(file, piece_bytes) < _ENOUGH:
                break


def huge_share(file: int, size_bytes: int = 0) -> float:
    """Returns how much of a file the page cache holds in huge pages; what it lacks is read first.

    Args:
        file: descriptor of one that isn't empty.
        size_bytes: of its begin that counts; 0: all.

    Returns:
        A part of what can be in huge pages: all but a remainder of one. 0 where nothing can.

    Raises:
        OSError: it can't be mapped.
    """
    size_bytes = size_bytes or os.fstat(file).st_size
    whole_bytes = size_bytes // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
    if not whole_bytes:
        return 0.0
    with mapped(file, size_bytes) as content:
        with contextlib.suppress(OSError):
            content.madvise(_POPULATE_READ)
        address = np.frombuffer(content, np.uint8).ctypes.data
        return _huge_bytes(address) / whole_bytes


@contextlib.contextmanager
def mapped(file: int, size_bytes: int = 0) -> Iterator[mmap.mmap]:
    """A mapping of a file that asks for huge pages.

    Args:
        file: descriptor of one that isn't empty.
        size_bytes: of its begin; 0: all.

    Raises:
        OSError: it can't be mapped.
    """
    with mmap.mmap(file, size_bytes, access=mmap.ACCESS_READ) as content:
        _advise(content, "MADV_HUGEPAGE")
        yield content


def _advise(content: mmap.mmap, advice: str) -> None:
    """Tells the kernel, if it is one that knows of huge pages."""
    if hasattr(mmap, advice):
        with contextlib.suppress(OSError):
            content.madvise(getattr(mmap, advice))


def _huge_bytes(address: int) -> int:
    """How much of this process's mapping at an address is in huge pages of its file."""
    begin = f"{address:x}-"
    with _MAPPINGS.open() as lines:
        for line in lines:
            if line.startswith(begin):
                break
        for line in lines:
            name, value, *_ = line.split()
            if name == "FilePmdMapped:":
                return int(value) << 10
            if not name.endswith(":"):
                break
    return 0
