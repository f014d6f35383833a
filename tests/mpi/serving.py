"""Real servers under a real `mpirun`, for tests: started, watched, and gone afterwards."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil
from factories import tiny_input, tiny_reference

from veltair.runtime.client import LocalClient
from veltair.runtime.serve_command import MPIRUN_OPTIONS, SESSION_FOLDER, find_mpirun

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

START_S = 60.0  # generous: the machine may be busy
# Where killed ones can't have left what `mpirun` stumbles over.
_SESSIONS = tempfile.TemporaryDirectory(prefix="mpirun-")
ENVIRONMENT = {
    **os.environ,
    SESSION_FOLDER: _SESSIONS.name,
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


def mpirun_command(ranks: int, *arguments: str) -> list[str]:
    """The command that the README names for those who run `mpirun` themselves."""
    options = [*MPIRUN_OPTIONS, "-n", str(ranks)]
    serve = [sys.executable, "-m", "veltair.runtime.server.main"]
    return [str(find_mpirun()), *options, *serve, *arguments]


def serve_command(workers: int, *arguments: str) -> list[str]:
    """The command that starts `mpirun` itself."""
    veltair = [sys.executable, "-c", "from veltair.runtime.cli import main; main()"]
    return [*veltair, "serve", "--workers", str(workers), *arguments]


def wait_until(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    """Fails the test where the condition does not come true in time."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def _is_ours(command: list[str]) -> bool:
    return command[1:3] == ["-m", "veltair.runtime.server.main"]


class RunningServer:
    """A server's processes and what they print. Use it in a `with`."""

    def __init__(self, command: Sequence[str]) -> None:
        """Starts the command in a session of its own."""
        environment = dict(ENVIRONMENT)
        if Path(command[0]).name != "mpirun":
            del environment[SESSION_FOLDER]  # `veltair serve` has its own
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self.address = ""
        self._seen: dict[int, psutil.Process] = {}
        self._queue: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._queue.put(line.rstrip())
        self._queue.put(None)

    def wait_ready(self) -> RunningServer:
        """Waits for the line with the address."""
        end = time.monotonic() + START_S
        while not self.address:
            line = self._queue.get(timeout=max(end - time.monotonic(), 0))
            assert line is not None, f"ended while starting: {self.lines}"
            self.lines.append(line)
            if line.startswith("serving at "):
                self.address = line.split()[2]
        self.tree()
        return self

    def wait_line(self, part: str) -> str:
        """Waits for a line that contains `part`."""
        end = time.monotonic() + START_S
        while True:
            line = self._queue.get(timeout=max(end - time.monotonic(), 0))
            assert line is not None, f"no line with {part!r}: {self.lines}"
            self.lines.append(line)
            if part in line:
                return line

    def client(self) -> LocalClient:
        """Attaches to the server."""
        return LocalClient.attach(self.address)

    def tree(self) -> list[psutil.Process]:
        """All processes of the server now; they are remembered for `assert_gone`."""
        try:
            root = psutil.Process(self.process.pid)
            found = [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []
        self._seen |= {process.pid: process for process in found}
        return found

    def ranks(self) -> list[psutil.Process]:
        """The rank processes themselves, not their guardians: rank 0 first, the newest last."""
        found: dict[tuple[bool, str, float], psutil.Process] = {}
        for process in self.tree():
            with suppress(psutil.NoSuchProcess):
                command = process.cmdline()
                parent = process.parent()
                # A rank's parent is its guardian, or, where it is a replacement, rank 0.
                if parent is None or not (_is_ours(command) and _is_ours(parent.cmdline())):
                    continue
                place = process.environ()["OMPI_COMM_WORLD_RANK"]
                found["--replacement" in command, place, process.create_time()] = process
        return [found[key] for key in sorted(found)]

    def wait_end(self, timeout_s: float = 60.0) -> int:
        """Waits for the command's end; returns its exit code."""
        code = self.process.wait(timeout=timeout_s)
        self._reader.join(timeout=10)
        while (line := self._queue.get_nowait() if not self._queue.empty() else None) is not None:
            self.lines.append(line)
        return code

    def assert_gone(self, timeout_s: float = 15.0) -> None:
        """No process of the server is left."""
        _, left = psutil.wait_procs(list(self._seen.values()), timeout=timeout_s)
        assert not left, f"left behind: {[process.cmdline() for process in left]}"

    def __enter__(self) -> RunningServer:
        """Returns itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends whatever is left, so that a failed test leaves nothing behind."""
        for process in self.tree():
            self._seen[process.pid] = process
        for process in self._seen.values():
            if process.is_running():
                process.kill()
        self.process.wait(timeout=30)


def left_in_shared_memory() -> set[str]:
    """Names of shared segments of Veltair and Open MPI in the system."""
    ours = ("veltair", "sm_segment", "vader", "osc_", "ompi")
    return {path.name for path in Path("/dev/shm").iterdir() if path.name.startswith(ours)}


def ask_and_check(client: LocalClient, queries: int, within_ns: int) -> None:
    """Sends queries of the model `tiny` all at once; every answer must be right, and in time."""
    sent: dict[int, np.ndarray] = {}
    for tag in range(queries):
        slot = client.allocate("tiny", 1)
        sent[tag] = tiny_input(tag)
        slot.inputs["data"][...] = sent[tag]
        client.submit(slot, tag=tag, deadline_ns=time.monotonic_ns() + within_ns)
    while sent:
        completions = client.wait(timeout_s=60)
        assert completions
        for completion in completions:
            assert completion.ok, completion.error
            expected = tiny_reference(sent.pop(completion.tag))
            np.testing.assert_allclose(
                completion.slot.outputs["scores"], expected, rtol=1e-4, atol=1e-4
            )
            completion.slot.release()
