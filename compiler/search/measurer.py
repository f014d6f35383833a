"""Measures candidates alone, in a child process, so that a bad one costs only itself."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import IO

import msgspec

from veltair.compiler.children import end
from veltair.compiler.search.protocol import Answer, Work
from veltair.runtime.errors import VeltairError

# Waits of one second without an answer before a candidate counts as hung. Waits and not the clock:
# while this process is stopped none passes, however long that takes.
MOST_WAITS = 20
_WAIT_S = 1.0
_MOST_STARTS_IN_VAIN = 3


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one candidate: its calls' times at each core count, or why there are none."""

    ns: dict[int, tuple[int, ...]]
    error: str = ""


class Measurer:
    """Keeps a child that measures; a context manager that ends it.

    Args:
        most_waits: seconds without an answer before a candidate counts as hung.
        command: of the child, if not the real one.
    """

    def __init__(self, most_waits: int = MOST_WAITS, command: Sequence[str] = ()) -> None:
        self._most_waits = most_waits
        self._command = tuple(command) or (
            sys.executable,
            "-m",
            "veltair.compiler.search.child",
        )
        self._child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Measurer:
        """Starts nothing yet: the first work does."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the child."""
        self.stop()

    def measure(self, work: Work) -> Iterator[tuple[int, Result]]:
        """Measures all candidates of a work, each in spite of the others.

        Yields:
            A candidate's number and result, as soon as there is one.

        Raises:
            VeltairError: the child ends before it begins on any candidate.
        """
        left = list(range(len(work.candidates)))
        in_vain = 0
        while left:
            begun: int | None = None
            ending = ""
            part = msgspec.structs.replace(work, candidates=tuple(work.candidates[i] for i in left))
            waiting = set(left)
            for answer in self._answers(part):
                if isinstance(answer, str):
                    ending = answer
                elif answer.begun:
                    begun = left[answer.index]
                else:
                    waiting.discard(left[answer.index])
                    yield left[answer.index], Result(ns=answer.ns, error=answer.error)
            if begun in waiting:
                waiting.discard(begun)
                yield begun, Result(ns={}, error=ending)
            in_vain = in_vain + 1 if len(waiting) == len(left) else 0
            if in_vain == _MOST_STARTS_IN_VAIN:
                raise VeltairError(f"the process that measures {ending}; see its message above")
            left = sorted(waiting)

    def _answers(self, work: Work) -> Iterator[Answer | str]:
        """The child's answers to a work; where it doesn't finish, how it ended comes last."""
        child = self._started()
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(msgspec.json.encode(work) + b"\n")
            child.stdin.flush()
        except BrokenPipeError:
            yield self._ending()
            return
        for line in _lines(child.stdout, self._most_waits):
            if line is None:
                self.stop()
                yield f"hung: no end after {self._most_waits} s"
                return
            answer = msgspec.json.decode(line, type=Answer)
            if answer.index < 0:
                return
            yield answer
        yield self._ending()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            self._child = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        return self._child

    def _ending(self) -> str:
        """How the child ended, in words."""
        assert self._child is not None
        code = self._child.wait()
        self.stop()
        if code < 0:
            return f"crashed: {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    def stop(self) -> None:
        """Ends the child; later work starts another."""
        if self._child is not None:
            end(self._child)
            self._child = None


def _lines(pipe: IO[bytes], most_waits: int) -> Iterator[bytes | None]:
    """Lines of a pipe as they come, until it ends; None after too many waits without one."""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        rest, waits = b"", 0
        while True:
            if not selector.select(_WAIT_S):
                waits += 1
                if waits >= most_waits:
                    yield None
                continue
            data = os.read(pipe.fileno(), 1 << 16)
            if not data:
                return
            waits = 0
            *lines, rest = (rest + data).split(b"\n")
            yield from lines
