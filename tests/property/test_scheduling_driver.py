"""Whatever the policy: no core is used by two, no query is lost or answered twice, all end."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from veltair.runtime._native import ipc, sched
from veltair.runtime.record import begin_record, make_header
from veltair.runtime.replay import replay

CORES = 4
WORKERS = 4
SLOTS = 4
LAYERS = 5
MS = 1_000_000
POLICIES = st.sampled_from([*sched.policy_names(), "block-2"])
# These begin whatever waits on whatever core is free.
CONSERVING = {"model", "layer", "veltair-as", "veltair-ac", "veltair"}


def _profile(qos_ms: int) -> sched.ModelProfile:
    """Layers of 1 ms on one core, twice as fast on two, and no faster on more."""
    layer_ns = [MS, MS // 2, MS // 2, MS // 2]
    return sched.ModelProfile(
        qos_ns=qos_ms * MS,
        cores=[1, 2, 3, 4],
        levels=1,
        model_ns=[LAYERS * time_ns for time_ns in layer_ns],
        variants=[1] * LAYERS,
        layer_ns=layer_ns * LAYERS,
    )


PROFILES = [_profile(qos_ms) for qos_ms in (4, 30)]


class DriverMachine(RuleBasedStateMachine):
    """Plays workers of the real segment under any policy, at times of its own."""

    def __init__(self) -> None:
        super().__init__()
        models = [
            ipc.ModelSpec(
                name=f"m{index}",
                version=1,
                input_bytes=[4],
                output_bytes=[4],
                slots=SLOTS,
                qos_ns=profile.qos_ns,
                needed_cores=1,
                expected_ns=LAYERS * MS,
                fastest_ns=LAYERS * MS // 2,
                metadata=b"",
            )
            for index, profile in enumerate(PROFILES)
        ]
        self.segment = ipc.Segment.create(
            cpus=range(CORES),
            workers=WORKERS,
            policies=ipc.Policies(),
            models=models,
        )
        self.board = ipc.Board(self.segment)
        for model in range(len(PROFILES)):
            self.board.set_model_state(model, ipc.ModelState.READY, "")
        self.board.set_state(ipc.ServerState.SERVING)
        self.client = ipc.Client(self.segment)
        self.now_ns = 0
        self.epoch = 0
        self.begun_again = 0
        self.folder = tempfile.TemporaryDirectory()
        self.record = Path(self.folder.name) / "record"
        models_told = [(f"m{index}", profile) for index, profile in enumerate(PROFILES)]
        header = make_header("monotonic", cores=CORES, workers=WORKERS, models=models_told)
        self.descriptor = begin_record(self.record, [header], field="record")
        self.policy = "model"
        self.scheduler = self._scheduler("model")
        self.present: set[int] = set()
        self.blocks: dict[int, sched.Decision] = {}  # that run, by worker
        self.used: dict[int, set[int]] = {}  # cores on which something of a worker may run
        self.layer: dict[int, int] = {}  # of a task: the next that must run
        self.sent = 0
        self.answers: Counter[int] = Counter()

    @initialize(policy=POLICIES, workers=st.integers(1, WORKERS))
    def start(self, policy: str, workers: int) -> None:
        self.change(policy)
        for worker in range(workers):
            self.join(worker)

    def join(self, worker: int) -> None:
        self.board.join(worker, 1, self.now_ns)
        self.present.add(worker)
        self.used[worker] = set()

    @rule(policy=POLICIES)
    def change(self, policy: str) -> None:
        """The policies change while tasks run and wait."""
        self.board.set_policies(ipc.Policies(scheduling=policy, max_block_ns=MS))
        self.epoch += 1
        self.policy = policy
        self.scheduler = self._scheduler(policy)

    def _scheduler(self, policy: str) -> ipc.Scheduler:
        return ipc.Scheduler(policy, CORES, PROFILES, self.epoch, self.descriptor)

    @rule(model=st.integers(0, len(PROFILES) - 1), wait_ns=st.integers(0, MS))
    def submit(self, model: int, wait_ns: int) -> None:
        self.now_ns += wait_ns
        verdict, query = self.client.allocate(model, self.now_ns)
        if verdict.ok:
            deadline_ns = self.now_ns + PROFILES[model].qos_ns
            assert self.client.submit(query, self.now_ns, deadline_ns, self.sent).ok
            self.sent += 1

    @precondition(lambda self: self.present - set(self.blocks))
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(sorted(self.present - set(self.blocks))))
        self._note(worker, self.board.take(worker, self.scheduler, self.now_ns))
        self._check_that_work_is_conserved()

    def _check_that_work_is_conserved(self) -> None:
        """Who asks gives work to all: no core is idle that a worker could use for a task."""
        if self.policy not in CONSERVING:
            return
        busy = {w for w in self.present if self.board.running_task(w) != sched.NONE}
        waiting = self.board.pending() - len(busy)
        assert waiting == 0 or busy == self.present or self.segment.cores_in_use == CORES

    @precondition(lambda self: self.blocks)
    @rule(data=st.data(), wait_ns=st.integers(0, MS))
    def end_block(self, data: st.DataObject, wait_ns: int) -> None:
        worker = data.draw(st.sampled_from(sorted(self.blocks)))
        self.now_ns += wait_ns
        self._end_block(worker)

    def _end_block(self, worker: int) -> None:
        block = self.blocks[worker]
        if not self.used[worker]:
            self._use_cores(worker)
        if not self.used[worker]:
            return  # its cores are still to be let go by others: it could not begin
        del self.blocks[worker]
        self.used[worker] = set()  # nothing runs between two blocks
        if block.layer_end == LAYERS:
            del self.layer[block.task]
            self.board.complete(worker, "", self.now_ns)
            return
        self.layer[block.task] = block.layer_end
        self._note(
            worker, self.board.next_block(worker, self.scheduler, block.layer_end, self.now_ns)
        )

    def _note(self, worker: int, block: sched.Decision | None) -> None:
        if block is None:
            return
        done = self.layer.get(block.task, 0)
        if done and block.layer_begin == 0:  # it was put back into the queue
            self.begun_again += 1
            assert self.begun_again <= self.segment.returns
        else:
            assert block.layer_begin == done  # no layer twice, none left out
        assert block.task not in {other.task for other in self.blocks.values()}
        self.layer[block.task] = block.layer_begin
        self.blocks[worker] = block
        self._use_cores(worker)

    def _use_cores(self, worker: int) -> None:
        self.used[worker] |= set(self.board.held_cores(worker))

    @precondition(lambda self: self.blocks)
    @rule(data=st.data())
    def cores_change(self, data: st.DataObject) -> None:
        """The second thread of a worker sees that its cores have changed."""
        worker = data.draw(st.sampled_from(sorted(self.blocks)))
        self._use_cores(worker)
        for core in self.board.leaving_cores(worker):
            if data.draw(st.booleans()):  # no kernel's task is on it any more
                self.used[worker].discard(core)
                self.board.let_go(worker, core, self.now_ns)

    @precondition(lambda self: self.present)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(sorted(self.present)))
        self._die(worker)

    def _die(self, worker: int) -> None:
        before = self.board.running_task(worker)
        self.present.remove(worker)
        self.used[worker] = set()
        self.blocks.pop(worker, None)
        self.layer.pop(before, None)
        self.board.remove_worker(worker)

    @precondition(lambda self: len(self.present) < WORKERS)
    @rule()
    def come(self) -> None:
        self.join(min(set(range(WORKERS)) - self.present))

    @rule()
    def collect(self) -> None:
        for ended in self.client.poll(100):
            self.answers[ended.tag] += 1
            assert ended.ok or ended.why in (ipc.Failure.DEADLINE, ipc.Failure.ERROR)
            self.layer.pop(ended.query, None)
            assert self.client.release(ended.query)

    @invariant()
    def state_is_whole(self) -> None:
        assert self.board.check() == ""
        used = [core for cores in self.used.values() for core in cores]
        assert len(used) == len(set(used)) <= CORES

    def teardown(self) -> None:
        """Every accepted query is answered once, and nothing stays behind."""
        if not self.present:
            self.join(0)
        for _ in range(10_000):
            if self.board.pending() == 0:
                break
            self.now_ns += MS // 10
            for worker in sorted(self.present):
                if worker not in self.blocks:
                    self._note(worker, self.board.take(worker, self.scheduler, self.now_ns))
                if worker in self.blocks:
                    self._end_block(worker)
            self.collect()
        assert self.board.pending() == 0
        self.collect()
        assert self.answers == Counter(range(self.sent))
        assert self.board.check() == ""
        assert self.segment.cores_in_use == 0
        self.client.close()
        os.close(self.descriptor)
        report = replay(self.record)
        self.folder.cleanup()
        # Whatever happened, the decisions replay.
        assert (report.differing, report.missing, report.skipped, report.torn) == (0, 0, 0, 0)
        assert report.asked >= (1 if self.sent else 0)


TestDriver = DriverMachine.TestCase
TestDriver.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
