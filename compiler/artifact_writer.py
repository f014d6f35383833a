"""Writes an artifact folder so that it is whole or absent, whatever happens meanwhile."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil

from veltair.runtime.errors import InputError
from veltair.runtime.manifest import FileDigest

_CHUNK_BYTES = 1 << 20
_AT_FDCWD = -100  # Linux: paths are relative to the working folder
_RENAME_EXCHANGE = 2


def digest(path: Path) -> FileDigest:
    """Size and SHA-256 of a file."""
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            hasher.update(chunk)
    return FileDigest(size_bytes=path.stat().st_size, sha256=hasher.hexdigest())


def check_absent(target: Path, *, force: bool) -> None:
    """Refuses to write over an artifact.

    Raises:
        InputError: `target` exists and `force` is not set, or a parent of it is a file.
    """
    if target.exists() and not force:
        raise InputError(f"{target}: exists; give another folder, or --force to replace it")
    for parent in target.parents:
        if parent.exists() and not parent.is_dir():
            raise InputError(f"{parent}: is a file, not a folder; give another output folder")


@contextlib.contextmanager
def staged(root: Path, target: Path) -> Iterator[Path]:
    """A temporary folder in `root` that becomes `target` when the block ends without an error.

    What an earlier, killed compile left in `root` is removed.

    Args:
        root: the repository; on the file system of `target`.
        target: `root/<model>/<version>`; replaced if it exists.
    """
    root.mkdir(parents=True, exist_ok=True)
    _remove_stale(root)
    folder = root / f".{target.parent.name}-{target.name}.{os.getpid()}.tmp"
    folder.mkdir()
    try:
        yield folder
        for path in folder.iterdir():
            _sync(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            _exchange(folder, target)
        else:
            folder.rename(target)
        _sync(target.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _exchange(folder: Path, target: Path) -> None:
    """Swaps two folders in one step, so that `target` is whole at every moment."""
    libc = ctypes.CDLL(None, use_errno=True)
    paths = (os.fsencode(folder), os.fsencode(target))
    if libc.renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0:
        return
    if ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(target))
    # The file system can't swap: for a moment there is no artifact, never half of one.
    old = folder.with_suffix(".old")
    target.rename(old)
    folder.rename(target)
    shutil.rmtree(old)


def _remove_stale(root: Path) -> None:
    for pattern in (".*-*.*.tmp", ".*-*.*.old"):
        for path in root.glob(pattern):
            pid = path.suffixes[-2][1:] if len(path.suffixes) >= 2 else ""
            if pid.isdigit() and not psutil.pid_exists(int(pid)):
                shutil.rmtree(path, ignore_errors=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
