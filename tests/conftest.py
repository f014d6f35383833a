"""What every test runs under."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Takes interrupts again where whoever started pytest in the background had them ignored.

    Children inherit an ignored signal, and tests interrupt the commands that they start.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
