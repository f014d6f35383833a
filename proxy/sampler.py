"""Measures the interference level while a server's blocks run, and writes it where workers read it.

Where our own blocks are all that is read, with a trained model of them or without, the workers do
it themselves: who ends a block PERIOD_NS or more after the last look estimates the level
(`runtime/native/ipc/levels.cc`), which takes a microsecond. A thread that did so would take a core
from a kernel each time, for some 40 us and what the others wait meanwhile.

Where another source is read whose model is more accurate than our own blocks', a thread in rank 0
does it: each time a block has ended, but not more often than every PERIOD_NS, or every third while
the level stays as it is, it reads what the blocks took (`sources/own.py`) and the source's counts,
estimates the level, and smooths it. While nothing runs it sleeps.

A source that fails is replaced by the next best that works; the last is always our own blocks.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from veltair.proxy.estimate import SmoothLevel, estimate_level
from veltair.proxy.features import features
from veltair.proxy.proxy_file import Estimate
from veltair.proxy.sources import own
from veltair.proxy.sources.choice import open_best, open_source
from veltair.proxy.topology import cpu_ranges
from veltair.runtime._native import ipc
from veltair.runtime.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from veltair.proxy.proxy_file import ProxyFile
    from veltair.proxy.sources.computer import Computer
    from veltair.proxy.sources.reading import Reading, Source

PERIOD_NS = 10_000_000
OWN = "self"
AUTO = "auto"
_IDLE_NS = 1_000_000_000  # between two looks at a server that is idle
# A source that has not been read for so long has counted an idle server too.
_LONGEST_READING_NS = 10 * PERIOD_NS
_STEP = 0.05  # a change of the level that is followed closely
_STEADY_PERIODS = 3
_HIGHEST = 1000.0  # levels beyond don't fit, and tell nothing more
_OWN_FEATURES = {
    "block_level": ipc.OwnFeature.LEVEL,
    "block_slowdown": ipc.OwnFeature.SLOWDOWN,
}

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """What is sampled.

    Attributes:
        cpus: that the server runs on.
        complexes: the core complex of each, counted from 0.
        computer: where sources are opened.
        source: the name of one, or `auto`: the best that works.
        file: trained models; None: our own blocks tell the level.
    """

    cpus: Sequence[int]
    complexes: Sequence[int]
    computer: Computer
    source: str = AUTO
    file: ProxyFile | None = None


class SegmentBlocks:
    """The source of our own blocks, as a server's workers sum them in its segment."""

    def __init__(self, board: ipc.Board, places: Sequence[str], now_ns: int) -> None:
        """Begins; `places` names the core complexes."""
        self._board = board
        self._places = places
        self._time_ns = now_ns

    def read(self, now_ns: int) -> tuple[Reading, own.Blocks]:
        """Returns the reading since the last one, and its sums over all places."""
        totals = self._board.read_blocks()
        found = {place: _blocks(ended) for place, ended in zip(self._places, totals, strict=True)}
        elapsed_ns = now_ns - self._time_ns
        self._time_ns = now_ns
        return own.reading(found, now_ns, elapsed_ns), sum(found.values(), own.Blocks())


