"""Feeds recorded decisions to the policies again, and tells where they decide differently now.

A scheduling decision is a pure function of its view, event and time, so each line is asked on its
own, in whatever order the lines are. A batcher is a state machine: it is made anew from its line
and told its events in their order; after a gap it can't be followed further.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from veltair.runtime._native import sched
from veltair.runtime.errors import InputError
from veltair.runtime.record import (
    SCHEMA,
    BatcherLine,
    BatchLine,
    DecisionLine,
    DecisionRecord,
    DispatchRecord,
    DropRecord,
    Header,
    Line,
    PolicyLine,
    SkippedLine,
)

KEPT_DIFFERENCES = 5
_LINE_BEGIN = b'{"kind":"'
_EVENTS = {
    "worker_idle": sched.EventKind.WORKER_IDLE,
    "block_end": sched.EventKind.BLOCK_END,
}
_ACTIONS = {action: action.name.lower() for action in sched.Action}
_REFUSED = (ValueError, IndexError, TypeError)  # by the bindings, of what can't be

Decided = DecisionRecord | tuple[list[DispatchRecord], list[DropRecord]] | str


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A decision that came out differently.

    Attributes:
        line: of the file, from 1.
        sequence: of the decision.
        policy: that decided.
        event: that it decided on, with its time.
        recorded: what the record says.
        replayed: what the policy says now; a text where it refused the event.
    """

    line: int
    sequence: int
    policy: str
    event: str
    recorded: Decided
    replayed: Decided


@dataclass(kw_only=True)
class Tally:
    """What one policy's decisions came to.

    Attributes:
        policy: its name, and what it was made with.
        asked: decisions that were compared.
        differing: those of them that came out differently.
        unasked: decisions that could not be compared: recorded with less than this policy reads, or
            a batcher's after a gap.
    """

    policy: str
    asked: int = 0
    differing: int = 0
    unasked: int = 0


@dataclass(kw_only=True)
class Report:
    """What a replay found.

    Attributes:
        headers: one for each run in the file.
        tallies: one for each policy, in the order of the file.
        differences: the first ones.
        skipped: decisions whose queues were too long to be recorded.
        missing: decisions that are in no line: their process was killed before it wrote them.
        torn: lines that were begun and not ended, likewise.
    """

    headers: list[Header] = field(default_factory=list)
    tallies: list[Tally] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    skipped: int = 0
    missing: int = 0
    torn: int = 0

    @property
    def asked(self) -> int:
        """Decisions that were compared."""
        return sum(tally.asked for tally in self.tallies)

    @property
    def differing(self) -> int:
        """Decisions that came out differently."""
        return sum(tally.differing for tally in self.tallies)

    @property
    def unasked(self) -> int:
        """Decisions that could not be compared."""
        return sum(tally.unasked for tally in self.tallies)


def replay(path: Path, *, policy: str | None = None) -> Report:
    """Replays a record.

    Args:
        path: the file.
        policy: a scheduling policy to ask in place of the recorded ones, with their parameters.

    Raises:
        InputError: the file is no record, or of another version, or a line is damaged.
    """
    replayed = _Replay(policy)
    number = 0
    try:
        with path.open("rb") as file:
            texts = itertools.chain([_opening(file)], file)
            for number, line in _lines(texts, replayed.report):
                replayed.take(number, line)
    except OSError as error:
        raise InputError(f"{path}: can't be read ({error.strerror}); name a record") from error
    except _Damaged as error:
        raise InputError(f"{path}: {error}") from error
    except _REFUSED as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"{path}: line {number}: can't be: {reason}; the record is damaged"
        ) from error
    replayed.end_run()
    return replayed.report


class _Damaged(Exception):
    """The message says where and how."""


class _Opening(msgspec.Struct):
    """What is read of a first line before its schema is known."""

    kind: str
    schema: int


def _opening(file: BinaryIO) -> bytes:
    """Returns the first line, once it is known to be a header of a schema that can be read."""
    begin = file.read(len(_LINE_BEGIN))
    if not begin:
        raise _Damaged("the file is empty; a record of decisions begins with a header")
    if begin != _LINE_BEGIN:
        raise _Damaged("no record of decisions: the first line is no header")
    try:
        text = begin + file.readline()
        opening = msgspec.json.decode(text, type=_Opening)
    except msgspec.DecodeError as error:
        raise _Damaged(f"no record of decisions: the first line is no header: {error}") from error
    if opening.kind != "header":
        raise _Damaged(f"no record of decisions: the first line is `{opening.kind}`, no header")
    if opening.schema != SCHEMA:
        raise _Damaged(
            f"schema {opening.schema}: this version reads schema {SCHEMA}; replay it with the "
            "version of Veltair that wrote it (`veltair` in the first line)"
        )
    return text


