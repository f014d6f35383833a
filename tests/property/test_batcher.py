"""Whatever comes, whenever batches end: the batcher loses nothing and keeps what it promises."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from veltair.runtime._native import sched

LOST = "it can't end by its deadline any more"
GIVEN_UP = "its deadline keeps the batch small, and those behind it can make a large one"
FRONTRUN = "one query more would not end in time"
QUEUE_LIMIT = 12


@dataclass(frozen=True, kw_only=True)
class Load:
    """A server, what arrives at it, and how far its batches' times are from what they should be."""

    batching: str
    costs: list[sched.BatchCost]
    slo_ns: list[int]  # 0: none
    devices: int
    arrivals: list[tuple[int, int]]  # (gap_ns, model)
    drifts_ns: list[int]  # of the batches in turn, in a circle


@dataclass
class Record:
    """All that was decided, and what a checker needs to know about it."""

    log: list[tuple[object, ...]] = field(default_factory=list)
    arrived: dict[int, tuple[int, int]] = field(default_factory=dict)  # query: (model, deadline)
    started: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    waiting: int = 0


def costs() -> st.SearchStrategy[sched.BatchCost]:
    return st.builds(
        sched.BatchCost,
        alpha_ns=st.integers(0, 30),
        beta_ns=st.integers(1, 100),
        max_batch=st.integers(1, 9) | st.just(1 << 20),
        timeout_ns=st.integers(0, 200),
        least_percent=st.integers(0, 100),
    )


@st.composite
def loads(draw: st.DrawFn, batching: str | None = None) -> Load:
    models = draw(st.integers(1, 4))
    count = st.integers(0, 60)
    arrival = st.tuples(st.integers(0, 40), st.integers(0, models - 1))
    return Load(
        batching=batching or draw(st.sampled_from(sched.batching_names())),
        costs=draw(st.lists(costs(), min_size=models, max_size=models)),
        slo_ns=draw(st.lists(st.just(0) | st.integers(1, 600), min_size=models, max_size=models)),
        devices=draw(st.integers(1, 4)),
        arrivals=draw(count.flatmap(lambda n: st.lists(arrival, min_size=n, max_size=n))),
        drifts_ns=draw(st.lists(st.integers(-50, 50), min_size=1, max_size=5)),
    )


