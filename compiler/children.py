"""Child processes that are kept from one request to the next, and how they end."""

from __future__ import annotations

import contextlib
import subprocess
from typing import Any


def end(child: subprocess.Popen[Any]) -> None:
    """Ends a child at once, whatever it is at, and closes the pipes to it."""
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):  # what it hasn't read it never will
                pipe.close()