def _lines(texts: Iterable[bytes], report: Report) -> Iterator[tuple[int, Line]]:
    """Decodes each line, and counts those that their process could not end."""
    decode: Callable[[bytes], Line] = msgspec.json.Decoder(Line).decode
    for number, text in enumerate(texts, start=1):
        try:
            yield number, decode(text)
        except msgspec.DecodeError as error:
            whole = text.rfind(_LINE_BEGIN, 1)
            if whole > 0:  # another process wrote its own line right behind
                yield number, _decode_rest(decode, text[whole:], number)
            elif text.endswith(b"\n") or not _may_be_cut(text):
                raise _Damaged(f"line {number}: no line of a record: {error}") from error
            report.torn += 1


def _decode_rest(decode: Callable[[bytes], Line], text: bytes, number: int) -> Line:
    try:
        return decode(text)
    except msgspec.DecodeError as error:
        raise _Damaged(f"line {number}: no line of a record: {error}") from error


def _may_be_cut(text: bytes) -> bool:
    return text.startswith(_LINE_BEGIN) or _LINE_BEGIN.startswith(text)


class _Numbers:
    """Counts the sequence numbers of a run, to tell how many are missing."""

    def __init__(self) -> None:
        self._seen = 0
        self._next = 0

    def take(self, sequence: int) -> bool:
        """Returns whether the number is the one after the last."""
        is_next = sequence == self._next
        self._seen += 1
        self._next = max(self._next, sequence + 1)
        return is_next

    @property
    def missing(self) -> int:
        return max(self._next - self._seen, 0)


@dataclass(kw_only=True)
class _Policy:
    line: PolicyLine
    policy: sched.Policy
    queued: int
    tally: Tally


@dataclass(kw_only=True)
class _Batcher:
    batcher: sched.Batcher
    tally: Tally
    is_followed: bool = True


