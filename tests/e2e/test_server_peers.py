"""Servers over HTTP: one that answers at once, servers that fail, and the real ones."""

from __future__ import annotations

import base64
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray
from peer_models import WIDTH, arrivals, chain

from veltair.eval.allocator import TUNABLES, in_huge_pages
from veltair.eval.capacity.peers import http_client, whole_server
from veltair.eval.capacity.peers.alone.engines import draw_inputs
from veltair.eval.capacity.peers.client_cost import measure
from veltair.eval.capacity.peers.environments import Environment
from veltair.eval.capacity.peers.http_client import Request
from veltair.eval.capacity.peers.products import LitServe, MlServer, RayServe, raw_request
from veltair.eval.capacity.peers.whole_server import ALONE, WholeServer
from veltair.eval.capacity.system import Candidate
from veltair.eval.outcomes import Allowance
from veltair.eval.ports import HOST, free_port
from veltair.runtime.errors import VeltairError
from veltair.runtime.simulate.run import SERVED

PRODUCTS = (MlServer(), RayServe(), LitServe())
PRODUCTS_OF = {"long": 20, "short": 2}  # matrix products of each model
CPUS = sorted(os.sched_getaffinity(0))[:2]
NULL = (ALONE / "null_server.py").read_text()
DAEMON = """
import os, subprocess, sys
left = "import os, time; os.setsid(); print('daemon', os.getpid(), flush=True); time.sleep(1000)"
print("home", os.environ["HOME"], os.environ["TMPDIR"], flush=True)
subprocess.run(["sh", "-c", f'"{sys.executable}" -c "{left}" &'], check=True)
"""


class Program:
    """A product that is a program in this environment."""

    environment = Environment(name="program", package="veltair")
    variables: Mapping[str, str] = {}
    ready_path = "/"

    def __init__(self, folder: Path, text: str) -> None:
        self._path = folder / "program.py"
        self._path.write_text(textwrap.dedent(text))

    def command(self, plan: Mapping[str, Any], plan_file: Path) -> list[str]:
        return [sys.executable, str(self._path), str(plan_file)]

    def request(self, model: str, inputs: Mapping[str, Any]) -> Request:
        return raw_request(model, inputs)


@pytest.fixture
def models(tmp_path: Path) -> list[Candidate]:
    return [chain(tmp_path, name, products) for name, products in PRODUCTS_OF.items()]


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    before = set(psutil.Process().children(recursive=True))
    yield
    assert set(psutil.Process().children(recursive=True)) - before == set()


def daemon(log: Path) -> int:
    """The process that left the server's session, as the log tells."""
    end_s = time.monotonic() + 20
    while "daemon" not in log.read_text():
        assert time.monotonic() < end_s
        time.sleep(0.02)
    return int(log.read_text().split("daemon ")[1].split()[0])


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_every_query_is_answered_and_the_servers_time_is_counted(
    models: list[Candidate], tmp_path: Path, scratch: Path
) -> None:
    asked = arrivals([i * 2_000_000 for i in range(200)], [i % 2 for i in range(200)])
    system = WholeServer(Program(tmp_path, NULL))
    with system.running("openvino-1x2", models, CPUS, scratch) as peer:
        found = peer.replay(asked)
    assert (found.outcome == SERVED).all(), found.errors
    assert (found.submitted_ns >= asked.time_ns).all()
    assert (found.end_ns > found.submitted_ns).all()
    assert (found.start_ns == -1).all()
    assert 0 < found.busy_ns < len(CPUS) * (found.end_ns.max() + 10**9)


def test_a_lost_run_is_cut_and_the_next_one_is_whole(
    models: list[Candidate], tmp_path: Path, scratch: Path
) -> None:
    asked = arrivals([i * 2_000_000 for i in range(200)], [i % 2 for i in range(200)])
    system = WholeServer(Program(tmp_path, NULL))
    with system.running("openvino-1x2", models, CPUS, scratch) as peer:
        cut = peer.replay(asked, Allowance(qos_ns=(1, 0), most_late=(4, 0)))
        whole = peer.replay(asked)
    assert 9 <= len(cut.end_ns) < 200
    for run in (cut, whole):
        assert (run.outcome == SERVED).all(), run.errors
    assert len(whole.end_ns) == 200


