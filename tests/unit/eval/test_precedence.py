"""Load generators that take precedence, where they may."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, TypeVar

import pytest

from veltair.eval.outcomes import undelayed
from veltair.eval.precedence import precedence, take_precedence

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_POLICY = "import os; print(os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK)"


def policy() -> int:
    """The calling thread's."""
    return os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK


def in_a_thread(work: Callable[[], T]) -> T:
    """What work returns in a thread of its own."""
    found: list[T] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


needs_right = pytest.mark.skipif(
    not in_a_thread(take_precedence), reason="may not make real-time threads"
)


def test_a_thread_is_afterwards_what_it_was() -> None:
    before = policy()
    with precedence():
        pass
    assert policy() == before


@needs_right
def test_a_thread_has_it_within_the_block_and_starts_none_that_have_it() -> None:
    before = policy()
    with precedence():
        assert policy() == os.SCHED_RR
        assert in_a_thread(policy) == before
        run = subprocess.run([sys.executable, "-c", _POLICY], capture_output=True, check=True)
        assert int(run.stdout) == before


@needs_right
def test_load_generators_have_it_while_they_run() -> None:
    before = policy()
    with undelayed():
        assert policy() == os.SCHED_RR
    assert policy() == before


@needs_right
def test_it_is_the_calling_threads_alone_unless_its_children_are_to_have_it() -> None:
    before = policy()
    assert in_a_thread(lambda: (take_precedence(), policy())) == (True, os.SCHED_RR)
    assert policy() == before

    def with_children() -> int:
        take_precedence(children=True)
        return in_a_thread(policy)

    assert in_a_thread(with_children) == os.SCHED_RR


def test_without_the_right_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    before = policy()
    assert not take_precedence()
    with precedence():
        assert policy() == before
