from __future__ import annotations

import asyncio
import resource
import time

import pytest

from veltair.runtime.config import ServerConfig
from veltair.runtime.server.limits import (
    RESERVED_DESCRIPTORS,
    ByteBudget,
    Sweeper,
    raise_descriptor_limit,
)
from veltair.runtime.server.refusals import Refusal


class Member:
    def __init__(self, deadline_ns: int) -> None:
        self.deadline_ns = deadline_ns
        self.expired = asyncio.Event()

    def expire(self) -> None:
        self.deadline_ns = 0
        self.expired.set()


def test_sweeper_expires_what_is_late_and_nothing_else() -> None:
    async def run() -> tuple[bool, bool, bool]:
        sweeper = Sweeper(asyncio.get_running_loop(), ServerConfig(header_timeout_ms=1))
        now_ns = time.monotonic_ns()
        late, early, timeless = Member(now_ns - 1), Member(now_ns + 10**12), Member(0)
        for member in (late, early, timeless):
            sweeper.add(member)
        await asyncio.wait_for(late.expired.wait(), 5)
        sweeper.close()
        return late.expired.is_set(), early.expired.is_set(), timeless.expired.is_set()

    assert asyncio.run(run()) == (True, False, False)


def test_sweeper_lets_an_empty_server_sleep() -> None:
    class Loop(asyncio.SelectorEventLoop):
        timers = 0

        def call_later(self, *args: object, **options: object) -> asyncio.TimerHandle:
            self.timers += 1
            return super().call_later(*args, **options)  # type: ignore[arg-type]

    loop = Loop()
    try:
        sweeper = Sweeper(loop, ServerConfig())
        assert loop.timers == 0
        first, second = Member(0), Member(0)
        sweeper.add(first)
        sweeper.add(second)
        assert (loop.timers, len(sweeper)) == (1, 2)
        sweeper.discard(first)
        sweeper.discard(second)
        handles = loop._scheduled  # type: ignore[attr-defined]
        assert all(handle.cancelled() for handle in handles)
    finally:
        loop.close()


def test_descriptor_limit_bounds_the_connections() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        assert raise_descriptor_limit(500) == 500
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 500 + RESERVED_DESCRIPTORS
        assert raise_descriptor_limit(10) == 10  # it never lowers the limit
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 500 + RESERVED_DESCRIPTORS
        if before[1] != resource.RLIM_INFINITY:
            assert raise_descriptor_limit(before[1] * 2) == before[1] - RESERVED_DESCRIPTORS
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_budget_counts_nothing_when_it_refuses() -> None:
    budget = ByteBudget(10)
    budget.take(7)
    with pytest.raises(Refusal):
        budget.take(4)
    budget.take(3)
    assert budget.held_bytes == 10
