"""A process that runs queries with an engine, in the order in which they come through a pipe.

A query is a record in a pipe that all processes of a system read: the kernel hands each record to
one reader, and the oldest first, so the pipe is the dispatcher: first come, first served, to
whichever session is free. No engine shares an interpreter with another or with who sends. Each
answer is a line in another pipe: query, begin, end (of `time.monotonic_ns`; begin -1 where the
engine doesn't tell) and, if it failed, why. The process ends when the pipe of queries does.
"""

from __future__ import annotations

import os
import struct
import sys
import time
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from veltair.eval.capacity.peers.alone.engines import (
    compile_openvino,
    draw_inputs,
    load,
    set_inputs,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

Mode: TypeAlias = Literal["one", "latency", "throughput"]

RECORD = struct.Struct("<qq")  # number of the query, index of the model
READY = "ready"
_WARM_RUNS = 3
_LONGEST_ERROR = 1000  # a line stays below PIPE_BUF and so whole


class ModelFile(msgspec.Struct, frozen=True, kw_only=True):
    """A model to load.

    Attributes:
        onnx: its file.
        shapes: of its inputs, by name.
        dtypes: the same.
    """

    onnx: str
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, str]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a process does.

    Attributes:
        engine: of `engines.ENGINES`.
        mode: one query at a time, or OpenVINO's own queues with a hint of how to divide the cores.
        threads: of a query, in the first mode.
        spinning: of ONNX Runtime's threads.
        cpus: that the process is bound to.
        models: by index.
        queries: descriptor of the pipe of queries.
        answers: of the pipe of answers.
    """

    engine: str
    mode: Mode
    threads: int
    spinning: bool
    cpus: tuple[int, ...]
    models: tuple[ModelFile, ...]
    queries: int
    answers: int


def main() -> None:
    """Loads what the first argument says, tells that it is ready, and serves."""
    plan = msgspec.json.decode(sys.argv[1], type=Plan)
    os.sched_setaffinity(0, plan.cpus)
    if plan.mode == "one":
        _serve_one_by_one(plan)
    else:
        _serve_with_queues(plan)


def _serve_one_by_one(plan: Plan) -> None:
    runs = []
    for model in plan.models:
        session = load(plan.engine, model.onnx, model.shapes, plan.threads, plan.spinning)
        runs.append(session.prepared(draw_inputs(model.shapes, model.dtypes)))
    for run in runs * _WARM_RUNS:
        run()
    _tell(plan.answers, READY)
    while record := os.read(plan.queries, RECORD.size):
        query, model_index = RECORD.unpack(record)
        error = ""
        start_ns = time.monotonic_ns()
        try:
            runs[model_index]()
        except Exception as failure:  # each engine has exception classes of its own
            error = _one_line(failure)
        _tell(plan.answers, f"{query} {start_ns} {time.monotonic_ns()} {error}")


def _serve_with_queues(plan: Plan) -> None:
    queues = [_queue(plan, model) for model in plan.models]
    for queue in queues:
        for _ in range(_WARM_RUNS * len(queue)):
            queue.start_async(userdata=None)
        queue.wait_all()
    _tell(plan.answers, READY)
    while record := os.read(plan.queries, RECORD.size):
        query, model_index = RECORD.unpack(record)
        queues[model_index].start_async(userdata=query)  # waits for a free request


def _queue(plan: Plan, model: ModelFile) -> Any:  # noqa: ANN401 # openvino has no types
    """OpenVINO's queue of a model: as many requests at once as it finds best for the hint."""
    import openvino  # noqa: PLC0415 # optional, and slow to import

    compiled = compile_openvino(model.onnx, model.shapes, {"PERFORMANCE_HINT": plan.mode.upper()})
    queue = openvino.AsyncInferQueue(compiled)
    for request in queue:
        set_inputs(request, draw_inputs(model.shapes, model.dtypes))
    queue.set_callback(_answering(plan.answers))
    return queue


def _answering(answers: int) -> Callable[[object, int | None], None]:
    def answer(_request: object, query: int | None) -> None:
        if query is not None:  # otherwise it was one to warm up with
            _tell(answers, f"{query} -1 {time.monotonic_ns()} ")

    return answer


def _tell(answers: int, line: str) -> None:
    os.write(answers, f"{line}\n".encode())


def _one_line(failure: Exception) -> str:
    return " ".join(f"{type(failure).__name__}: {failure}".split())[:_LONGEST_ERROR]


if __name__ == "__main__":
    main()
