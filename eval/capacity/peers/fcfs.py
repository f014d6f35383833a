"""Sends queries, open loop, into the pipe that the processes of an engine read."""

from __future__ import annotations

import os
import select
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from veltair.eval.capacity.peers.engine_process import READY, RECORD
from veltair.eval.capacity.peers.ledger import Ledger
from veltair.eval.capacity.peers.log import end_of
from veltair.eval.capacity.peers.processor_time import processor_ns, used_ns
from veltair.eval.outcomes import ANSWER_S, undelayed
from veltair.runtime.errors import VeltairError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence
    from pathlib import Path

    from veltair.eval.capacity.system import Observed
    from veltair.eval.outcomes import Allowance
    from veltair.runtime.simulate.arrivals import Arrivals

START_S = 300.0
_END_S = 5.0  # of a process that has closed its end of the pipe
_LOOK_S = 0.25
_NS_PER_S = 1_000_000_000
_CHUNK_BYTES = 1 << 16


class FirstComeFirstServed:
    """Processes that read one pipe of queries and write one of answers; a `Running`."""

    def __init__(
        self,
        what: str,
        processes: Sequence[subprocess.Popen[str]],
        queries: int,
        answers: int,
        log: Path,
    ) -> None:
        """Takes what to call them, the processes, our ends of the pipes, and where they log."""
        os.set_blocking(answers, False)
        self._what = what
        self._processes = processes
        self._queries = queries
        self._answers = answers
        self._log = log
        self._rest = b""
        self._look_s = 0.0

    def wait_until_ready(self) -> None:
        """Returns when every process has loaded every model.

        Raises:
            VeltairError: one ended, or they took too long.
        """
        ready = 0
        end_s = time.monotonic() + START_S
        while ready < len(self._processes):
            ready += self._lines(_LOOK_S).count(READY)
            self._check_alive()
            if time.monotonic() > end_s:
                raise VeltairError(
                    f"{self._what}: not ready within {START_S:.0f} s; {end_of(self._log)}"
                )

    def replay(self, arrivals: Arrivals, allowance: Allowance | None = None) -> Observed:
        """See `Running.replay`.

        Raises:
            VeltairError: a process ended, or nothing was answered for long.
        """
        pids = [process.pid for process in self._processes]
        before = processor_ns(pids)
        with undelayed():
            ledger = Ledger(arrivals, allowance)
            for query, due_ns in enumerate(ledger.due_ns):
                if ledger.is_lost:
                    ledger.cut(query)
                    break
                left_ns = due_ns - time.monotonic_ns()
                if left_ns > 0:
                    time.sleep(left_ns / _NS_PER_S)
                self._collect(ledger, 0)
                if ledger.admit(query):
                    self._send(RECORD.pack(query, ledger.model[query]))
                    ledger.sent(query)
            self._finish(ledger)
        return ledger.observed(used_ns(before, processor_ns(pids)))

    def _send(self, record: bytes) -> None:
        try:
            os.write(self._queries, record)
        except BrokenPipeError:  # nobody reads any more: all have ended, or are about to
            for process in self._processes:
                process.wait(_END_S)
            self._check_alive()
            raise

    def _finish(self, ledger: Ledger) -> None:
        end_s = time.monotonic() + ANSWER_S
        while ledger.left:
            if self._collect(ledger, _LOOK_S):
                end_s = time.monotonic() + ANSWER_S
            elif time.monotonic() > end_s:
                raise VeltairError(
                    f"{self._what}: {ledger.left} queries have not been answered for "
                    f"{ANSWER_S:.0f} s; {end_of(self._log)}"
                )

    def _collect(self, ledger: Ledger, timeout_s: float) -> int:
        """Notes the answers that are there, or come in time; returns how many."""
        now_s = time.monotonic()
        if now_s > self._look_s:
            self._check_alive()
            self._look_s = now_s + _LOOK_S
        lines = self._lines(timeout_s)
        for line in lines:
            query, start_ns, end_ns, error = line.split(" ", 3)
            ledger.ended(int(query), int(start_ns), int(end_ns), error)
        return len(lines)

    def _lines(self, timeout_s: float) -> list[str]:
        if timeout_s:
            select.select([self._answers], [], [], timeout_s)
        with suppress(BlockingIOError):
            self._rest += os.read(self._answers, _CHUNK_BYTES)
        *lines, self._rest = self._rest.split(b"\n")
        return [line.decode() for line in lines]

    def _check_alive(self) -> None:
        for process in self._processes:
            if process.poll() is not None:
                raise VeltairError(
                    f"{self._what}: a process ended with code {process.returncode}; "
                    f"{end_of(self._log)}"
                )
