"""Signals that end a command, so that it can end in its own way."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ended_by_signals() -> Iterator[threading.Event]:
    """An event that the signals set which end a command."""
    ended = threading.Event()
    before = {number: signal.signal(number, lambda _n, _f: ended.set()) for number in _ENDS}
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
