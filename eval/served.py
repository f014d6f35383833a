"""A server for the length of a block, as `veltair serve` starts it."""

from __future__ import annotations

import http.client
import re
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, Queue
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from veltair.eval.children import child, python
from veltair.runtime.errors import VeltairError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import TextIO

START_S = 60.0
POLL_S = 0.02

_ADDRESS = re.compile(r"https?://\S+?:\d+")


@dataclass(frozen=True, kw_only=True)
class Served:
    """A server that is ready.

    Attributes:
        address: of HTTP, `http://HOST:PORT`.
        process: `veltair serve`.
    """

    address: str
    process: subprocess.Popen[str]


@contextmanager
def serving(
    repository: Path, *, workers: int, config: Path | None = None, port: int = 0
) -> Iterator[str]:
    """Serves a repository until the block ends; as `served`, but yields the address alone."""
    with served(repository, workers=workers, config=config, port=port) as server:
        yield server.address


@contextmanager
def served(
    repository: Path,
    *,
    workers: int,
    config: Path | None = None,
    port: int = 0,
    log: Path | None = None,
) -> Iterator[Served]:
    """Serves a repository until the block ends.

    Args:
        repository: folder of artifacts.
        workers: worker ranks.
        config: a `serve.toml`.
        port: of HTTP; 0 takes a free one.
        log: gets what the server says; None: its lines are printed.

    Yields:
        The server, once it is ready.

    Raises:
        VeltairError: it ended, or was not ready in time.
    """
    arguments = ["serve", "--repository", str(repository), "--workers", str(workers)]
    arguments += ["--http-port", str(port)]
    if config is not None:
        arguments += ["--config", str(config)]
    command = python("veltair.runtime.cli", *arguments)
    with ExitStack() as stack:
        lines = stack.enter_context(log.open("a")) if log is not None else None
        errors = subprocess.STDOUT if log is not None else None
        process = stack.enter_context(child(command, subprocess.PIPE, errors))
        address = _wait_for_address(process, lines)
        _wait_until_ready(process, address)
        yield Served(address=address, process=process)


def _wait_for_address(process: subprocess.Popen[str], lines: TextIO | None) -> str:
    """Copies the server's lines until one has its address, and goes on afterwards.

    Args:
        process: the server.
        lines: gets them; None: they are printed.
    """
    where = "above" if lines is None else f"in {lines.name}"
    found: Queue[str | None] = Queue()
    output = process.stdout
    assert output is not None

    def read() -> None:
        for line in output:
            with suppress(ValueError):  # the log is closed while the server ends
                print(line, end="", flush=True, file=lines)
            if match := _ADDRESS.search(line):
                found.put(match.group())
        found.put(None)

    threading.Thread(target=read, name="server output", daemon=True).start()
    end_s = time.monotonic() + START_S
    while time.monotonic() < end_s:
        # It may have ended, and a process that it started still have its output open.
        ended = process.poll() is not None
        with suppress(Empty):
            if address := found.get(timeout=POLL_S):
                return address
            ended = True
        if ended:
            raise VeltairError(
                f"the server ended with code {process.wait()}; its lines are {where}"
            )
    raise VeltairError(
        f"the server did not say its address within {START_S:.0f} s; its lines are {where}"
    )


def _wait_until_ready(process: subprocess.Popen[str], address: str) -> None:
    end_s = time.monotonic() + START_S
    while not _is_ready(address):
        if process.poll() is not None:
            raise VeltairError(f"the server ended with code {process.returncode}")
        if time.monotonic() > end_s:
            raise VeltairError(f"the server at {address} was not ready within {START_S:.0f} s")
        time.sleep(POLL_S)


def _is_ready(address: str) -> bool:
    parts = urlsplit(address)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=5)
    try:
        connection.request("GET", "/v2/health/ready")
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()
