"""Signals that end a command, so that it can end in its own way."""

from __future__ import annotations

import os
import select
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended:
    """Whether a signal has come that ends the command.

    It is a pipe that Python's own handler writes to, on whichever thread the signal comes: a
    `threading.Event` that a handler sets deadlocks with the wait that it interrupts.
    """

    def __init__(self, read: int) -> None:
        """Looks at the pipe's end that is read."""
        self._read = read

    def wait(self, seconds: float) -> bool:
        """Waits for one at most so long; returns whether one has come."""
        readable, _, _ = select.select([self._read], [], [], seconds)
        return bool(readable)


@contextmanager
def ended_by_signals() -> Iterator[Ended]:
    """What the signals set which end a command; for the length of a `with`."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    before = {number: signal.signal(number, lambda _n, _f: None) for number in _ENDS}
    woken_before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    try:
        yield Ended(read)
    finally:
        signal.set_wakeup_fd(woken_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(read)
        os.close(write)