class Driver:
    """Feeds a batcher the events of a load and checks each decision as it comes."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.batcher = sched.Batcher(
            batching=load.batching,
            placement="first-fit",
            models=load.costs,
            executors=[sched.ExecutorKind.DEVICE] * load.devices,
            queue_limit=QUEUE_LIMIT,
        )
        self.record = Record()
        self.busy: set[int] = set()
        self.endings: list[tuple[int, int, int]] = []
        self.was_busy = False

    def run(self) -> Record:
        now_ns = 0
        pending = list(enumerate(self.load.arrivals))[::-1]
        next_arrival_ns = pending[-1][1][0] if pending else sched.NEVER
        while True:
            ending_ns = self.endings[0][0] if self.endings else sched.NEVER
            now_ns = min(next_arrival_ns, ending_ns, self.batcher.next_timer_ns)
            self.was_busy = len(self.busy) == self.load.devices
            if now_ns == sched.NEVER:
                break
            if now_ns == next_arrival_ns:
                query, (_, model) = pending.pop()
                self.arrive(query, model, now_ns)
                next_arrival_ns = now_ns + pending[-1][1][0] if pending else sched.NEVER
            elif now_ns == ending_ns:
                executor = heapq.heappop(self.endings)[2]
                self.busy.remove(executor)
                decisions = self.batcher.on_executor_free(executor=executor, now_ns=now_ns)
                self.note(("free", now_ns, executor), decisions, now_ns)
            else:
                self.note(("timer", now_ns), self.batcher.on_timer(now_ns=now_ns), now_ns)
        self.record.waiting = sum(self.batcher.waiting(m) for m in range(len(self.load.costs)))
        return self.record

    def arrive(self, query: int, model: int, now_ns: int) -> None:
        slo_ns = self.load.slo_ns[model]
        deadline_ns = now_ns + slo_ns if slo_ns else 0
        self.record.arrived[query] = (model, deadline_ns or sched.NEVER)
        decisions = self.batcher.on_arrival(
            model=model, query=query, arrival_ns=now_ns, deadline_ns=deadline_ns, now_ns=now_ns
        )
        self.note(("arrival", now_ns, query), decisions, now_ns)

    def note(self, event: tuple[object, ...], decisions: sched.Decisions, now_ns: int) -> None:
        for dispatch in decisions.dispatches:
            self.check(dispatch, decisions.queries(dispatch), now_ns)
        for drop in decisions.drops:
            model, deadline_ns = self.record.arrived[drop.query]
            assert drop.model == model
            if drop.reason == LOST:
                assert now_ns + self.load.costs[model].time(1) > deadline_ns
            if drop.reason == GIVEN_UP:
                assert self.was_busy, "a query was given up though an executor was free"
            self.record.dropped.append(drop.query)
        decided = [
            (d.model, d.executor, decisions.queries(d), d.moment, d.match)
            for d in decisions.dispatches
        ]
        drops = [(drop.query, drop.reason) for drop in decisions.drops]
        self.record.log.append((event, decided, drops))
        assert self.batcher.next_timer_ns > now_ns
        if self.load.batching in ("none", "eager"):  # work is conserved
            idle = len(self.busy) < self.load.devices
            assert not (idle and any(self.batcher.waiting(m) for m in range(len(self.load.costs))))

    def check(self, dispatch: sched.Dispatch, queries: list[int], now_ns: int) -> None:
        cost = self.load.costs[dispatch.model]
        assert len(queries) == dispatch.size
        assert 1 <= dispatch.size <= cost.max_batch
        assert dispatch.executor not in self.busy, "an executor runs two batches at once"
        assert dispatch.executor == min(set(range(self.load.devices)) - self.busy)
        deadlines = [self.record.arrived[query][1] for query in queries]
        assert {self.record.arrived[query][0] for query in queries} == {dispatch.model}
        assert dispatch.deadline_ns == min(deadlines)
        assert dispatch.expected_ns == now_ns + cost.time(dispatch.size) <= min(deadlines)
        if dispatch.moment == FRONTRUN:
            assert now_ns + cost.time(dispatch.size + 1) >= min(deadlines)
        drift_ns = self.load.drifts_ns[len(self.record.log) % len(self.load.drifts_ns)]
        end_ns = max(dispatch.expected_ns + drift_ns, now_ns)
        heapq.heappush(self.endings, (end_ns, len(self.record.log), dispatch.executor))
        self.busy.add(dispatch.executor)
        self.record.started += queries


@given(loads())
def test_every_query_runs_once_or_is_dropped_once(load: Load) -> None:
    record = Driver(load).run()
    assert sorted(record.started + record.dropped) == sorted(record.arrived)
    assert record.waiting == 0


@given(loads())
def test_the_same_events_give_the_same_decisions(load: Load) -> None:
    assert Driver(load).run().log == Driver(load).run().log


@given(loads(batching="deferred"))
def test_a_deferred_query_alone_and_feasible_is_never_dropped(load: Load) -> None:
    """With an executor for each query and no limit reached, only what was lost on arrival drops."""
    roomy = Load(
        batching=load.batching,
        costs=[
            sched.BatchCost(alpha_ns=cost.alpha_ns, beta_ns=cost.beta_ns) for cost in load.costs
        ],
        slo_ns=load.slo_ns,
        devices=max(1, len(load.arrivals)),
        arrivals=load.arrivals[:QUEUE_LIMIT],
        drifts_ns=load.drifts_ns,
    )
    record = Driver(roomy).run()
    lost = [
        query
        for query, (model, _) in record.arrived.items()
        if roomy.slo_ns[model] and roomy.costs[model].time(1) > roomy.slo_ns[model]
    ]
    assert sorted(record.dropped) == lost
