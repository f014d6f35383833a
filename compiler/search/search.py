"""The search of one layer: propose, build, measure, check, log; round by round.

Reference: VELTAIR, section 4.1: one pass that keeps every sample, not only the best.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from veltair.compiler import codegen
from veltair.compiler.kernels.choices import Choice
from veltair.compiler.kernels.spec import View
from veltair.compiler.reference import TOLERANCE, relative_difference
from veltair.compiler.search.builder import Builder, Built, Job, Unbuilt
from veltair.compiler.search.candidates import Candidate as SpaceCandidate
from veltair.compiler.search.candidates import Space
from veltair.compiler.search.example import make_example
from veltair.compiler.search.key import SPACE, Spec
from veltair.compiler.search.log import VERSION, LogWriter, Record, this_machine
from veltair.compiler.search.measurer import Measurer, Result
from veltair.compiler.search.proposal import draw_order, missing_trials, propose
from veltair.compiler.search.protocol import Candidate, Placed, Work
from veltair.runtime.scratch import scratch

_BATCH = 8  # candidates that are built, then measured: what a kill can lose
# The fastest are measured again, in turn, so that noise does not choose among them.
_FINALISTS = 4
_FINAL_PASSES = 3


@dataclass(frozen=True, kw_only=True)
class Task:
    """A layer to search.

    Attributes:
        key: its structural key.
        spec: a representative: layers of one key differ in where their tensors lie.
        isa: instruction set.
        space: its candidates.
        offsets: of what is read through a view, in the kernel's order, and of the outputs behind
            them: bytes past a multiple of 64.
    """

    key: str
    spec: Spec
    isa: str
    space: Space
    offsets: tuple[int, ...]


class Progress(Protocol):
    """Hears of each trial."""

    def trial(self, record: Record) -> None:
        """A candidate is measured, or has failed."""


class Search:
    """Searches layers one after another; a context manager that ends its processes.

    Args:
        log: gets a record for each trial.
        core_counts: to measure on, ascending.
        jobs: candidates built at once.
        objects: folder that keeps the objects, by symbol, for a library to be linked of them.
        measurer: measures; the search owns it from here.
    """

    def __init__(
        self,
        log: LogWriter,
        core_counts: Sequence[int],
        jobs: int,
        objects: Path,
        measurer: Measurer | None = None,
    ) -> None:
        self._log = log
        self._counts = tuple(core_counts)
        self._builder = Builder(jobs)
        self._measurer = measurer or Measurer()
        self._machine = this_machine()
        self._objects = objects

    def __enter__(self) -> Search:
        """Starts nothing yet: the first layer does."""
        return self

    def __exit__(self, *failure: object) -> None:
        """Ends all processes."""
        self._stop()

    def _stop(self) -> None:
        self._builder.stop()
        self._measurer.stop()

    def run(
        self,
        task: Task,
        known: Sequence[Record],
        trials: int,
        progress: Progress,
        hints: Sequence[Choice] = (),
    ) -> list[Record]:
        """Tries candidates until the layer has `trials`, or there are no more.

        Args:
            task: the layer.
            known: its records so far; they count.
            trials: how many records it shall have.
            progress: hears of each.
            hints: what to try before the space, the most promising first.

        Returns:
            All its records, one a choice.
        """
        records = {record.choice: record for record in known}
        order = draw_order(task.space, task.key, hints)
        if not missing_trials(order, records, trials):
            return list(records.values())
        with scratch("search") as folder:
            try:
                self._search(_Bench(task, folder), order, records, trials, progress)
            except BaseException:
                self._stop()  # their processes still write into the folder
                raise
        return list(records.values())

    def _search(
        self,
        bench: _Bench,
        order: Sequence[SpaceCandidate],
        records: dict[Choice, Record],
        trials: int,
        progress: Progress,
    ) -> None:
        while len(records) < trials:
            times = {c: r.mean_ns for c, r in records.items() if r.ns}
            batch = min(_BATCH, trials - len(records))
            choices = propose(order, times, records.keys(), batch)
            if not choices:
                break
            for record in self._try(bench, choices, len(records)):
                self._keep(record, records)
                progress.trial(record)
        for record in self._final(bench, list(records.values())):
            self._keep(record, records)

    def _keep(self, record: Record, records: dict[Choice, Record]) -> None:
        records[record.choice] = record
        self._log.append(record)

    def _try(self, bench: _Bench, choices: Sequence[Choice], first: int) -> Iterator[Record]:
        """Builds and measures candidates; gives each one's record as soon as there is one."""
        trials = {choice: first + i for i, choice in enumerate(choices)}
        built = []
        for result in self._builder.build([bench.job(choice) for choice in choices]):
            if isinstance(result, Unbuilt):
                reason = f"build: {result.reason}"
                yield self._record(bench, result.choice, trials[result.choice], reason=reason)
            else:
                bench.built[result.choice] = result
                built.append(result)
        built.sort(key=lambda b: trials[b.choice])
        for number, measured in self._measure(bench, built):
            choice = built[number].choice
            reason = measured.error or bench.wrong(choice)
            if not reason:
                shutil.copy(built[number].object, self._objects)
            yield self._record(bench, choice, trials[choice], measured.ns, reason)

    def _measure(self, bench: _Bench, built: Sequence[Built]) -> Iterator[tuple[int, Result]]:
        if built:
            yield from self._measurer.measure(bench.work(built, self._counts))

    def _final(self, bench: _Bench, records: Sequence[Record]) -> Iterator[Record]:
        """Measures the fastest again, in turn."""
        usable = (r for r in records if r.status == "ok")
        best = sorted(usable, key=lambda r: r.mean_ns)[:_FINALISTS]
        missing = [bench.job(r.choice) for r in best if r.choice not in bench.built]
        for result in self._builder.build(missing):
            if isinstance(result, Built):
                bench.built[result.choice] = result
        finalists = [r for r in best if r.choice in bench.built]
        times: dict[Choice, dict[int, tuple[int, ...]]] = {r.choice: {} for r in finalists}
        for _ in range(_FINAL_PASSES):
            built = [bench.built[r.choice] for r in finalists]
            for number, measured in self._measure(bench, built):
                of = times[finalists[number].choice]
                for count, ns in measured.ns.items():
                    of[count] = (*of.get(count, ()), *ns)
        for record in finalists:
            if times[record.choice]:
                yield self._record(bench, record.choice, record.trial, times[record.choice])

    def _record(
        self,
        bench: _Bench,
        choice: Choice,
        trial: int,
        times: Mapping[int, Sequence[int]] | None = None,
        reason: str = "",
    ) -> Record:
        built = bench.built.get(choice)
        return Record(
            v=VERSION,
            space=SPACE,
            isa=bench.task.isa,
            key=bench.task.key,
            machine=self._machine,
            trial=trial,
            choice=choice,
            status="failed" if reason else "ok",
            id=built.id if built else "",
            parallelism=built.parallelism if built else 0,
            block_bytes=built.block_bytes if built else 0,
            ns={} if reason else {c: _alone_ns(ns) for c, ns in (times or {}).items()},
            reason=reason,
        )


