"""Records of decisions: the lines of the file that `veltair replay` reads, and how one begins.

A record is lines of JSON, each an object with a `kind`. The first is a `header`: the machine and
its models with their whole profiles, so that the file stands alone. A `policy` line (or `batcher`,
for batching and placement) says what decides from there on under which epoch; then a line a
decision. Several processes append to one file, so decisions need not be in the order of their
sequence numbers; each names the epoch of its policy, which its process has told before. Another
header begins another run: a server that is started again appends.

`native/sched/record.cc` writes the lines of decisions. A task is a row of eleven numbers: id,
model, queries, passes, next layer, executor, attempts, arrival_ns, deadline_ns, order, lead_ns. A
worker is a row of ten: index, task, layer begin, layer end, level, cores wanted, cores held,
started_ns, block_started_ns, block_expected_ns. Of the queue a decision has as many tasks as its
policy reads; of the workers, those that have a task.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import msgspec

from veltair.runtime._native import sched
from veltair.runtime.errors import InputError

SCHEMA = 2
_FIRST_BYTES = b'{"kind":"header"'

TaskRow = tuple[int, int, int, int, int, int, int, int, int, int, int]
WorkerRow = tuple[int, int, int, int, int, int, int, int, int, int]


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of what lines are made of."""


class _Line(_Record, frozen=True, kw_only=True, tag_field="kind"):
    """Base of the lines."""


class ModelRecord(_Record, frozen=True, kw_only=True):
    """A model's profile, as `ModelProfile` in native/sched/profile.h has it."""

    name: str
    qos_ns: int
    priority: int
    cores: list[int]
    levels: int
    model_ns: list[int]
    variants: list[int]
    layer_ns: list[int]
    layer_flops: list[int] = []
    parallel_extents: list[int] = []
    slowdowns: list[float] = []

    @classmethod
    def of(cls, name: str, profile: sched.ModelProfile) -> ModelRecord:
        """Returns the record of a model's profile."""
        return cls(
            name=name,
            qos_ns=profile.qos_ns,
            priority=profile.priority,
            cores=profile.cores,
            levels=profile.levels,
            model_ns=profile.model_ns,
            variants=profile.variants,
            layer_ns=profile.layer_ns,
            layer_flops=profile.layer_flops,
            parallel_extents=profile.parallel_extents,
            slowdowns=profile.slowdowns,
        )

    def to_profile(self) -> sched.ModelProfile:
        """Returns the profile; raises ValueError or TypeError where its tables can't be."""
        fields = msgspec.structs.asdict(self)
        del fields["name"]
        return sched.ModelProfile(**fields)


class Header(_Line, frozen=True, kw_only=True, tag="header"):
    """The machine that a run was on.

    Attributes:
        schema: of this file's lines.
        veltair: the version that wrote it.
        clock: what the times are of.
        cores: of the machine; 0 where there are emulated devices alone.
        workers: of the machine.
        models: what scheduling policies decide about.
    """

    schema: int
    veltair: str
    clock: Literal["monotonic", "simulated"]
    cores: int
    workers: int
    models: list[ModelRecord]


class PolicyLine(_Line, frozen=True, kw_only=True, tag="policy"):
    """A scheduling policy.

    Attributes:
        epoch: by which decisions name it.
        name: as `make_policy` takes it.
        options: its parameters, likewise.
    """

    epoch: int
    name: str
    options: dict[str, int | bool]


class CostRecord(_Record, frozen=True, kw_only=True):
    """What a batch costs, as `BatchCost` in native/sched/batching.h has it."""

    alpha_ns: int
    beta_ns: int
    max_batch: int
    timeout_ns: int
    least_percent: int


class BatcherLine(_Line, frozen=True, kw_only=True, tag="batcher"):
    """A fresh batcher: its policies and what it was made with."""

    epoch: int
    batching: str
    placement: str
    queue_limit: int
    costs: list[CostRecord]
    executors: list[Literal["local_cores", "device"]]


class DecisionRecord(_Record, frozen=True, kw_only=True):
    """A scheduling decision, as `Decision` in native/sched/policy.h has it."""

    task: int
    layer_begin: int
    layer_end: int
    level: int
    cores: int
    action: str
    reason: str
    expected_ns: int
    revoke_worker: int
    revoke_keep: int


class DecisionLine(_Line, frozen=True, kw_only=True, tag="decision"):
    """A scheduling decision, with all that it was made on.

    Attributes:
        slowdown: millionths, if it was measured.
        pace: how long blocks took for what was predicted, in millionths.
    """

    sequence: int
    epoch: int
    now_ns: int
    event: Literal["worker_idle", "block_end"]
    worker: int
    free_cores: int
    level: int
    slowdown: int = sched.NONE
    pace: int = 1_000_000
    queue_length: int
    queue: list[TaskRow]
    tasks: list[TaskRow]
    workers: list[WorkerRow]
    decision: DecisionRecord