class _Replay:
    """Takes the lines of a record one after the other."""

    def __init__(self, policy: str | None) -> None:
        self.report = Report()
        self._instead = policy
        self._begin_run()

    def _begin_run(self) -> None:
        self._policies: dict[int, _Policy] = {}
        self._batchers: dict[int, _Batcher] = {}
        self._decisions = _Numbers()
        self._batches = _Numbers()

    def end_run(self) -> None:
        """Counts what the run that ends lacks."""
        self.report.missing += self._decisions.missing + self._batches.missing

    def take(self, number: int, line: Line) -> None:
        """Takes a line; `number` from 1."""
        if isinstance(line, DecisionLine):
            self._decision(number, line)
        elif isinstance(line, BatchLine):
            self._batch(number, line)
        elif isinstance(line, SkippedLine):
            self._decisions.take(line.sequence)
            self.report.skipped += 1
        elif isinstance(line, PolicyLine):
            self._policy(number, line)
        elif isinstance(line, BatcherLine):
            self._batcher(line)
        else:
            self._header(number, line)

    def _header(self, number: int, line: Header) -> None:
        if line.schema != SCHEMA:
            raise _Damaged(f"line {number}: schema {line.schema}, after schema {SCHEMA}")
        self.end_run()
        self._begin_run()
        self.report.headers.append(line)
        self._profiles = [model.to_profile() for model in line.models]
        if line.cores > 0:
            self._view = sched.RecordedView(
                models=self._profiles, total_cores=line.cores, workers=line.workers
            )

    def _policy(self, number: int, line: PolicyLine) -> None:
        told = self._policies.get(line.epoch)
        if told is not None and told.line == line:
            return  # another process tells it too
        if told is not None:
            raise _Damaged(f"line {number}: epoch {line.epoch} was of another policy before")
        name = self._instead or line.name
        header = self.report.headers[-1]
        options: dict[str, Any] = {**line.options}
        try:
            policy = sched.make_policy(name, header.cores, self._profiles, **options)
        except ValueError as error:
            if self._instead is None:
                raise
            raise InputError(f"--policy {name}: {error}") from error
        told_options = ", ".join(f"{key}={value}" for key, value in options.items())
        tally = Tally(policy=f"{name} ({told_options})" if options else name)
        self.report.tallies.append(tally)
        self._policies[line.epoch] = _Policy(
            line=line, policy=policy, queued=policy.needs.queued, tally=tally
        )

    def _decision(self, number: int, line: DecisionLine) -> None:
        self._decisions.take(line.sequence)
        asked = self._policies.get(line.epoch)
        if asked is None:
            raise _Damaged(f"line {number}: no policy of epoch {line.epoch} was told before")
        if len(line.queue) < min(line.queue_length, asked.queued):
            if self._instead is None:
                raise _Damaged(
                    f"line {number}: {len(line.queue)} of the {line.queue_length} tasks that wait, "
                    f"less than `{asked.policy.name}` reads"
                )
            asked.tally.unasked += 1
            return
        decision = self._view.decide(
            asked.policy,
            event=_EVENTS[line.event],
            worker=line.worker,
            now_ns=line.now_ns,
            queue=line.queue,
            tasks=line.tasks,
            workers=line.workers,
            queue_length=line.queue_length,
            free_cores=line.free_cores,
            level=line.level,
            slowdown=line.slowdown,
            pace=line.pace,
        )
        event = f"{line.event} of worker {line.worker}"
        self._compare(number, line, asked.tally, event, line.decision, _decision_record(decision))

    def _batcher(self, line: BatcherLine) -> None:
        batcher = sched.Batcher(
            batching=line.batching,
            placement=line.placement,
            models=[sched.BatchCost(**msgspec.structs.asdict(cost)) for cost in line.costs],
            executors=[sched.ExecutorKind[kind.upper()] for kind in line.executors],
            queue_limit=line.queue_limit,
        )
        tally = Tally(policy=f"{line.batching} and {line.placement}")
        self.report.tallies.append(tally)
        self._batchers[line.epoch] = _Batcher(batcher=batcher, tally=tally)

    def _batch(self, number: int, line: BatchLine) -> None:
        told = self._batchers.get(line.epoch)
        if told is None:
            raise _Damaged(f"line {number}: no batcher of epoch {line.epoch} was told before")
        if not self._batches.take(line.sequence):
            told.is_followed = False
        if not told.is_followed:
            told.tally.unasked += 1
            return
        recorded = (line.dispatches, line.drops)
        self._compare(number, line, told.tally, line.event, recorded, _tell(told.batcher, line))

    def _compare(
        self,
        number: int,
        line: DecisionLine | BatchLine,
        tally: Tally,
        event: str,
        recorded: Decided,
        replayed: Decided,
    ) -> None:
        tally.asked += 1
        if recorded == replayed:
            return
        tally.differing += 1
        if len(self.report.differences) < KEPT_DIFFERENCES:
            self.report.differences.append(
                Difference(
                    line=number,
                    sequence=line.sequence,
                    policy=tally.policy,
                    event=f"{event} at {line.now_ns} ns",
                    recorded=recorded,
                    replayed=replayed,
                )
            )


def _decision_record(decision: sched.Decision) -> DecisionRecord:
    return DecisionRecord(
        task=decision.task,
        layer_begin=decision.layer_begin,
        layer_end=decision.layer_end,
        level=decision.level,
        cores=decision.cores,
        action=_ACTIONS[decision.action],
        reason=decision.reason,
        expected_ns=decision.expected_ns,
        revoke_worker=decision.revoke_worker,
        revoke_keep=decision.revoke_keep,
    )


def _tell(batcher: sched.Batcher, line: BatchLine) -> Decided:
    try:
        decisions = _told(batcher, line)
    except _REFUSED as error:  # after a difference, its executors may be others
        return f"refused: {' '.join(str(error).split())}"
    dispatches = [
        DispatchRecord(
            model=each.model,
            executor=each.executor,
            queries=decisions.queries(each),
            expected_ns=each.expected_ns,
            deadline_ns=each.deadline_ns,
            moment=each.moment,
            match=each.match,
        )
        for each in decisions.dispatches
    ]
    drops = [
        DropRecord(query=each.query, model=each.model, reason=each.reason)
        for each in decisions.drops
    ]
    return dispatches, drops


def _told(batcher: sched.Batcher, line: BatchLine) -> sched.Decisions:
    if line.event == "arrival":
        return batcher.on_arrival(
            model=line.model,
            query=line.query,
            arrival_ns=line.arrival_ns,
            deadline_ns=line.deadline_ns,
            now_ns=line.now_ns,
        )
    if line.event == "executor_free":
        return batcher.on_executor_free(executor=line.executor, now_ns=line.now_ns)
    return batcher.on_timer(now_ns=line.now_ns)
