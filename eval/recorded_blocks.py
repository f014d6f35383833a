"""The blocks of a real run, from the server's record, and the machine's pace that they tell."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from veltair.runtime.record import DecisionLine, Header, Line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from veltair.runtime._native import sched

_RUN = "run"
_OF_TASK = 0, 1, 7, 9  # id, model, arrival_ns and order, as a task's row has them
_HELD = 6  # cores, as a worker's row has them


@dataclass(frozen=True, kw_only=True)
class Part:
    """What a block ran on for a while.

    Attributes:
        cores: that it had.
        ns: for how long.
    """

    cores: int
    ns: int


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block that ran.

    Attributes:
        model: name.
        arrival_ns: of its query; this and all times as of `time.monotonic_ns`.
        layer_begin: its first layer.
        layer_end: the layer behind its last.
        busy: cores that others' blocks had when it began.
        begin_ns: when it was decided on.
        parts: from then on; one more for each time that it gained or lost cores.
    """

    model: str
    arrival_ns: int
    layer_begin: int
    layer_end: int
    busy: int
    begin_ns: int
    parts: tuple[Part, ...]

    @property
    def took_ns(self) -> int:
        """From its begin until the next decision on its query was due, or the query ended."""
        return sum(part.ns for part in self.parts)


def recorded_blocks(record: Path, ends: Mapping[int, int]) -> list[Block]:
    """Reads the blocks of some queries.

    Args:
        record: of a server that served one version of each model, by a policy under which running
            blocks gain cores.
        ends: of these queries, each served, end_ns by arrival_ns.

    Returns:
        In the order of their ends; those that took no time are left out.
    """
    header, decisions = _decisions(record)
    replay = _Replay(header, ends)
    for line in decisions:
        replay.decide(line)
    return replay.ended()


def predicted_ns(block: Block, plan: sched.ModelPlan, *, boundary_ns: int, gain_ns: int) -> float:
    """Returns what the simulator takes for a block on the cores that it had.

    While it had other cores than before it is timed by the share of it that is done meanwhile, if
    the machine is as fast in all of its parts.

    Args:
        block: with at least one part.
        plan: of its model.
        boundary_ns: what its begin costs.
        gain_ns: what it costs each time that it gains cores.
    """
    all_ns = [
        plan.time_ns(block.layer_begin, block.layer_end, part.cores, block.busy)
        for part in block.parts
    ]
    done = sum(part.ns / ns for part, ns in zip(block.parts, all_ns, strict=True))
    gains = sum(
        gain_ns / ns
        for (before, part), ns in zip(pairwise(block.parts), all_ns[1:], strict=True)
        if part.cores > before.cores
    )
    return block.took_ns * (1 + boundary_ns / all_ns[0] + gains) / done


