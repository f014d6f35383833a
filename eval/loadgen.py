"""Drives one LoadGen test in this process: `python -m veltair.eval.loadgen PLAN RECORD`.

LoadGen issues queries from its own thread; a query goes into a slot of the server's shared segment
there and then, or waits in a backlog until a slot is free. A second thread takes the completions
and tells LoadGen of them while their outputs still lie in their slots.

A query that the server refuses is never served: LoadGen, which knows no refusals, hears of its end
only after the last query was issued, so that its verdict counts it as late.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter, deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlperf_loadgen
import msgspec

from veltair.eval.loadgen_backends import GoneBackend, NullBackend, SegmentBackend, make_samples
from veltair.eval.loadgen_plan import Plan, Record
from veltair.eval.loadgen_schedule import loadgen_seeds, server_schedule
from veltair.eval.precedence import take_precedence
from veltair.runtime.client import LocalClient
from veltair.runtime.errors import NotFoundError, RefusedError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from veltair.eval.loadgen_backends import Answer, Backend

IDLE_WAIT_S = 0.1
BACKLOG_WAIT_S = 0.001  # slots may also come free because another client released them
NULL_AUDIT_FILE = "no-audit.config"  # one in the working folder would change the settings


class Driver:
    """The system under test, as LoadGen sees it."""

    def __init__(self, backend: Backend, plan: Plan, schedule_seed: int) -> None:
        """Takes who serves the queries, and how they are scheduled."""
        self._backend = backend
        self._plan = plan
        self._schedule = server_schedule(schedule_seed, plan.qps, _most_queries(plan))
        self._start_ns = 0  # when the first query was due; known better with each query
        self._lock = threading.Lock()  # of the backlog and of what is submitted from it
        self._backlog: deque[tuple[int, int]] = deque()
        self._held: list[int] = []  # refused: LoadGen hears of their end when all were issued
        self._all_issued = False
        self._stopping = False
        self._ids: list[int] = []
        self.issued_ns: list[int] = []
        self.ended_ns: list[int] = []
        self.answered_ns: list[int] = []
        self.served: list[bool] = []
        self.failures: Counter[str] = Counter()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._complete, name="completions", daemon=True)

    def start(self) -> None:
        """Begins to take completions."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread that takes completions."""
        self._stopping = True
        self._thread.join()

    def issue(self, samples: Sequence[Any]) -> None:
        """LoadGen's callback: begins queries, or puts them into the backlog; never waits."""
        now_ns = time.monotonic_ns()
        with self._lock:
            for sample in samples:
                tag = len(self._ids)
                self._ids.append(sample.id)
                self.issued_ns.append(now_ns)
                self.ended_ns.append(0)
                self.answered_ns.append(0)
                self.served.append(False)
                self._backlog.append((tag, sample.index))
            self._set_start(now_ns)
            self._submit_backlog()

    def flush(self) -> None:
        """LoadGen's callback: all queries were issued."""
        with self._lock:
            self._all_issued = True

    def due_ns(self, tag: int) -> int:
        """Returns when a query was due."""
        if self._plan.scenario != "Server":
            return self.issued_ns[tag]
        return self._start_ns + int(self._schedule[tag])

    def record(self) -> Record:
        """Returns what happened."""
        return Record(
            due_ns=[self.due_ns(tag) for tag in range(len(self._ids))],
            issued_ns=self.issued_ns,
            ended_ns=self.ended_ns,
            answered_ns=self.answered_ns,
            served=self.served,
            failures=dict(self.failures),
        )

    def _set_start(self, now_ns: int) -> None:
        """No query is issued before it is due, so the least delay tells the start."""
        if self._plan.scenario == "Server":
            start_ns = now_ns - int(self._schedule[len(self._ids) - 1])
            self._start_ns = min(self._start_ns or start_ns, start_ns)

    def _submit_backlog(self) -> None:
        """Submits in the order of issue until there is no place; the lock is held."""
        while self._backlog:
            tag, sample = self._backlog[0]
            try:
                if not self._backend.submit(tag, sample, self.due_ns(tag)):
                    return
            except RefusedError as error:
                self._fail(tag, error.reason)
            except (NotFoundError, UnavailableError) as error:
                self.error = self.error or error
                self._fail(tag, "unavailable")
            self._backlog.popleft()

    def _fail(self, tag: int, reason: str) -> None:
        self.failures[reason] += 1
        self._held.append(tag)

    def _complete(self) -> None:
        while not self._stopping:
            try:
                answers = self._backend.wait(BACKLOG_WAIT_S if self._backlog else IDLE_WAIT_S)
            except UnavailableError as error:
                self._give_up(error)
                continue
            for answer in answers:
                self._end(answer)
            with self._lock:
                self._submit_backlog()
                # Only the Server scenario goes on without the answers to what it issued.
                if self._held and (self._all_issued or self._plan.scenario != "Server"):
                    self._release_held()

    def _end(self, answer: Answer) -> None:
        if answer.served:
            self.served[answer.tag] = True
            self.answered_ns[answer.tag] = answer.end_ns
        else:
            self.failures["error"] += 1
        address, size = (
            (0, 0) if answer.output is None else (answer.output.ctypes.data, answer.output.nbytes)
        )
        self._tell(answer.tag, address, size)
        answer.release()  # not before LoadGen has read the output

    def _tell(self, tag: int, address: int = 0, size: int = 0) -> None:
        response = mlperf_loadgen.QuerySampleResponse(self._ids[tag], address, size)
        self.ended_ns[tag] = time.monotonic_ns()
        mlperf_loadgen.QuerySamplesComplete([response])

    def _release_held(self) -> None:
        for tag in self._held:
            self._tell(tag)
        self._held.clear()

    def _give_up(self, error: UnavailableError) -> None:
        """The server is gone: ends everything, so that LoadGen ends too."""
        with self._lock:
            self.error = self.error or error
            self._backend = GoneBackend(str(error))
            waiting = {tag for tag, end_ns in enumerate(self.ended_ns) if end_ns == 0}
            self._backlog.clear()
            self.failures["unavailable"] += len(waiting - set(self._held))
            self._held = sorted(waiting)


