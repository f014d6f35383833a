"""Builds candidates in processes of their own, several at once.

A candidate that ends or hangs its process costs only itself: the others are built again.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from veltair.compiler import codegen
from veltair.compiler.kernels.choices import Choice
from veltair.compiler.kernels.spec import Kernel
from veltair.compiler.search.dependents import depend_on
from veltair.compiler.search.example import Packing
from veltair.compiler.search.key import Spec
from veltair.compiler.search.spaces import build

# A build takes a fraction of a second. Counted in waits of one second, not by the clock: a machine
# that sleeps, or a stopped process, must not make every build look hung.
_MOST_WAITS = 60


@dataclass(frozen=True, kw_only=True)
class Job:
    """One candidate to build.

    Attributes:
        spec: the layer.
        isa: instruction set.
        choice: the candidate.
        packings: of the layer's operands, see `veltair.compiler.search.example.Operand`.
        example: folder with the layer's operands, `operand<i>.npy`.
        target: folder for the packed operands and the object; it exists.
    """

    spec: Spec
    isa: str
    choice: Choice
    packings: tuple[Packing, ...]
    example: Path
    target: Path


@dataclass(frozen=True, kw_only=True)
class Built:
    """A built candidate: what its record says, and its files in the job's target."""

    choice: Choice
    id: str
    symbol: str
    extent: int
    parallelism: int
    block_bytes: int
    object: Path


@dataclass(frozen=True, kw_only=True)
class Unbuilt:
    """A candidate that could not be built."""

    choice: Choice
    reason: str


class Builder:
    """A pool of processes that build; a context manager that ends them.

    Args:
        jobs: processes.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Builder:
        """Starts nothing yet: the first build does."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the processes."""
        self.stop()

    def build(self, jobs: Sequence[Job]) -> Iterator[Built | Unbuilt]:
        """Builds candidates and gives each as it is done, in any order."""
        left = yield from self._together(jobs)
        for job in left:  # one of these ended the processes: alone, it ends only its own
            alone = yield from self._together([job])
            for each in alone:
                yield Unbuilt(choice=each.choice, reason="building it ended or hung the compiler")

    def _together(self, jobs: Sequence[Job]) -> Generator[Built | Unbuilt, None, list[Job]]:
        """Builds with all processes; returns the jobs that were lost with them."""
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self._jobs,
                mp_context=get_context("spawn"),
                initializer=depend_on,
                initargs=(os.getpid(),),
            )
        pending: dict[Future[Built | Unbuilt], Job] = {
            self._pool.submit(run_job, job): job for job in jobs
        }
        waits = 0
        while pending:
            done, _ = wait(pending, timeout=1, return_when=FIRST_COMPLETED)
            waits = 0 if done else waits + 1
            for future in done:
                try:
                    result = future.result()
                except BrokenProcessPool:
                    self.stop()
                    return list(pending.values())
                del pending[future]
                yield result
            if waits > _MOST_WAITS:
                self.stop()
                return list(pending.values())
        return []

    def stop(self) -> None:
        """Ends the processes; a later build starts them again."""
        if self._pool is None:
            return
        # A process that hangs would never be joined.
        for process in list((self._pool._processes or {}).values()):
            process.kill()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._pool = None


def run_job(job: Job) -> Built | Unbuilt:
    """Builds one candidate: its object and its packed operands."""
    try:
        kernel = build(job.spec, job.isa, job.choice)
        symbol, _ = codegen.serialized(kernel)
        path = job.target / f"{symbol}.o"
        codegen.lower(symbol, kernel.func, job.isa).write_to_file(str(path), "o")
        _pack(kernel, job)
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        reason = lines[-1].strip() if lines else type(error).__name__
        return Unbuilt(choice=job.choice, reason=reason)
    return Built(
        choice=job.choice,
        id=kernel.variant_id,
        symbol=symbol,
        extent=kernel.parallel_extent,
        parallelism=kernel.parallel_extent * kernel.unroll,
        block_bytes=kernel.tile_bytes,
        object=path,
    )


def _pack(kernel: Kernel, job: Job) -> None:
    packers = {"weight": kernel.pack_weight, "channel": kernel.pack_channel}
    for i, packing in enumerate(job.packings):
        if packing == "none":
            continue
        name, packer = f"operand{i}.npy", packers[packing]
        values = np.load(job.example / name)
        np.save(job.target / name, values if packer is None else packer(values))
