"""Sends queries over HTTP, open loop: one thread keeps the time, another has the connections.

An event loop's own timers are as coarse as a millisecond, so this thread sleeps until a query is
due and hands it over. Requests are made beforehand; an answer is read to its end and not looked
into.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING

import aiohttp
import numpy as np
import uvloop

from veltair.eval.capacity.peers.ledger import Ledger
from veltair.eval.capacity.peers.log import end_of
from veltair.eval.capacity.peers.processor_time import processor_ns, tree, used_ns
from veltair.eval.outcomes import ANSWER_S, undelayed
from veltair.eval.precedence import take_precedence
from veltair.runtime.errors import VeltairError
from veltair.runtime.simulate.arrivals import Arrivals

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Coroutine, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from veltair.eval.capacity.system import Observed
    from veltair.eval.outcomes import Allowance

# Below the servers' own 5, so that no query meets a connection that its server is just closing.
_KEEP_ALIVE_S = 4
_WARM_ROUNDS = 20
_WARM_GAP_NS = 20_000_000
_LOOK_S = 0.25
_NS_PER_S = 1_000_000_000
_SAID = 300  # bytes of an answer that is an error


@dataclass(frozen=True, kw_only=True)
class Request:
    """A query as it is sent.

    Attributes:
        path: of the URL, with what follows it.
        body: as it is sent.
        headers: beside those that every request has.
    """

    path: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class HttpPeer:
    """A server that is up; a `Running`. Made by `connected`."""

    def __init__(
        self,
        what: str,
        server: subprocess.Popen[str],
        requests: Sequence[Request],
        log: Path,
        loop: asyncio.AbstractEventLoop,
        session: aiohttp.ClientSession,
    ) -> None:
        """Takes what to call it, its process, a request of each model by index, and where it logs.

        `loop` runs in another thread, and `session` belongs to it.
        """
        self._what = what
        self._server = server
        self._requests = requests
        self._log = log
        self._loop = loop
        self._session = session
        self._asking: set[asyncio.Task[None]] = set()  # or they would be collected while they wait

    def warm_up(self) -> None:
        """Asks for each model a few times, as a run does.

        Raises:
            VeltairError: the server does not answer, or not with what was asked for.
        """
        model = np.tile(np.arange(len(self._requests), dtype=np.int32), _WARM_ROUNDS)
        time_ns = np.arange(len(model), dtype=np.int64) * _WARM_GAP_NS
        found = self.replay(Arrivals(time_ns=time_ns, model=model))
        if found.errors:
            raise VeltairError(f"{self._what}: {found.errors[0]}; {end_of(self._log)}")

    def replay(self, arrivals: Arrivals, allowance: Allowance | None = None) -> Observed:
        """See `Running.replay`.

        Raises:
            VeltairError: the server ended, or answered nothing for long.
        """
        before = processor_ns(tree(self._server.pid))
        look_s = 0.0
        with undelayed():
            ledger = Ledger(arrivals, allowance)
            for query, due_ns in enumerate(ledger.due_ns):
                if ledger.is_lost:
                    self._loop.call_soon_threadsafe(ledger.cut, query)
                    break
                left_ns = due_ns - time.monotonic_ns()
                if left_ns > 0:
                    time.sleep(left_ns / _NS_PER_S)
                self._loop.call_soon_threadsafe(self._begin, ledger, query)
                if time.monotonic() > look_s:
                    self._check_alive()
                    look_s = time.monotonic() + _LOOK_S
            self._finish(ledger)
        return ledger.observed(used_ns(before, processor_ns(tree(self._server.pid))))

    def _finish(self, ledger: Ledger) -> None:
        left = ledger.left
        end_s = time.monotonic() + ANSWER_S
        while ledger.left:
            time.sleep(_LOOK_S / 10)
            self._check_alive()
            if ledger.left < left:
                left = ledger.left
                end_s = time.monotonic() + ANSWER_S
            elif time.monotonic() > end_s:
                raise VeltairError(
                    f"{self._what}: {left} queries have not been answered for "
                    f"{ANSWER_S:.0f} s; {end_of(self._log)}"
                )

    def _begin(self, ledger: Ledger, query: int) -> None:
        """Sends a query, in the loop's thread."""
        if ledger.admit(query):
            task = self._loop.create_task(self._ask(ledger, query))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def _ask(self, ledger: Ledger, query: int) -> None:
        request = self._requests[ledger.model[query]]
        error = ""
        try:
            async with self._session.post(
                request.path, data=request.body, headers=request.headers
            ) as response:
                body = await response.read()
                if response.status != HTTPStatus.OK:
                    error = f"HTTP {response.status}: {body[:_SAID].decode(errors='replace')}"
        except aiohttp.ClientError as failure:
            error = f"{type(failure).__name__}: {failure}"
        ledger.ended(query, -1, time.monotonic_ns(), error)

    def _check_alive(self) -> None:
        if self._server.poll() is not None:
            raise VeltairError(
                f"{self._what}: the server ended with code {self._server.returncode}; "
                f"{end_of(self._log)}"
            )

    async def _cancel(self) -> None:
        for task in list(self._asking):
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)


@contextmanager
def connected(
    what: str,
    server: subprocess.Popen[str],
    address: str,
    requests: Sequence[Request],
    log: Path,
) -> Iterator[HttpPeer]:
    """Keeps connections to a server until the block ends.

    Args:
        what: to call it.
        server: its process.
        address: `http://HOST:PORT`.
        requests: of each model, by index.
        log: where it writes.
    """
    loop = uvloop.new_event_loop()

    def run() -> None:
        take_precedence()
        loop.run_forever()

    thread = threading.Thread(target=run, name=f"connections of {what}", daemon=True)
    thread.start()

    def do(work: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 # whatever the work returns
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    session = do(_session(address))
    peer = HttpPeer(what, server, requests, log, loop, session)
    try:
        yield peer
    finally:
        do(peer._cancel())
        do(session.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _session(address: str) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        address,
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S),
        timeout=aiohttp.ClientTimeout(total=None),
        headers={"Accept-Encoding": "identity"},  # compressing would cost the server time
    )
