"""Files that are read up to a size, and files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LONGEST_BYTES = 256 << 20


def read_whole(path: Path) -> bytes:
    """Reads a file of at most `LONGEST_BYTES`; an endless one, as `/dev/zero`, ends there.

    Raises:
        OSError: it can't be read, or is longer.
    """
    with path.open("rb") as file:
        data = file.read(LONGEST_BYTES + 1)
    if len(data) > LONGEST_BYTES:
        reason = f"it is longer than {LONGEST_BYTES >> 20} MiB"
        raise OSError(errno.EFBIG, reason, str(path))
    return data


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside `path` that becomes `path` when the block ends, and goes if it fails.

    Whoever reads `path` sees all of the old file or all of the new one.

    Raises:
        OSError: it can't be put in place; `path` is as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all.

    Raises:
        OSError: it can't be written; `path` is as it was.
    """
    with writing(path) as file:
        file.write(data)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Opens a file that becomes `path` when the block ends, and goes if it fails.

    What is no file (`/dev/stdout`, a pipe) is written to as it is: to replace it would take it away
    from everybody else.

    Raises:
        OSError: it can't be written; a file at `path` is as it was.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    with replacing(path) as temporary, temporary.open("wb") as file:
        yield file
