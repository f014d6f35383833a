"""Whatever clients and workers do, and whenever they die: no query is lost or answered twice."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from veltair.runtime._native import ipc, sched

CORES = 3
WORKERS = 3
SLOTS = 3
CLIENTS = 2
NEEDED = (2, 1)  # cores of a task of each model


def _profile(cores: int) -> sched.ModelProfile:
    """Asks for `cores` cores."""
    return sched.ModelProfile(
        qos_ns=20,
        cores=tuple(range(1, cores + 1)),
        levels=1,
        model_ns=[100] * (cores - 1) + [10],
        variants=[1],
        layer_ns=[1] * cores,
    )


def _segment() -> ipc.Segment:
    models = [
        ipc.ModelSpec(
            name=f"m{index}",
            version=1,
            input_bytes=[4],
            output_bytes=[4],
            slots=SLOTS,
            qos_ns=0,
            needed_cores=cores,
            expected_ns=10,
            metadata=b"",
        )
        for index, cores in enumerate(NEEDED)
    ]
    return ipc.Segment.create(
        cpus=range(CORES),
        workers=WORKERS,
        policies=ipc.Policies(),
        models=models,
    )


class SegmentMachine(RuleBasedStateMachine):
    """Drives the real segment beside a model of it in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.segment = _segment()
        self.board = ipc.Board(self.segment)
        for model in range(len(NEEDED)):
            self.board.set_model_state(model, ipc.ModelState.READY, "")
        self.board.set_state(ipc.ServerState.SERVING)
        self.scheduler = ipc.Scheduler("model", CORES, [_profile(c) for c in NEEDED])
        self.clients = [ipc.Client(self.segment) for _ in range(CLIENTS)]
        self.held: dict[int, int] = {}  # query to client
        self.waiting: list[int] = []  # queries in the order in which they must be taken
        self.running: dict[int, int] = {}  # worker to query
        self.given: dict[int, int] = {}  # the same, where the worker hasn't asked yet
        self.owner: dict[int, int] = {}  # accepted query to client
        self.tag_of: dict[int, int] = {}
        self.absent = set(range(WORKERS))
        self.deaths: Counter[int] = Counter()  # by query
        self.ended: dict[int, bool] = {}  # tag of a query that ended: whether with outputs
        self.answers: Counter[int] = Counter()  # by tag
        self.now_ns = 0
        self.next_tag = 0

    def _tick(self) -> int:
        self.now_ns += 1
        return self.now_ns

    @rule(client=st.integers(0, CLIENTS - 1), model=st.integers(0, len(NEEDED) - 1))
    def allocate(self, client: int, model: int) -> None:
        verdict, query = self.clients[client].allocate(model)
        if verdict.ok:
            assert query not in self.held
            assert query not in self.owner
            assert query // SLOTS == model
            self.held[query] = client
        else:
            # A running query of a client that has died has no owner, but its slot until it ends.
            taken = {*self.running.values(), *self.given.values()}
            occupied = {*self.held, *self.owner, *taken}
            assert len([q for q in occupied if q // SLOTS == model]) == SLOTS
            assert verdict.why is ipc.Failure.QUEUE_FULL

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def submit(self, data: st.DataObject) -> None:
        query = data.draw(st.sampled_from(sorted(self.held)))
        client = self.held.pop(query)
        assert self.clients[client].submit(query, 0, 0, self.next_tag).ok
        self.waiting.append(query)
        self.owner[query] = client
        self.tag_of[query] = self.next_tag
        self.deaths.pop(query, None)
        self.next_tag += 1

    @precondition(lambda self: self.absent)
    @rule(data=st.data())
    def join(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(sorted(self.absent)))
        self.absent.remove(worker)
        self.board.join(worker, 1, self._tick())

    def _idle(self) -> list[int]:
        return [w for w in range(WORKERS) if w not in self.absent and w not in self.running]

    @precondition(lambda self: self._idle())
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(self._idle()))
        self._begin_queued(first=worker)
        decision = self.board.take(worker, self.scheduler, self._tick())
        if worker not in self.given:
            assert decision is None
            return
        query = self.given.pop(worker)
        assert decision is not None
        assert decision.task == query
        assert decision.cores == NEEDED[query // SLOTS]
        self.running[worker] = query

    def _begin_queued(self, first: int) -> None:
        """Whoever asks gives work to all that are idle, itself first: first come, first served."""
        free = CORES - self.segment.cores_in_use
        for worker in (first, *self._idle()):
            if not self.waiting or free == 0:
                return
            if worker not in self.given:
                self.given[worker] = self.waiting.pop(0)
                free -= min(free, NEEDED[self.given[worker] // SLOTS])

    @precondition(lambda self: self.running)
    @rule(data=st.data(), error=st.sampled_from(["", "a kernel failed"]))
    def complete(self, data: st.DataObject, error: str) -> None:
        worker = data.draw(st.sampled_from(sorted(self.running)))
        query = self.running.pop(worker)
        self.board.complete(worker, error, self._tick())
        self._end(query, ok=not error)

    def _end(self, query: int, *, ok: bool) -> None:
        if query in self.owner:
            self.ended[self.tag_of[query]] = ok

    @precondition(lambda self: len(self.absent) < WORKERS)
    @rule(data=st.data())
    def worker_dies(self, data: st.DataObject) -> None:
        present = sorted(set(range(WORKERS)) - self.absent)
        worker = data.draw(st.sampled_from(present))
        self.board.remove_worker(worker)
        self.absent.add(worker)
        if worker not in self.running and worker not in self.given:
            return
        query = self.running.pop(worker) if worker in self.running else self.given.pop(worker)
        self.deaths[query] += 1
        if query not in self.owner:
            return  # nobody wants it: not run again
        if self.deaths[query] == 3:
            self._end(query, ok=False)
        else:
            self.waiting.append(query)
            self.waiting.sort(key=lambda q: self.tag_of[q])  # where it was before

    @rule(client=st.integers(0, CLIENTS - 1))
    def client_dies(self, client: int) -> None:
        self.clients[client].close()
        for query, owner in list(self.owner.items()):
            if owner == client:
                del self.owner[query]
                self.ended.pop(self.tag_of[query], None)
        self.held = {q: owner for q, owner in self.held.items() if owner != client}
        self.waiting = [query for query in self.waiting if query in self.owner]
        self.clients[client] = ipc.Client(self.segment)

    @rule(client=st.integers(0, CLIENTS - 1), limit=st.integers(1, 4))
    def collect(self, client: int, limit: int) -> None:
        for ended in self.clients[client].poll(limit):
            assert self.owner.pop(ended.query) == client
            assert ended.tag == self.tag_of[ended.query]
            assert ended.ok == self.ended.pop(ended.tag)
            self.answers[ended.tag] += 1
            assert self.answers[ended.tag] == 1
            assert self.clients[client].release(ended.query)

    @invariant()
    def state_is_whole(self) -> None:
        assert self.board.check() == ""
        held = [core for w in range(WORKERS) for core in self.board.held_cores(w)]
        assert len(held) == len(set(held)) == self.segment.cores_in_use
        assert all(self.board.held_cores(w) for w in (*self.running, *self.given))
        # A query that a dead client left running is pending until its task ends.
        assert self.board.pending() == len(
            {*self.waiting, *self.running.values(), *self.given.values()}
        )

    def teardown(self) -> None:
        """Serves all that is left: every accepted query must be answered."""
        for worker in list(self.running):
            self._end(self.running[worker], ok=True)
            self.board.complete(worker, "", self._tick())
        self.running.clear()
        if len(self.absent) == WORKERS:
            self.absent.remove(0)
            self.board.join(0, 1, self._tick())
        while self.board.pending() > 0:
            for worker in sorted(set(range(WORKERS)) - self.absent):
                decision = self.board.take(worker, self.scheduler, self._tick())
                if decision is not None:
                    self._end(decision.task, ok=True)
                    self.board.complete(worker, "", self._tick())
        for client in range(CLIENTS):
            self.collect(client, 1000)
            self.clients[client].close()
        assert not self.owner
        assert not self.ended
        assert self.board.check() == ""
        assert self.board.pending() == 0
        assert self.segment.cores_in_use == 0


TestSegment = SegmentMachine.TestCase
TestSegment.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
