"""Has a child process hand models to ONNX and ONNX Runtime, which some of them crash."""

from __future__ import annotations

import contextlib
import functools
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from veltair.compiler.children import end

# Processor time that one model may take: many times what the largest ones do.
MOST_CPU_S = {"clean": 600, "infer": 120}


class CrashError(Exception):
    """A library has crashed; the message says how. Never leaves the front end."""


class SlowError(CrashError):
    """A library was stopped, since it came to no end."""


class OnnxProcess:
    """Keeps a child from one model to the next: starting it takes longer than a small model."""

    def __init__(self, command: Sequence[str] = ()) -> None:
        """Starts nothing yet.

        Args:
            command: of the child, if not the real one.
        """
        self._command = tuple(command) or (sys.executable, "-m", "veltair.compiler.onnx_child")
        self._child: subprocess.Popen[str] | None = None

    def run(
        self, what: Literal["clean", "infer"], before: Path, after: Path, **options: int
    ) -> str:
        """Writes a model that is cleaned, or has its shapes inferred: see `onnx_child`.

        Args:
            what: to do.
            before: the model's file.
            after: the file to write.
            options: the function's own.

        Returns:
            What is said against the model; empty where nothing is.

        Raises:
            CrashError: it said nothing any more.
            SlowError: it took more than `MOST_CPU_S`.
        """
        most_s = MOST_CPU_S[what]
        child = self._started()
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError):  # then there is no answer either
                request = json.dumps([what, str(before), str(after), options, most_s])
                child.stdin.write(f"{request}\n")
                child.stdin.flush()
            answer = child.stdout.readline()
        except BaseException:
            self.stop()  # what it would answer later belongs to nobody
            raise
        if not answer:
            code = child.wait()
            self.stop()
            if code == -signal.SIGXCPU:
                raise SlowError(f"more than {most_s} s of processor time")
            raise CrashError(signal.Signals(-code).name if code < 0 else f"exit code {code}")
        refusal, ends = json.loads(answer)
        if ends:
            self.stop()
        return str(refusal)

    def _started(self) -> subprocess.Popen[str]:
        if self._child is not None and self._child.poll() is not None:
            self.stop()
        if self._child is None:
            self._child = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        return self._child

    def stop(self) -> None:
        """Ends the child; the next model starts another."""
        if self._child is not None:
            end(self._child)
            self._child = None


@functools.cache
def onnx_process() -> OnnxProcess:
    """This process's; its child ends with it."""
    return OnnxProcess()
