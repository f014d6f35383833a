"""What one LoadGen test is asked to do, and what came of it: the records between two processes.

LoadGen allows one test a process, so each runs in a child (`python -m veltair.eval.loadgen`).
"""

from __future__ import annotations

from typing import Literal

import msgspec

Scenario = Literal["Server", "SingleStream", "Offline"]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One test.

    Attributes:
        scenario: LoadGen's.
        qps: queries a second that are due (Server) or expected (Offline).
        duration_ns: for how long queries are due, at least.
        latency_ns: the target of one query.
        percentile: share of the queries that must meet it, percent.
        seed: of the samples, the schedule and the order of the samples.
        model: its name; its highest version is asked.
        address: of the server; None is the null model, which answers at once in the same process.
        expected_ns: how long one query takes alone, about.
        samples: different inputs.
        log_folder: where LoadGen writes its logs.
    """

    scenario: Scenario
    qps: float
    duration_ns: int
    latency_ns: int
    percentile: float
    seed: int
    model: str
    address: str | None
    expected_ns: int
    samples: int
    log_folder: str


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver saw; one entry a query, in the order in which LoadGen issued them.

    Attributes:
        due_ns: when the query was due, on the clock of `time.monotonic_ns`.
        issued_ns: when LoadGen handed it over.
        ended_ns: when LoadGen was told of its end.
        answered_ns: when it ended at the server, by the server's own clock; 0: it was not served.
        served: whether it ended with outputs.
        failures: of those that did not, how many for each reason.
    """

    due_ns: list[int]
    issued_ns: list[int]
    ended_ns: list[int]
    answered_ns: list[int]
    served: list[bool]
    failures: dict[str, int]
