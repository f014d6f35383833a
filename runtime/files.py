"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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
    with replacing(path) as temporary:
        temporary.write_bytes(data)