class SkippedLine(_Line, frozen=True, kw_only=True, tag="skipped"):
    """A decision whose queue was too long to be recorded."""

    sequence: int
    epoch: int
    now_ns: int
    queue_length: int


class DispatchRecord(_Record, frozen=True, kw_only=True):
    """A batch that begins, as `Dispatch` in native/sched/batcher.h, with its queries."""

    model: int
    executor: int
    queries: list[int]
    expected_ns: int
    deadline_ns: int
    moment: str
    match: str


class DropRecord(_Record, frozen=True, kw_only=True):
    """A query that is given up, as `Drop` in native/sched/batcher.h."""

    query: int
    model: int
    reason: str


class BatchLine(_Line, frozen=True, kw_only=True, tag="batch"):
    """An event of a batcher, and what it decided: `model` to `deadline_ns` are an arrival's."""

    sequence: int
    epoch: int
    now_ns: int
    event: Literal["arrival", "executor_free", "timer"]
    model: int = sched.NONE
    query: int = 0
    arrival_ns: int = 0
    deadline_ns: int = 0
    executor: int = sched.NONE
    dispatches: list[DispatchRecord]
    drops: list[DropRecord]


Line = Header | PolicyLine | BatcherLine | DecisionLine | SkippedLine | BatchLine


def make_header(
    clock: Literal["monotonic", "simulated"],
    *,
    cores: int = 0,
    workers: int = 0,
    models: Sequence[tuple[str, sched.ModelProfile]] = (),
) -> Header:
    """Makes the header of a run of this version; `models` with their names."""
    return Header(
        schema=SCHEMA,
        veltair=version("veltair"),
        clock=clock,
        cores=cores,
        workers=workers,
        models=[ModelRecord.of(name, profile) for name, profile in models],
    )


def make_batcher_line(
    batching: str,
    placement: str,
    *,
    queue_limit: int,
    costs: Sequence[sched.BatchCost],
    executors: Sequence[Literal["local_cores", "device"]],
    epoch: int = 0,
) -> BatcherLine:
    """Makes the line of a batcher from what it is made with."""
    return BatcherLine(
        epoch=epoch,
        batching=batching,
        placement=placement,
        queue_limit=queue_limit,
        costs=[
            CostRecord(
                alpha_ns=cost.alpha_ns,
                beta_ns=cost.beta_ns,
                max_batch=cost.max_batch,
                timeout_ns=cost.timeout_ns,
                least_percent=cost.least_percent,
            )
            for cost in costs
        ],
        executors=list(executors),
    )


def begin_record(path: Path, lines: Sequence[Line], *, field: str, append: bool = False) -> int:
    """Opens a record and writes its first lines.

    Args:
        path: the file; made if it isn't there.
        lines: the header and the first policies.
        field: of the configuration or command line, named at the front of an error message.
        append: add a run to a record that is there, instead of replacing the file.

    Returns:
        A descriptor whose writes append, the caller's to close.

    Raises:
        InputError: the file can't be written, or `append` meets a file that is no record.
    """
    try:
        if append:
            _check_is_record(path, field)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | (0 if append else os.O_TRUNC)
        descriptor = os.open(path, flags, 0o644)
        try:
            write_lines(descriptor, lines)
        except OSError:
            os.close(descriptor)
            raise
    except OSError as error:
        raise _unwritable(path, field, error) from error
    return descriptor


@contextlib.contextmanager
def recording(path: Path, lines: Sequence[Line], *, field: str) -> Iterator[int]:
    """A record that is replaced, open as long as the block runs; arguments as `begin_record`.

    Raises:
        InputError: it can't be written; the block's own OSError says so too.
    """
    descriptor = begin_record(path, lines, field=field)
    try:
        yield descriptor
    except OSError as error:
        raise _unwritable(path, field, error) from error
    finally:
        os.close(descriptor)


def write_lines(descriptor: int, lines: Sequence[Line]) -> None:
    """Appends whole lines in one write.

    Raises:
        OSError: they can't be written, or not all.
    """
    data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    if os.write(descriptor, data) < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _unwritable(path: Path, field: str, error: OSError) -> InputError:
    return InputError(
        f"{field} {path}: can't be written ({error.strerror}); name a file in a folder that exists "
        "and has room"
    )


def _check_is_record(path: Path, field: str) -> None:
    if not path.is_file():
        return
    with path.open("rb") as file:
        begin = file.read(len(_FIRST_BYTES))
    if begin and begin != _FIRST_BYTES:
        raise InputError(
            f"{field} {path}: the file is there and is no record of decisions; name another, or "
            "remove it"
        )
