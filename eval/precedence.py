"""Load generators take precedence of what they load, on the same processors.

Who sends a query or takes its answer sleeps until then. Where all processors compute, Linux lets it
wait for the end of a computing thread's time slice, up to 4 ms: of MobileNet-V2's target of 14 ms,
on 2 cores at 250 queries a second, 4.5 ms at the 99th percentile, for which the server is not to
blame. A real-time thread does not wait (0.4 ms). A load generator sleeps nearly all the time, so
that this takes no more of the processors than it did before.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PRIORITY = 1  # the least of the real-time ones


def take_precedence(*, children: bool = False) -> bool:
    """Makes the calling thread a real-time one, for as long as it lives.

    Args:
        children: whether the threads and processes that it starts are real-time ones too.

    Returns:
        Whether it may be one: without the right (CAP_SYS_NICE) or a limit on real-time priorities
        that allows it (`ulimit -r`) it remains as it was.
    """
    policy = os.SCHED_RR if children else os.SCHED_RR | os.SCHED_RESET_ON_FORK
    try:
        os.sched_setscheduler(0, policy, os.sched_param(_PRIORITY))
    except PermissionError:
        return False
    return True


@contextmanager
def precedence() -> Iterator[None]:
    """Makes the calling thread a real-time one within the block, if it may be one."""
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    taken = take_precedence()
    try:
        yield
    finally:
        if taken:
            # Who may be one by a limit may not take the flag back; it is no harm to others.
            os.sched_setscheduler(0, policy | os.SCHED_RESET_ON_FORK, parameters)
