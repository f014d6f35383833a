"""Temporary folders of commands, which the next one removes where its owner is gone.

A killed process leaves its folder behind. Each folder has a lock that its owner holds as long as it
lives, and that the operating system frees whatever ends it. Who gets the lock may remove the
folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "veltair-"
_LOCK = "lock"


@contextlib.contextmanager
def scratch(kind: str) -> Iterator[Path]:
    """A folder of this process in the temporary folder; goes at the end of the block.

    Args:
        kind: what it is for, a word: the folder is `veltair-<kind>-...`.
    """
    remove_stale()
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{kind}-") as name:
        folder = Path(name)
        handle = _locked(folder)
        try:
            yield folder
        finally:
            os.close(handle)


def _locked(folder: Path) -> int:
    """Locks a folder. The lock gets its name once it is held, so that nobody sees it free."""
    unnamed = folder / f"{_LOCK}.new"
    handle = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX)
    unnamed.rename(folder / _LOCK)
    return handle


def remove_stale() -> None:
    """Removes the folders of processes that are gone; what can't be removed stays."""
    for lock in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*/{_LOCK}"):
        with contextlib.suppress(OSError):  # it went meanwhile, or isn't ours to remove
            _remove_if_free(lock)


def _remove_if_free(lock: Path) -> None:
    found = lock.parent.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return
    handle = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(lock.parent, ignore_errors=True)
    finally:
        os.close(handle)
