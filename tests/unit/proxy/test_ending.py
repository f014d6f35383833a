"""Signals that end a command: on any thread, at any moment, and no longer than asked."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from veltair.proxy.ending import ended_by_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_remembered(number: int) -> None:
    before = signal.getsignal(number)
    with ended_by_signals() as ended:
        assert not ended.wait(0)
        os.kill(os.getpid(), number)
        assert ended.wait(10)
        assert ended.wait(0)
    assert signal.getsignal(number) is before


def test_a_wait_is_ended_from_another_thread() -> None:
    with ended_by_signals() as ended:
        killer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM))
        killer.start()
        assert ended.wait(60)
        killer.join()


def test_a_signal_at_any_moment_of_the_wait() -> None:
    for _ in range(200):
        with ended_by_signals() as ended:
            killer = threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGTERM))
            killer.start()
            while not ended.wait(0.0001):
                pass
            killer.join()
