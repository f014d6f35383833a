"""ONNX Runtime and OpenVINO behind one queue, first come, first served.

Sessions run in processes of their own, which take their queries from one pipe (see
`engine_process`); who sends is this process. So what the queue costs a peer is one read and one
write of a few bytes a query, inputs lie prepared in its memory, and the time that sending takes is
not counted as its own.
"""

from __future__ import annotations

import importlib.util
import os
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING

import msgspec

from veltair.eval.allocator import in_huge_pages
from veltair.eval.capacity.peers.engine_process import Mode, ModelFile, Plan
from veltair.eval.capacity.peers.fcfs import FirstComeFirstServed
from veltair.eval.capacity.peers.grid import parse_split, places, splits
from veltair.eval.capacity.peers.log import LOG_FILE
from veltair.eval.children import child, python
from veltair.runtime.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from veltair.eval.capacity.system import Candidate

_QUEUES: dict[str, Mode] = {"latency-queues": "latency", "throughput-queues": "throughput"}


class InProcess:
    """An engine behind a queue; a `System`.

    Attributes:
        name: of the engine, and so of its package.
        kind: `peer`.
    """

    kind = "peer"

    def __init__(self, name: str) -> None:
        """Takes one of `engines.ENGINES`."""
        self.name = name

    def missing(self) -> str | None:
        """Why it can't run here: its package isn't installed."""
        if importlib.util.find_spec(self.name) is None:
            return f"{self.name}: the package is not installed; make peers"
        return None

    def version(self) -> str:
        """Of its package."""
        return version(self.name)

    def settings(self, cores: int) -> Sequence[str]:
        """Every even split of the cores, and what else the engine lets one choose."""
        even = splits(cores)
        if self.name == "openvino":
            return [*map(str, even), *_QUEUES]
        several = (replace(split, spinning=False) for split in even if split.threads > 1)
        return [*map(str, even), *map(str, several)]

    @contextmanager
    def running(
        self, setting: str, models: Sequence[Candidate], cpus: Sequence[int], scratch: Path
    ) -> Iterator[FirstComeFirstServed]:
        """Starts a process a session, each bound to its processors, until the block ends."""
        files = tuple(model_file(self.name, model) for model in models)
        log = scratch / LOG_FILE
        with ExitStack() as stack:
            output = stack.enter_context(log.open("a"))
            queries_out, queries_in = os.pipe()
            answers_out, answers_in = os.pipe()
            for ours in (queries_in, answers_out):
                stack.callback(os.close, ours)
            try:
                commands = (
                    python("veltair.eval.capacity.peers.engine_process", _json(plan))
                    for plan in plans(
                        self.name, setting, tuple(cpus), files, queries_out, answers_in
                    )
                )
                theirs = (queries_out, answers_in)
                variables = in_huge_pages(os.environ)
                processes = [
                    stack.enter_context(
                        child(command, output, output, pass_fds=theirs, variables=variables)
                    )
                    for command in commands
                ]
            finally:  # or the pipes would not end with their other ends
                os.close(queries_out)
                os.close(answers_in)
            peer = FirstComeFirstServed(
                f"{self.name} {setting}", processes, queries_in, answers_out, log
            )
            peer.wait_until_ready()
            yield peer


def model_file(system: str, model: Candidate) -> ModelFile:
    """Returns what a peer has to know of a model.

    Raises:
        InputError: its ONNX file isn't at hand.
    """
    if model.onnx is None:
        raise InputError(f"{model.name}: {system} needs its ONNX file, and none is at hand")
    return ModelFile(
        onnx=str(model.onnx.resolve()), shapes=dict(model.shapes), dtypes=dict(model.dtypes)
    )


def plans(
    engine: str,
    setting: str,
    cpus: tuple[int, ...],
    models: tuple[ModelFile, ...],
    queries: int,
    answers: int,
) -> list[Plan]:
    """Returns what each process of a setting does."""
    plan = Plan(
        engine=engine,
        mode=_QUEUES.get(setting, "one"),
        threads=len(cpus),
        spinning=True,
        cpus=cpus,
        models=models,
        queries=queries,
        answers=answers,
    )
    if setting in _QUEUES:
        return [plan]
    split = parse_split(setting)
    changed = msgspec.structs.replace(plan, threads=split.threads, spinning=split.spinning)
    return [msgspec.structs.replace(changed, cpus=place) for place in places(split, cpus)]


def _json(plan: Plan) -> str:
    return msgspec.json.encode(plan).decode()