class LevelSampler:
    """Sees to it that the level is measured, from when it is made until `stop`.

    Whoever makes it calls `start`, and `stop` before the segment goes.
    """

    def __init__(
        self,
        segment: ipc.Segment,
        sampling: Sampling,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Opens the source.

        Args:
            segment: of the server that runs the blocks.
            sampling: what.
            clock: monotonic, in ns.
        """
        self._segment = segment
        self._board = ipc.Board(segment)
        self._sampling = sampling
        self._clock = clock
        now_ns = clock()
        self._places = place_names(sampling.cpus, sampling.complexes)
        self._blocks = SegmentBlocks(self._board, self._places, now_ns)
        self._smooth = [SmoothLevel(now_ns) for _ in range(1 + len(self._places))]
        self._failed: set[str] = set()
        self._pids: tuple[int, ...] = ()
        self._source: Source | None = None
        self._read_ns = now_ns
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="level", daemon=True)
        self._open()

    @property
    def source(self) -> str:
        """The name of the one that is read; `self` where our own blocks are all."""
        return OWN if self._source is None else self._source.name

    def start(self) -> None:
        """Begins to read another source, if there is one."""
        if self._source is not None:
            self._thread.start()

    def stop(self) -> None:
        """Ends the thread and closes the source."""
        self._stopped.set()
        if self._thread.is_alive():
            self._board.wake_sampler()
            self._thread.join()
        self._close()

    def sample(self) -> Estimate:
        """Looks once, whoever usually does; returns the level of the node."""
        now_ns = self._clock()
        if self._source is None:
            believed = self._board.look(now_ns)
            return Estimate(level=believed.level, confidence=believed.confidence)
        blocks, sums = self._blocks.read(now_ns)
        readings = [blocks]
        counted = self._counted(now_ns)
        if counted is not None:
            readings.append(counted)
        names = [OWN] if self._source is None else [OWN, self._source.name]  # it may have failed
        memory_ns = ipc.level_memory_ns(sums.totals)
        places = (None, *self._places) if len(self._places) > 1 else (None,)
        levels = [
            smooth.add(
                estimate_level(self._sampling.file, features(readings, place), names),
                now_ns,
                memory_ns,
            )
            for place, smooth in zip(places, self._smooth, strict=False)
        ]
        complexes = levels[1:] or levels
        self._board.tell_levels(
            _measured(levels[0], now_ns),
            [_measured(level, now_ns) for level in complexes],
            self.source,
        )
        return levels[0]

    def _run(self) -> None:
        ended, level = 0, 0.0
        while self._source is not None and not self._stopped.is_set():
            busy = self._segment.cores_in_use > 0
            before, ended = ended, self._board.await_blocks(ended, PERIOD_NS if busy else _IDLE_NS)
            if self._stopped.is_set() or (ended == before and not busy):
                continue
            level_before, level = level, self.sample().level
            self._stopped.wait(next_look_ns(level - level_before) / 1e9)

    def _counted(self, now_ns: int) -> Reading | None:
        """Returns the source's counts, or None where there are none of this moment."""
        if self._source is None:
            return None
        if self._workers() != self._pids:
            self._open()
            return None
        fresh = now_ns - self._read_ns <= _LONGEST_READING_NS
        self._read_ns = now_ns
        try:
            found = self._source.read()
        except SourceError as error:
            self._replace(error)
            return None
        return found if fresh else None

    def _replace(self, error: SourceError) -> None:
        failed = self.source
        self._failed.add(failed)
        self._open()
        _LOGGER.warning(
            "the source %s of the interference level has failed (%s); %s is read from here on",
            *(failed, error, self.source),
        )

    def _open(self) -> None:
        """Opens the source for the workers that there are, closing the last one.

        Without one the workers look by themselves from here on.
        """
        self._close()
        self._pids = self._workers()
        self._read_ns = self._clock()
        self._source = self._best_source()
        if self._source is None:
            models = own_models(self._sampling.file)
            self._board.measure_by_blocks(models, PERIOD_NS, self._clock())

    def _best_source(self) -> Source | None:
        file, wanted = self._sampling.file, self._sampling.source
        if file is None or wanted == OWN:
            return None
        cpus, computer = self._sampling.cpus, self._sampling.computer
        try:
            if wanted != AUTO and wanted not in self._failed:
                return open_source(wanted, cpus, self._pids, computer)
            better = takewhile(lambda name: name != OWN, file.ranked)
            names = [name for name in better if name not in self._failed]
            return open_best(cpus, self._pids, computer, names).source
        except SourceError as error:
            _LOGGER.debug("no source beside our own blocks: %s", error)
            return None

    def _close(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None

    def _workers(self) -> tuple[int, ...]:
        return tuple(worker.pid for worker in self._segment.workers() if worker.pid)


def place_names(cpus: Sequence[int], complexes: Sequence[int]) -> list[str]:
    """Returns what sources call each core complex: `cores 0-7`."""
    members: dict[int, list[int]] = {index: [] for index in range(max(complexes, default=0) + 1)}
    for cpu, index in zip(cpus, complexes, strict=True):
        members[index].append(cpu)
    return [f"cores {cpu_ranges(cpus)}" for cpus in members.values()]


def next_look_ns(change: float) -> int:
    """Returns when a thread looks again, after a look that changed the level by so much."""
    return PERIOD_NS if abs(change) > _STEP else _STEADY_PERIODS * PERIOD_NS


def own_models(file: ProxyFile | None) -> list[ipc.OwnModel]:
    """Returns the models of a file that see nothing but our own blocks, for native code."""
    return [
        ipc.OwnModel(
            model.native_line,
            [_OWN_FEATURES[term.feature] for term in model.terms],
            model.native_terms,
        )
        for model in (() if file is None else file.models)
        if all(term.feature in _OWN_FEATURES for term in model.terms)
    ]


def _blocks(ended: ipc.BlockTotals) -> own.Blocks:
    return own.Blocks(
        blocks=int(ended.blocks),
        took_ns=int(ended.took_ns),
        alone_ns=int(ended.alone_ns),
        excess=ended.excess,
        weight=ended.weight,
    )


def _measured(estimate: Estimate, now_ns: int) -> ipc.Measured:
    return ipc.Measured(
        slowdown=round(min(estimate.level, _HIGHEST) * ipc.MILLION),
        confidence=round(estimate.confidence * ipc.MILLION),
        time_ns=now_ns,
    )