def _alone_ns(call_ns: Sequence[int]) -> int:
    """The lower quartile of some calls: what else runs on the machine only ever adds to a time."""
    return int(np.quantile(call_ns, 0.25))


class _Bench:
    """A folder with a layer's example, its candidates' files, and how they are called."""

    def __init__(self, task: Task, folder: Path) -> None:
        self.task = task
        self.built: dict[Choice, Built] = {}
        self._folder = folder
        self._jobs: dict[Choice, Path] = {}
        self._libraries = 0
        self._example = make_example(task.spec, task.key)
        self._save()

    def job(self, choice: Choice) -> Job:
        """The job that builds a candidate."""
        target = self._folder / f"candidate{len(self._jobs)}"
        target.mkdir()
        self._jobs[choice] = target
        return Job(
            spec=self.task.spec,
            isa=self.task.isa,
            choice=choice,
            packings=tuple(operand.packing for operand in self._example.operands),
            example=self._folder,
            target=target,
        )

    def work(self, built: Sequence[Built], counts: tuple[int, ...]) -> Work:
        """Links candidates and says how to call them."""
        library = self._folder / f"{self._libraries}.so"
        self._libraries += 1
        # Two choices can come out as one kernel.
        codegen.link(list({b.symbol: b.object for b in built}.values()), library)
        read = len(self._placed())
        inputs, outputs = self.task.offsets[:read], self.task.offsets[read:]
        return Work(
            library=str(library),
            tensors=tuple(
                _placed(view, offset, self._folder / f"operand{i}.npy")
                for (i, view), offset in zip(self._placed(), inputs, strict=True)
            ),
            results=tuple(
                _placed(output.view, offset)
                for output, offset in zip(self._example.outputs, outputs, strict=True)
            ),
            candidates=tuple(self._candidate(b) for b in built),
            core_counts=counts,
        )

    def wrong(self, choice: Choice) -> str:
        """What is wrong with a candidate's outputs; empty where they are right."""
        for output, path in zip(self._example.outputs, self._computed(choice), strict=True):
            got, expected = np.load(path), output.expected
            real = output.is_compared
            difference = relative_difference(got[real], expected[real])
            if not difference <= TOLERANCE:
                return f"wrong result: differs by {difference:.1e} of the output's range"
        return ""

    def _computed(self, choice: Choice) -> list[Path]:
        """Where the measuring process leaves a candidate's outputs."""
        target = self._jobs[choice]
        return [target / f"computed{i}.npy" for i in range(len(self._example.outputs))]

    def _candidate(self, built: Built) -> Candidate:
        target = self._jobs[built.choice]
        packings = [operand.packing for operand in self._example.operands]
        tensors = {number: tensor for tensor, (number, _) in enumerate(self._placed())}
        return Candidate(
            symbol=built.symbol,
            extent=built.extent,
            arguments=tuple(
                tensors.get(i, str(target / f"operand{i}.npy")) for i in range(len(packings))
            ),
            weight=packings.index("weight") if "weight" in packings else -1,
            computed=tuple(map(str, self._computed(built.choice))),
        )

    def _save(self) -> None:
        for i, operand in enumerate(self._example.operands):
            np.save(self._folder / f"operand{i}.npy", operand.values)

    def _placed(self) -> list[tuple[int, View]]:
        """Number and view of each operand that is read through one."""
        operands = enumerate(self._example.operands)
        return [(i, operand.view) for i, operand in operands if operand.view is not None]


def _placed(view: View, offset_bytes: int, path: Path | None = None) -> Placed:
    return Placed(
        path=str(path or ""),
        offset_bytes=offset_bytes,
        shape=view.shape,
        strides=view.strides,
        dtype=view.dtype,
    )
