"""What one client may take from the others: descriptors, memory, and time."""

from __future__ import annotations

import resource
import time
from typing import TYPE_CHECKING

from veltair.runtime.server.refusals import UNAVAILABLE, Refusal

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable
    from typing import Protocol

    from veltair.runtime.config import ServerConfig

    class Timed(Protocol):
        """Something that must be done by `deadline_ns` (0: at any time)."""

        deadline_ns: int

        def expire(self) -> None:
            """Called once the deadline has passed."""


RESERVED_DESCRIPTORS = 64  # the segment, eventfds, the libraries' files, pipes to the other ranks
FASTEST_SWEEP_MS = 10
SLOWEST_SWEEP_MS = 1_000


def raise_descriptor_limit(wanted_connections: int) -> int:
    """Raises the process's soft limit on open files as far as it may and needs.

    The usual soft limit, 1024, would be spent by as many idle connections, after which `accept`
    fails for everybody.

    Returns:
        How many connections fit: `wanted_connections` or fewer.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = wanted_connections + RESERVED_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return wanted_connections
    return max(1, min(wanted_connections, soft - RESERVED_DESCRIPTORS))


class ByteBudget:
    """Memory for bodies that can't go straight into a slot, all connections together."""

    def __init__(self, limit_bytes: int) -> None:
        """Takes the most bytes that may be held at once."""
        self.limit_bytes = limit_bytes
        self.held_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Counts `size_bytes` in.

        Raises:
            Refusal: 503, the budget is spent; nothing was counted.
        """
        if self.held_bytes + size_bytes > self.limit_bytes:
            raise Refusal(
                UNAVAILABLE,
                f"{self.held_bytes} bytes of unfinished bodies are held, at most "
                f"{self.limit_bytes} may be; send it again later, or raise "
                "max_buffered_bytes under [server]",
                close=True,
            )
        self.held_bytes += size_bytes

    def give(self, size_bytes: int) -> None:
        """Counts `size_bytes` out."""
        self.held_bytes -= size_bytes
        assert self.held_bytes >= 0


class Sweeper:
    """Expires connections by one timer for all: a request sets an integer, not a timer.

    The timer runs only while there are connections, so an idle server is not woken. Not
    thread-safe: used on the event loop's thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, config: ServerConfig) -> None:
        """Takes the loop and the timeouts, whose shortest gives the period."""
        shortest_ms = min(
            config.header_timeout_ms, config.body_timeout_ms, config.keepalive_timeout_ms
        )
        period_ms = min(max(shortest_ms // 4, FASTEST_SWEEP_MS), SLOWEST_SWEEP_MS)
        self._period_s = period_ms / 1000  # the loop's unit
        self._loop = loop
        self._members: set[Timed] = set()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Returns the number of connections."""
        return len(self._members)

    def members(self) -> Iterable[Timed]:
        """Returns a snapshot of the connections."""
        return tuple(self._members)

    def add(self, member: Timed) -> None:
        """Watches a connection until `discard`."""
        self._members.add(member)
        if self._timer is None:
            self._timer = self._loop.call_later(self._period_s, self._sweep)

    def discard(self, member: Timed) -> None:
        """Stops watching a connection."""
        self._members.discard(member)
        if not self._members:
            self.close()

    def close(self) -> None:
        """Stops the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sweep(self) -> None:
        self._timer = self._loop.call_later(self._period_s, self._sweep)
        now_ns = time.monotonic_ns()
        for member in [m for m in self._members if 0 < m.deadline_ns <= now_ns]:
            member.expire()
