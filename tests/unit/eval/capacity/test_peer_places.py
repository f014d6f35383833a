from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from veltair.eval.capacity.peers import alone

PLACES = [[0], [1]]
WORKER = """
import os, sys, types
os.sched_setaffinity = lambda _, cpus: bound.append(list(cpus))
sys.modules["engines"] = types.SimpleNamespace(Session=object, draw_inputs=None, load=None)
bound = []
import json, pathlib, served
for _ in range(2):  # a worker may be asked for each of its models
    served.bind(pathlib.Path(sys.argv[1]), json.loads(sys.argv[2]))
print(json.dumps(bound), flush=True)
sys.stdin.read()
"""


@contextmanager
def worker(folder: Path) -> Iterator[list[list[int]]]:
    """A process of a server; yields the processors that it was bound to, each time."""
    arguments = [sys.executable, "-c", WORKER, str(folder), json.dumps(PLACES)]
    with subprocess.Popen(
        arguments,
        cwd=Path(next(iter(alone.__path__))),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())


def test_each_process_gets_a_place_of_its_own_once(tmp_path: Path) -> None:
    with worker(tmp_path) as first, worker(tmp_path) as second:
        assert [first, second] == [[[0]], [[1]]]


def test_a_process_more_than_there_are_places_stays_unbound(tmp_path: Path) -> None:
    with ExitStack() as stack:
        bound = [stack.enter_context(worker(tmp_path)) for _ in range(3)]
    assert bound == [[[0]], [[1]], []]


def test_a_process_that_is_started_in_the_stead_of_another_gets_its_place(tmp_path: Path) -> None:
    with worker(tmp_path) as first, ExitStack() as others:
        second = others.enter_context(worker(tmp_path))
        others.close()
        with worker(tmp_path) as third:
            assert [first, second, third] == [[[0]], [[1]], [[1]]]
