"""The server's scheduling with kernels that only take their time, inside this process.

The run queue, the core table, the policies and the workers are the server's own; instead of running
a block a worker sleeps for as long as the profile says. What then still differs from a simulation
is what waking up costs, not the time that kernels take.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from veltair.runtime._native import ipc, sched
from veltair.runtime.client import LocalClient
from veltair.runtime.status import Signature

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SLOTS = 256


@contextmanager
def sleeping(
    profiles: Mapping[str, sched.ModelProfile], *, policy: str, cores: int, workers: int
) -> Iterator[LocalClient]:
    """Serves until the block ends; yields a client.

    Args:
        profiles: by model; with their targets.
        policy: of scheduling.
        cores: of the machine that is pretended.
        workers: tasks amid their layers at once.
    """
    segment = ipc.Segment.create(
        cpus=range(cores),
        workers=workers,
        policies=ipc.Policies(scheduling=policy),
        models=[_spec(name, profile, cores) for name, profile in profiles.items()],
    )
    board = ipc.Board(segment)
    ordered = list(profiles.values())
    sleepers = [
        ipc.Worker.asleep(segment=segment, index=index, models=ordered) for index in range(workers)
    ]
    threads = [threading.Thread(target=sleeper.run, name="sleeper") for sleeper in sleepers]
    for thread in threads:
        thread.start()
    try:
        for index in range(len(profiles)):
            board.set_model_state(index, ipc.ModelState.READY, "")
        board.set_state(ipc.ServerState.SERVING)
        with LocalClient(segment) as client:
            yield client
    finally:
        for sleeper in sleepers:
            sleeper.leave()
        for thread in threads:
            thread.join()
    broken = board.check()
    assert not broken, broken


def _spec(name: str, profile: sched.ModelProfile, cores: int) -> ipc.ModelSpec:
    needed = sched.needed_cores(profile, cores)
    return ipc.ModelSpec(
        name=name,
        version=1,
        input_bytes=[1],
        output_bytes=[1],
        slots=_SLOTS,
        qos_ns=profile.qos_ns,
        needed_cores=needed.cores,
        expected_ns=needed.expected_ns,
        metadata=msgspec.msgpack.encode(Signature(inputs=(), outputs=())),
    )
