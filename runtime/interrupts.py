"""Ctrl-C where native code runs that makes an error of its own from it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Holds a Ctrl-C back until the block ends, and raises it then, whatever the block raised.

    For TVM's calls and for the import of native modules: of a `KeyboardInterrupt` in the midst of
    them they make an error that doesn't say that it was one. Does nothing where no handler of
    Python's is set, and beside the main thread, which alone gets signals.
    """
    given = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(given):
        yield
        return
    held: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, given)
        for number in held[:1]:
            given(number, None)