def machine_pace(
    blocks: Sequence[Block],
    predicted_ns: Sequence[float],
    *,
    from_ns: int,
    step_ns: int,
) -> tuple[float, ...]:
    """Returns the machine's pace from step to step: what blocks took for what was predicted.

    In a step it is the time that blocks ran over the work that they did, each at its own pace from
    its begin to its end. Where none ran it is in between those before and after.

    Args:
        blocks: of one run.
        predicted_ns: of each, above 0.
        from_ns: begin of the first step; no block begins before.
        step_ns: length of a step.

    Returns:
        For each step up to the last block's end; none without a block.
    """
    if not blocks:
        return ()
    last_ns = max(block.begin_ns + block.took_ns for block in blocks)
    count = -(-(last_ns - from_ns) // step_ns)
    time_ns = np.zeros(count)
    work_ns = np.zeros(count)
    for block, predicted in zip(blocks, predicted_ns, strict=True):
        begin_ns = block.begin_ns - from_ns
        end_ns = begin_ns + block.took_ns
        steps = np.arange(begin_ns // step_ns, -(-end_ns // step_ns))
        within = np.minimum(end_ns, (steps + 1) * step_ns) - np.maximum(begin_ns, steps * step_ns)
        time_ns[steps] += within
        work_ns[steps] += within * (predicted / max(block.took_ns, 1))
    known = np.flatnonzero(work_ns)
    pace = np.interp(np.arange(count), known, time_ns[known] / work_ns[known])
    return tuple(pace.tolist())


def _decisions(record: Path) -> tuple[Header, list[DecisionLine]]:
    """Of a server's only run, in the order in which they were made."""
    decoder = msgspec.json.Decoder(Line)
    header = None
    decisions = []
    with record.open("rb") as lines:
        for line in map(decoder.decode, lines):
            if isinstance(line, Header):
                header = line
            elif isinstance(line, DecisionLine):
                decisions.append(line)
    if header is None:
        raise ValueError(f"{record.name} has no header")
    return header, sorted(decisions, key=lambda line: line.sequence)


@dataclass(kw_only=True)
class _Running:
    """A block that runs on `cores` since `since_ns`, of those that it wants."""

    model: str
    arrival_ns: int
    order: int
    layer_begin: int
    layer_end: int
    wanted: int
    busy: int
    begin_ns: int
    cores: int
    since_ns: int
    parts: list[Part] = field(default_factory=list)

    def have(self, cores: int, now_ns: int) -> None:
        if cores == self.cores:
            return
        if now_ns > self.since_ns:
            self.parts.append(Part(cores=self.cores, ns=now_ns - self.since_ns))
        self.cores = cores
        self.since_ns = now_ns


class _Replay:
    """Who ran on how many cores, from one decision to the next.

    A decision tells who has how many at that moment. What follows from it is not recorded, nor is
    what follows from a query's end: then blocks that lack cores gain those that are free, the
    oldest query's first.
    """

    def __init__(self, header: Header, ends: Mapping[int, int]) -> None:
        self._names = [model.name.rsplit("/", 1)[0] for model in header.models]
        self._free = header.cores
        self._ends = ends
        self._running: dict[int, _Running] = {}  # by worker
        self._blocks: list[Block] = []

    def decide(self, line: DecisionLine) -> None:
        """Goes on to the next decision, and makes it."""
        self._end_queries(line.now_ns)
        held = {row[0]: row[_HELD] for row in line.workers}
        ended = self._running.pop(line.worker, None)
        if ended is not None and line.event == "block_end":
            self._end(ended, line.now_ns)
        # Of what else there was, as queries that aren't asked for, the end is not known.
        self._running = {w: block for w, block in self._running.items() if w in held}
        for worker, block in self._running.items():
            block.have(held[worker], line.now_ns)
        self._free = line.free_cores + held.pop(line.worker, 0)
        if line.decision.action == _RUN and line.decision.task >= 0:
            self._revoke(line)
            self._begin(line, busy=sum(held.values()))
        self._top_up(line.now_ns)

    def ended(self) -> list[Block]:
        """Goes on to the last end."""
        self._end_queries(max(self._ends.values(), default=0))
        return self._blocks

    def _end_queries(self, now_ns: int) -> None:
        ending = {self._ends.get(each.arrival_ns): w for w, each in self._running.items()}
        for end_ns in sorted(ns for ns in ending if ns is not None and ns <= now_ns):
            block = self._running.pop(ending[end_ns])
            self._free += block.cores
            self._end(block, end_ns)
            self._top_up(end_ns)

    def _end(self, running: _Running, now_ns: int) -> None:
        running.have(0, now_ns)
        if not running.parts or running.arrival_ns not in self._ends:
            return
        self._blocks.append(
            Block(
                model=running.model,
                arrival_ns=running.arrival_ns,
                layer_begin=running.layer_begin,
                layer_end=running.layer_end,
                busy=running.busy,
                begin_ns=running.begin_ns,
                parts=tuple(running.parts),
            )
        )

    def _revoke(self, line: DecisionLine) -> None:
        victim = self._running.get(line.decision.revoke_worker)
        if victim is None or victim.cores <= line.decision.revoke_keep:
            return
        self._free += victim.cores - line.decision.revoke_keep
        victim.have(line.decision.revoke_keep, line.now_ns)

    def _begin(self, line: DecisionLine, busy: int) -> None:
        decision = line.decision
        rows = (tuple(row[at] for at in _OF_TASK) for row in (*line.queue, *line.tasks))
        model, arrival_ns, order = next(row[1:] for row in rows if row[0] == decision.task)
        cores = min(decision.cores, self._free)
        self._free -= cores
        self._running[line.worker] = _Running(
            model=self._names[model],
            arrival_ns=arrival_ns,
            order=order,
            layer_begin=decision.layer_begin,
            layer_end=decision.layer_end,
            wanted=decision.cores,
            busy=busy,
            begin_ns=line.now_ns,
            cores=cores,
            since_ns=line.now_ns,
        )

    def _top_up(self, now_ns: int) -> None:
        for block in sorted(self._running.values(), key=lambda each: each.order):
            gained = min(block.wanted - block.cores, self._free)
            if gained > 0:
                self._free -= gained
                block.have(block.cores + gained, now_ns)
