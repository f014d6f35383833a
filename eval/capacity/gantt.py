"""A second of our server as blocks on cores, from the record of its decisions.

A record has how many cores a block held, not which. Here each block gets the lowest that are free,
which is how the server gives them; where one changes hands while blocks run, it may differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from veltair.eval.capacity.result import Bar
from veltair.runtime.record import DecisionLine, Header, Line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from veltair.eval.capacity.system import Observed
    from veltair.runtime.record import ModelRecord
    from veltair.runtime.simulate.arrivals import Arrivals

SECOND_NS = 1_000_000_000


@dataclass(kw_only=True)
class _Block:
    """A block as far as the record has told it."""

    query: int
    model: ModelRecord
    layers: tuple[int, int]
    level: int
    cores: int
    begin_ns: int
    end_ns: int


def second(
    record: Path, arrivals: Arrivals, observed: Observed, *, zero_ns: int, from_ns: int
) -> tuple[Bar, ...]:
    """Returns the blocks of one second.

    Args:
        record: of a server that has ended.
        arrivals: of a run on it.
        observed: what became of them.
        zero_ns: time 0 of the run, on the clock of the record.
        from_ns: begin of the second, from time 0.
    """
    lines = [msgspec.json.decode(text, type=Line) for text in record.read_bytes().splitlines()]
    header = next(line for line in lines if isinstance(line, Header))
    decisions = sorted(
        (line for line in lines if isinstance(line, DecisionLine)), key=lambda line: line.sequence
    )
    queries = {zero_ns + int(time_ns): query for query, time_ns in enumerate(arrivals.time_ns)}
    begin_ns = zero_ns + from_ns
    ends_ns = {query: zero_ns + int(end_ns) for query, end_ns in enumerate(observed.end_ns)}
    blocks = [
        block
        for block in _blocks(decisions, header.models, queries, ends_ns)
        if block.begin_ns < begin_ns + SECOND_NS and block.end_ns > begin_ns
    ]
    return tuple(_bars(blocks, header.cores, begin_ns))


def _blocks(
    decisions: Iterable[DecisionLine],
    models: Sequence[ModelRecord],
    queries: Mapping[int, int],
    ends_ns: Mapping[int, int],
) -> list[_Block]:
    """Follows each worker from decision to decision, blocks in the order of their begins."""
    found: list[_Block] = []
    running: dict[int, _Block] = {}
    for line in decisions:
        held = {row[0]: (row[8], row[6]) for row in line.workers}  # block's begin, cores
        for worker, block in running.items():
            began_ns, cores = held.get(worker, (0, 0))
            if began_ns == block.begin_ns:
                block.cores = max(block.cores, cores)
        ended = running.pop(line.worker, None)
        if ended is not None and line.event == "block_end":
            ended.end_ns = line.now_ns  # where its task has ended, the query's end is known
        decision = line.decision
        rows = {row[0]: row for row in (*line.queue, *line.tasks)}
        row = rows.get(decision.task)
        if decision.action != "run" or row is None or row[7] not in queries:
            continue
        query = queries[row[7]]
        own = held.get(line.worker, (0, 0))[1]
        block = _Block(
            query=query,
            model=models[row[1]],
            layers=(decision.layer_begin, decision.layer_end - 1),
            level=decision.level,
            cores=max(min(decision.cores, line.free_cores + own), 1),
            begin_ns=line.now_ns,
            end_ns=max(ends_ns[query], line.now_ns),
        )
        running[line.worker] = block
        found.append(block)
    return found


def _bars(blocks: Iterable[_Block], cores: int, begin_ns: int) -> Iterable[Bar]:
    free_ns = [0] * cores  # when each core comes free
    for block in blocks:
        free = [core for core in range(cores) if free_ns[core] <= block.begin_ns]
        chosen = free[: block.cores] or [min(range(cores), key=lambda core: free_ns[core])]
        for core in chosen:
            free_ns[core] = block.end_ns
        yield Bar(
            cores=tuple(chosen),
            model=block.model.name.rpartition("/")[0],
            query=block.query,
            layers=block.layers,
            version=_version(block.model, block.layers[0], len(chosen), block.level),
            begin_ns=max(block.begin_ns - begin_ns, 0),
            end_ns=min(block.end_ns - begin_ns, SECOND_NS),
        )


def _version(model: ModelRecord, layer: int, cores: int, level: int) -> int:
    """Returns the variant that the profile has as the fastest, which is what a block runs."""
    columns = len(model.cores)
    column = max(sum(1 for count in model.cores if count <= cores) - 1, 0)
    first = sum(model.variants[:layer])
    level = min(level, model.levels - 1)
    times = [
        model.layer_ns[((first + variant) * columns + column) * model.levels + level]
        for variant in range(model.variants[layer])
    ]
    return times.index(min(times))