def _most_queries(plan: Plan) -> int:
    """Returns a bound on the queries that a Server test issues: far beyond its Poisson spread."""
    expected = plan.qps * plan.duration_ns / 1e9
    return int(expected + 20 * expected**0.5) + 1000


def _settings(plan: Plan, seeds: Sequence[int]) -> Any:  # noqa: ANN401 # LoadGen has no types
    settings = mlperf_loadgen.TestSettings()
    settings.mode = mlperf_loadgen.TestMode.PerformanceOnly
    settings.scenario = getattr(mlperf_loadgen.TestScenario, plan.scenario)
    settings.min_duration_ms = plan.duration_ns // 1_000_000
    settings.min_query_count = 1
    settings.schedule_rng_seed, settings.sample_index_rng_seed, settings.qsl_rng_seed = seeds
    settings.server_target_qps = plan.qps
    settings.server_target_latency_ns = plan.latency_ns
    settings.server_target_latency_percentile = plan.percentile / 100
    settings.offline_expected_qps = plan.qps
    settings.single_stream_target_latency_percentile = plan.percentile / 100
    # LoadGen prepares as many queries as fit at this pace; too few end the test early.
    settings.single_stream_expected_latency_ns = max(plan.expected_ns // 4, 1000)
    return settings


def _log_settings(plan: Plan) -> Any:  # noqa: ANN401 # LoadGen has no types
    output = mlperf_loadgen.LogOutputSettings()
    output.outdir = plan.log_folder
    output.copy_summary_to_stdout = False
    settings = mlperf_loadgen.LogSettings()
    settings.log_output = output
    settings.enable_trace = False
    return settings


def run(plan: Plan, backend: Backend) -> Record:
    """Runs one test; a process may do this once.

    Raises:
        UnavailableError: the server was lost.
    """
    seeds = loadgen_seeds(plan.seed)
    driver = Driver(backend, plan, seeds[0])
    sut = mlperf_loadgen.ConstructSUT(driver.issue, driver.flush)
    library = mlperf_loadgen.ConstructQSL(
        plan.samples, plan.samples, lambda _: None, lambda _: None
    )
    driver.start()
    try:
        mlperf_loadgen.StartTestWithLogSettings(
            sut,
            library,
            _settings(plan, seeds),
            _log_settings(plan),
            str(Path(plan.log_folder) / NULL_AUDIT_FILE),
        )
    finally:
        driver.stop()
        mlperf_loadgen.DestroyQSL(library)
        mlperf_loadgen.DestroySUT(sut)
    if driver.error is not None:
        raise driver.error
    return driver.record()


def main(plan_file: str, record_file: str) -> None:
    """Runs the test of a plan file and writes its record."""
    take_precedence(children=True)  # LoadGen's threads
    plan = msgspec.json.decode(Path(plan_file).read_bytes(), type=Plan)
    if plan.address is None:
        record = run(plan, NullBackend())
    else:
        with LocalClient.attach(plan.address) as client:
            inputs = max(
                (info for info in client.models() if info.name == plan.model),
                key=lambda info: (info.state == "ready", info.version),
            ).inputs
            samples = make_samples(inputs, plan.samples, plan.seed)
            record = run(plan, SegmentBackend(client, plan, samples))
    Path(record_file).write_bytes(msgspec.json.encode(record))


if __name__ == "__main__":
    main(*sys.argv[1:])