def test_a_server_and_what_it_started_stay_on_their_processors(
    models: list[Candidate], tmp_path: Path, scratch: Path
) -> None:
    system = WholeServer(Program(tmp_path, DAEMON + NULL))
    others = psutil.Process().children(recursive=True)  # of tests before
    with system.running("openvino-1x1", models, CPUS[:1], scratch):
        started = daemon(scratch / "log.txt")
        bound = [
            each.cpu_affinity()
            for each in (*psutil.Process().children(recursive=True), psutil.Process(started))
            if each.is_running() and each not in others
        ]
    assert bound
    assert all(cpus == CPUS[:1] for cpus in bound)
    assert has_ended(started)
    home, temporary = (scratch / "log.txt").read_text().split("home ")[1].split()[:2]
    assert home == temporary
    assert not Path(home).exists()


def test_a_server_gets_its_memory_in_huge_pages(
    models: list[Candidate], tmp_path: Path, scratch: Path
) -> None:
    telling = f"import os\nprint('told', os.environ['{TUNABLES}'], flush=True)\n"
    with WholeServer(Program(tmp_path, telling + NULL)).running(
        "openvino-1x1", models, CPUS, scratch
    ):
        told = (scratch / "log.txt").read_text().split("told ")[1].split()[0]
    assert told == in_huge_pages(os.environ)[TUNABLES]


def test_a_server_that_dies_at_its_start_is_said_with_its_log(
    models: list[Candidate], tmp_path: Path, scratch: Path
) -> None:
    system = WholeServer(Program(tmp_path, "raise SystemExit('no such thing as a model')"))
    with (
        pytest.raises(VeltairError, match=r"(?s)ended with code 1; .*no such thing as a model"),
        system.running("openvino-1x1", models, CPUS, scratch),
    ):
        pass


def test_a_server_that_dies_while_it_serves_ends_the_run(
    models: list[Candidate], tmp_path: Path, scratch: Path
) -> None:
    dying = """
import os, pathlib, threading, time
def watch():
    while not pathlib.Path("die").exists():
        time.sleep(0.02)
    os._exit(9)
threading.Thread(target=watch, daemon=True).start()
"""
    system = WholeServer(Program(tmp_path, DAEMON + dying + NULL))
    asked = arrivals([i * 10_000_000 for i in range(3000)], [0] * 3000)
    with system.running("openvino-1x1", models, CPUS, scratch) as peer:
        killer = threading.Timer(0.5, (scratch / "die").touch)
        killer.start()
        begin_s = time.monotonic()
        with pytest.raises(VeltairError, match="the server ended with code 9"):
            peer.replay(asked)
    assert time.monotonic() - begin_s < 25  # not only after the last arrival
    assert has_ended(daemon(scratch / "log.txt"))


