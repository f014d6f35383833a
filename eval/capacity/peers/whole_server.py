"""A server of the package index, in an environment of its own, spoken to over HTTP."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import psutil

from veltair.eval.allocator import in_huge_pages
from veltair.eval.capacity.peers import keeper
from veltair.eval.capacity.peers.alone import __file__ as alone_file
from veltair.eval.capacity.peers.alone.engines import ENGINES, draw_inputs
from veltair.eval.capacity.peers.grid import parse_split, places, splits
from veltair.eval.capacity.peers.http_client import HttpPeer, Request, connected
from veltair.eval.capacity.peers.in_process import model_file
from veltair.eval.capacity.peers.log import LOG_FILE, end_of
from veltair.eval.capacity.peers.processor_time import tree
from veltair.eval.children import child, python
from veltair.eval.ports import HOST, free_port
from veltair.runtime.errors import VeltairError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from veltair.eval.capacity.peers.environments import Environment
    from veltair.eval.capacity.system import Candidate

START_S = 300.0
ALONE = Path(alone_file).parent
PLAN_FILE = "plan.json"
_LOOK_S = 0.1
_STEP_S = 5.0

Plan: TypeAlias = dict[str, Any]


class Product(Protocol):
    """What differs between the servers.

    Attributes:
        environment: that it is installed in.
        variables: of the process's environment.
        ready_path: of the URL that answers 200 once it serves.
    """

    environment: Environment
    variables: Mapping[str, str]
    ready_path: str

    def command(self, plan: Plan, plan_file: Path) -> list[str]:
        """Writes what it needs beside the plan's file, and returns what starts it."""

    def request(self, model: str, inputs: Mapping[str, NDArray[Any]]) -> Request:
        """Returns a query as its clients send it."""


class WholeServer:
    """A server over HTTP; a `System`.

    Attributes:
        name: of the product.
        kind: `peer`.
    """

    kind = "peer"

    def __init__(self, product: Product) -> None:
        """Takes what is its own."""
        self._product = product
        self.name = product.environment.name

    def missing(self) -> str | None:
        """Why it can't run here: its environment isn't there, or not whole."""
        return self._product.environment.missing()

    def version(self) -> str:
        """Of its package."""
        return self._product.environment.version()

    def settings(self, cores: int) -> Sequence[str]:
        """Every even split of the cores with either engine: workers times threads."""
        return [f"{engine}-{split}" for engine in reversed(ENGINES) for split in splits(cores)]

    @contextmanager
    def running(
        self, setting: str, models: Sequence[Candidate], cpus: Sequence[int], scratch: Path
    ) -> Iterator[HttpPeer]:
        """Starts it on a free port and, at the end of the block, leaves no process of it."""
        plan = make_plan(self.name, setting, models, tuple(cpus), free_port())
        plan_file = scratch.resolve() / PLAN_FILE
        plan_file.write_text(json.dumps(plan, indent=1))
        log = scratch / LOG_FILE
        command = self._product.command(plan, plan_file)
        variables = {
            **in_huge_pages(os.environ),
            **self._product.variables,
            "PYTHONPATH": str(ALONE),
        }
        requests = [
            self._product.request(name, draw_inputs(facts["shapes"], facts["dtypes"]))
            for name, facts in plan["models"].items()
        ]
        what = f"{self.name} {setting}"
        with log.open("a") as output, kept(command, cpus, variables, output, scratch) as server:
            wait_until_ready(what, server, plan["port"], self._product.ready_path, log)
            address = f"http://{HOST}:{plan['port']}"
            with connected(what, server, address, requests, log) as peer:
                peer.warm_up()
                yield peer


def make_plan(
    system: str, setting: str, models: Sequence[Candidate], cpus: tuple[int, ...], port: int
) -> Plan:
    """Returns what the server's side reads: see `alone.served`."""
    engine, _, split_text = setting.partition("-")
    split = parse_split(split_text)
    files = {model.name: model_file(system, model) for model in models}
    return {
        "engine": engine,
        "threads": split.threads,
        "places": places(split, cpus),
        "cores": len(cpus),
        "port": port,
        "models": {
            name: {"onnx": each.onnx, "shapes": each.shapes, "dtypes": each.dtypes}
            for name, each in files.items()
        },
    }


@contextmanager
def kept(
    command: Sequence[str],
    cpus: Sequence[int],
    variables: Mapping[str, str],
    output: Any,  # noqa: ANN401 # as of `subprocess.Popen`
    folder: Path,
) -> Iterator[subprocess.Popen[str]]:
    """Runs a server under a keeper until the block ends.

    Args:
        command: that starts it.
        cpus: that it may use.
        variables: of its environment, beside this process's.
        output: where it writes.
        folder: that it runs in.
    """
    added = [f"{name}={value}" for name, value in variables.items()]
    arguments = [",".join(map(str, cpus)), str(folder), "env", *added, *command]
    with child(python(keeper.__name__, *arguments), output, output) as process:
        yield process


def wait_until_ready(
    what: str, server: subprocess.Popen[str], port: int, path: str, log: Path
) -> None:
    """Returns when the server says that it serves.

    Raises:
        VeltairError: it ended, or took too long.
    """
    end_s = time.monotonic() + START_S
    while True:
        if server.poll() is not None:
            raise VeltairError(
                f"{what}: the server ended with code {server.returncode}; {end_of(log)}"
            )
        if _listens(server, port) and _answers(port, path):
            return
        if time.monotonic() > end_s:
            raise VeltairError(f"{what}: not ready within {START_S:.0f} s; {end_of(log)}")
        time.sleep(_LOOK_S)


def _listens(server: subprocess.Popen[str], port: int) -> bool:
    """Whether it is this server that has the port."""
    for pid in tree(server.pid):
        with suppress(psutil.Error):
            sockets = psutil.Process(pid).net_connections("tcp")
            if any(each.laddr[1] == port and each.status == psutil.CONN_LISTEN for each in sockets):
                return True
    return False


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=_STEP_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
