"""Signals as a descriptor, for a loop that waits for several things."""

from __future__ import annotations

import os
import signal
from contextlib import suppress


class SignalPipe:
    """Becomes readable when one of the signals comes. Made and used on the main thread."""

    def __init__(self, *numbers: signal.Signals) -> None:
        """Takes the signals over from here on."""
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, lambda _number, _frame: None)

    def fileno(self) -> int:
        """Returns the descriptor that is readable when a signal has come."""
        return self._reader

    def take(self) -> set[int]:
        """Returns the signals that came since the last call."""
        with suppress(BlockingIOError):
            return set(os.read(self._reader, 4096))
        return set()