def test_a_server_whose_port_is_taken_is_not_mistaken_for_the_one_that_has_it(
    models: list[Candidate], tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    other = tmp_path / "other.json"
    other.write_text(f'{{"port": {port}}}')
    first = subprocess.Popen([sys.executable, str(ALONE / "null_server.py"), str(other)])
    end_s = time.monotonic() + 20
    while time.monotonic() < end_s:
        with socket.socket() as trying:
            if trying.connect_ex((HOST, port)) == 0:
                break
        time.sleep(0.02)
    monkeypatch.setattr(whole_server, "free_port", lambda: port)
    try:
        with (
            pytest.raises(VeltairError, match=r"(?s)ended with code 1; .*address already in use"),
            WholeServer(Program(tmp_path, NULL)).running("openvino-1x1", models, CPUS, scratch),
        ):
            pass
    finally:
        first.kill()
        first.wait()


def test_a_server_that_never_gets_ready_is_given_up(
    models: list[Candidate], tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_server, "START_S", 8.0)
    waiting = DAEMON + "import time\ntime.sleep(1000)\n"
    with (
        pytest.raises(VeltairError, match=r"(?s)not ready within 8 s; .*daemon"),
        WholeServer(Program(tmp_path, waiting)).running("openvino-1x1", models, CPUS, scratch),
    ):
        pass
    assert has_ended(daemon(scratch / "log.txt"))


def test_a_server_that_refuses_what_it_is_asked_fails_at_its_start(
    models: list[Candidate], tmp_path: Path, scratch: Path
) -> None:
    refusing = NULL.replace(
        "self._transport.write(_ANSWER)",
        "self._transport.write(_ANSWER if not self._posted else _REFUSAL)",
    )
    refusing = refusing.replace(
        "before, end, after =",
        "self._posted = self._heading.startswith(b'POST')\n            before, end, after =",
    ).replace(
        "_END = ", "_REFUSAL = b'HTTP/1.1 404 No\\r\\nContent-Length: 4\\r\\n\\r\\nnone'\n_END = "
    )
    with (
        pytest.raises(VeltairError, match="HTTP 404: none"),
        WholeServer(Program(tmp_path, refusing)).running("openvino-1x1", models, CPUS, scratch),
    ):
        pass


def test_a_server_that_answers_nothing_is_given_up(
    models: list[Candidate], tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = WholeServer(Program(tmp_path, NULL))
    with system.running("openvino-1x1", models, CPUS, scratch) as peer:
        monkeypatch.setattr(http_client, "ANSWER_S", 1.0)
        stopped = [
            each
            for each in psutil.Process().children(recursive=True)
            if any("program.py" in word for word in each.cmdline()[1:2])
        ]
        assert stopped
        for each in stopped:
            each.send_signal(signal.SIGSTOP)
        with pytest.raises(VeltairError, match="2 queries have not been answered for 1 s"):
            peer.replay(arrivals([0, 0], [0, 1]))
        for each in stopped:
            each.send_signal(signal.SIGCONT)


def test_nothing_is_left_of_a_killed_evaluation(
    models: list[Candidate], tmp_path: Path, scratch: Path
) -> None:
    program = f"""
        import os, signal, sys
        from pathlib import Path
        sys.path[:0] = [{str(Path(__file__).parent.parent)!r}, {str(Path(__file__).parent)!r}]
        from peer_models import chain
        from test_server_peers import DAEMON, NULL, Program
        from veltair.eval.capacity.peers.whole_server import WholeServer
        folder = Path({str(tmp_path)!r})
        system = WholeServer(Program(folder, DAEMON + NULL))
        models = [chain(folder, "short", 1)]
        with system.running("openvino-1x1", models, {CPUS}, folder / "scratch"):
            os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    started = daemon(scratch / "log.txt")
    end_s = time.monotonic() + 30
    while not has_ended(started):
        assert time.monotonic() < end_s, "a process of the server outlived the evaluation"
        time.sleep(0.05)


def test_the_clients_own_cost_is_measured() -> None:
    image = {"image": np.zeros((1, 3, 32, 32), np.float32)}
    found = measure(raw_request("null", image), 100, 0.5)
    assert found["processor time"] > 0
    assert 0 <= found["late p50"] <= found["latency p50"] <= found["latency p99"]


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.environment.name)
@pytest.mark.parametrize("setting", ["openvino-1x1", "onnxruntime-2x1"])
def test_a_real_server_answers_what_the_model_says_and_leaves_nothing(
    product: whole_server.Product, setting: str, models: list[Candidate], scratch: Path
) -> None:
    system = WholeServer(product)
    reason = system.missing()
    if reason is not None:
        pytest.skip(reason)
    if "2x" in setting and len(CPUS) < 2:
        pytest.skip("needs two processors")
    asked = arrivals([i * 50_000_000 for i in range(40)], [i % 2 for i in range(40)])
    with system.running(setting, models, CPUS, scratch) as peer:
        found = peer.replay(asked)
        answers = {name: answer(product, name, scratch) for name in PRODUCTS_OF}
    assert (found.outcome == SERVED).all(), found.errors
    assert found.busy_ns > 0
    data = draw_inputs({"data": (WIDTH, WIDTH)}, {"data": "float32"})["data"]
    for name, products in PRODUCTS_OF.items():
        np.testing.assert_array_equal(answers[name], data / 2**products)


def answer(product: whole_server.Product, model: str, scratch: Path) -> NDArray[np.float32]:
    """The tensor that a server answers."""
    inputs = draw_inputs({"data": (WIDTH, WIDTH)}, {"data": "float32"})
    request = product.request(model, inputs)
    port = json.loads((scratch / whole_server.PLAN_FILE).read_text())["port"]
    connection = http.client.HTTPConnection(HOST, port, timeout=30)
    connection.request("POST", request.path, request.body, dict(request.headers))
    body = connection.getresponse().read()
    connection.close()
    if isinstance(product, MlServer):
        (output,) = json.loads(body)["outputs"]
        body = base64.b64decode(output["data"][0])
    return np.frombuffer(body, np.float32).reshape(WIDTH, WIDTH)
