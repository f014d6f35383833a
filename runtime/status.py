"""What a server tells its clients of itself: models, counters, state."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from veltair.runtime.manifest import TensorSpec


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """A model's tensors as the segment carries them, encoded by `msgspec.msgpack`."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """One served model as a client sees it.

    Attributes:
        name: as in the repository.
        version: of the artifact.
        state: `loading`, `ready` or `unavailable`.
        reason: why it is unavailable; empty otherwise.
        inputs: in the artifact's order; dense, row-major.
        outputs: likewise.
        qos_ns: the latency target, counted from a query's arrival; 0 if it has none.
        needed_cores: cores that a task takes so that its profile meets the target.
        expected_ns: the profile's time of one task on these cores, alone.
        slots: queries that it holds at most, from `allocate` to `release`.
    """

    name: str
    version: int
    state: str
    reason: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    qos_ns: int
    needed_cores: int
    expected_ns: int
    slots: int


@dataclass(frozen=True, kw_only=True)
class Histogram:
    """Latencies from arrival to completion.

    Attributes:
        bounds_ns: upper bound of each bucket, inclusive, ascending; the last is the largest int64.
        counts: completions in each bucket (not cumulative).
    """

    bounds_ns: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class ModelStats:
    """Counters of one model since the server's start.

    Attributes:
        name: of the model.
        version: of the artifact.
        accepted: queries that were submitted and not refused.
        succeeded: queries that ended with outputs.
        failed: queries that did not, by reason: `queue_full`, `deadline`, `draining`,
            `unavailable` (refused), `error`, `cancelled` (after they were accepted).
        within_qos: succeeded queries that ended within their deadline, or that had none.
        executions: tasks that ran to their end (a batch counts once).
        queue_ns: sum over completed queries of submission to start.
        compute_ns: sum over completed queries of start to end.
        request_ns: sum over completed queries of arrival to end.
        pending: queries accepted and not completed, now.
        lateness: by how much of its target its queries go ahead under a deadline policy, since more
            of them were late than may be: 0 to 1.
        latency: arrival to end of the succeeded queries.
    """

    name: str
    version: int
    accepted: int
    succeeded: int
    failed: dict[str, int]
    within_qos: int
    executions: int
    queue_ns: int
    compute_ns: int
    request_ns: int
    pending: int
    lateness: float
    latency: Histogram


@dataclass(frozen=True, kw_only=True)
class LevelStats:
    """The interference level of the node or of a core complex.

    Attributes:
        where: `node`, or the number of the core complex.
        level: slow-down of the reference kernel; None where it isn't known.
        confidence: from 0, nothing is known, to 1.
    """

    where: str
    level: float | None
    confidence: float


@dataclass(frozen=True, kw_only=True)
class ServerStats:
    """The server's state and its models' counters.

    Attributes:
        state: `starting`, `serving`, `draining` or `stopped`.
        cores: cores that it serves on.
        cores_in_use: of these, held by a running task.
        workers: worker ranks that it was started with.
        workers_alive: of these, alive now.
        scheduling: the policy in force; likewise the next two.
        batching: see `scheduling`.
        placement: see `scheduling`.
        policy_changes: how often policies or their parameters have changed since the start.
        returns: how often a late query has gone back into the queue since the start.
        revocations: cores that a policy has taken from running blocks since the start.
        pace: how long the last blocks took for what their profiles predict: 1 is as predicted.
        level_source: what the interference level is measured by; empty: it isn't.
        levels: of the node, then of each core complex; none where it isn't measured.
        decisions: of the scheduling policy since the start.
        decisions_unmeasured: of these, those for which a level that is measured wasn't known.
        models: one entry a model, in the order of `LocalClient.models`.
    """

    state: str
    cores: int
    cores_in_use: int
    workers: int
    workers_alive: int
    scheduling: str
    batching: str
    placement: str
    policy_changes: int
    returns: int
    revocations: int
    pace: float
    level_source: str
    levels: tuple[LevelStats, ...]
    decisions: int
    decisions_unmeasured: int
    models: tuple[ModelStats, ...]
