"""The measuring process dies, hangs and lies; a search loses no more than that candidate."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from veltair.compiler.search.measurer import Measurer, Result
from veltair.compiler.search.protocol import Candidate, Placed, Work
from veltair.runtime.errors import VeltairError

# Answers like the real child, and does what the symbol says instead of running a kernel.
CHILD = """
    import os, signal, sys, time
    import msgspec
    from veltair.compiler.search.protocol import Answer, Work

    def say(**fields):
        print(msgspec.json.encode(Answer(**fields)).decode(), flush=True)

    for line in sys.stdin.buffer:
        work = msgspec.json.decode(line, type=Work)
        for index, candidate in enumerate(work.candidates):
            say(index=index, begun=True)
            if candidate.symbol == "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            if candidate.symbol == "hang":
                time.sleep(1000)
            if candidate.symbol == "exit":
                sys.exit(3)
            if candidate.symbol == "fail":
                say(index=index, error="no such kernel")
                continue
            say(index=index, ns={1: [candidate.extent, 5]})
        say(index=-1)
"""


def work(*symbols: str) -> Work:
    place = Placed(shape=(1,), strides=(1,))
    candidates = [
        Candidate(symbol=symbol, extent=i + 1, arguments=(), weight=-1, computed=())
        for i, symbol in enumerate(symbols)
    ]
    return Work(
        library="",
        tensors=(),
        results=(place,),
        candidates=tuple(candidates),
        core_counts=(1,),
    )


@pytest.fixture
def command(tmp_path: Path) -> tuple[str, ...]:
    script = tmp_path / "child.py"
    script.write_text(textwrap.dedent(CHILD))
    return (sys.executable, str(script))


def good(number: int) -> Result:
    return Result(ns={1: (number + 1, 5)})


def test_each_candidate_is_measured(command: tuple[str, ...]) -> None:
    with Measurer(command=command) as measurer:
        for _ in range(2):  # one child serves several works
            assert dict(measurer.measure(work("a", "b"))) == {0: good(0), 1: good(1)}


@pytest.mark.parametrize(
    ("symbol", "error"),
    [
        ("crash", "crashed: SIGSEGV"),
        ("hang", "hung: no end after 2 s"),
        ("exit", "ended with exit code 3"),
        ("fail", "no such kernel"),
    ],
)
def test_a_bad_candidate_costs_only_itself(
    command: tuple[str, ...], symbol: str, error: str
) -> None:
    with Measurer(most_waits=2, command=command) as measurer:
        found = dict(measurer.measure(work("a", symbol, "c", symbol)))
        assert found[0] == good(0)
        assert found[2] == good(2)
        assert found[1].error == found[3].error == error
        assert dict(measurer.measure(work("again"))) == {0: good(0)}


def test_a_child_that_never_starts_is_an_error() -> None:
    with (
        Measurer(command=(sys.executable, "-c", "raise SystemExit(4)")) as measurer,
        pytest.raises(VeltairError, match="ended with exit code 4"),
    ):
        list(measurer.measure(work("a")))
