"""Peers behind a queue: real engines, small models, processes that fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from peer_models import arrivals, chain, lookup

from veltair.eval.allocator import TUNABLES, in_huge_pages
from veltair.eval.capacity.peers import fcfs
from veltair.eval.capacity.peers.alone.engines import ENGINES, compile_openvino
from veltair.eval.capacity.peers.in_process import InProcess
from veltair.eval.capacity.system import Candidate
from veltair.eval.outcomes import Allowance
from veltair.runtime.errors import VeltairError
from veltair.runtime.simulate.run import SERVED

CPUS = sorted(os.sched_getaffinity(0))[:2]
SETTINGS = [(name, setting) for name in ENGINES for setting in InProcess(name).settings(len(CPUS))]
two_processors = pytest.mark.skipif(len(CPUS) < 2, reason="needs two processors")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Candidate]:
    folder = tmp_path_factory.mktemp("models")
    return [chain(folder, "long", 60), chain(folder, "short", 3)]


def engine(name: str) -> InProcess:
    pytest.importorskip(name, reason="make peers installs the engines")
    return InProcess(name)


def children() -> list[psutil.Process]:
    return [
        each
        for each in psutil.Process().children(recursive=True)
        if each.status() != psutil.STATUS_ZOMBIE
        and any("engine_process" in word for word in each.cmdline())
    ]


@pytest.mark.parametrize(("name", "setting"), SETTINGS)
def test_every_setting_answers_every_query(
    name: str, setting: str, models: list[Candidate], tmp_path: Path
) -> None:
    count = 30
    asked = arrivals([i * 4_000_000 for i in range(count)], [i % 2 for i in range(count)])
    with engine(name).running(setting, models, CPUS, tmp_path) as peer:
        found = peer.replay(asked)
        again = peer.replay(asked)
    for run in (found, again):
        assert (run.outcome == SERVED).all(), run.errors
        assert (run.submitted_ns >= asked.time_ns).all()
        assert (run.end_ns > asked.time_ns).all()  # the driver may be the one that has to wait
        told = run.start_ns >= 0
        assert told.all() == ("queues" not in setting)
        assert (run.start_ns >= asked.time_ns)[told].all()
        assert (run.end_ns > run.start_ns)[told].all()
        assert 0 < run.busy_ns < len(CPUS) * (run.end_ns.max() + 10**9)
    assert children() == []


@pytest.mark.parametrize("name", ENGINES)
def test_an_integer_input_is_an_index_into_the_smallest_table(name: str, tmp_path: Path) -> None:
    """BERT's segments: ONNX Runtime refuses other indices, so a peer would be without the model."""
    with engine(name).running("1x1", [lookup(tmp_path, rows=2)], CPUS[:1], tmp_path) as peer:
        found = peer.replay(arrivals([0, 0], [0, 0]))
    assert (found.outcome == SERVED).all(), found.errors


@pytest.mark.parametrize("name", ENGINES)
def test_one_session_serves_in_the_order_of_arrival(
    name: str, models: list[Candidate], tmp_path: Path
) -> None:
    drawn = np.random.default_rng(3).integers(0, 2, 40).tolist()
    with engine(name).running("1x1", models, CPUS[:1], tmp_path) as peer:
        found = peer.replay(arrivals([0] * 40, drawn))
    assert (found.start_ns[1:] >= found.end_ns[:-1]).all()


def test_a_lost_run_is_cut_and_the_next_one_is_whole(
    models: list[Candidate], tmp_path: Path
) -> None:
    asked = arrivals([i * 4_000_000 for i in range(100)], [i % 2 for i in range(100)])
    with engine("onnxruntime").running("1x1", models, CPUS[:1], tmp_path) as peer:
        cut = peer.replay(asked, Allowance(qos_ns=(1, 0), most_late=(4, 0)))
        whole = peer.replay(asked)
    assert 9 <= len(cut.end_ns) < 100
    for run in (cut, whole):
        assert (run.outcome == SERVED).all(), run.errors
    assert len(whole.end_ns) == 100


@two_processors
def test_a_session_that_is_free_takes_the_next_query(
    models: list[Candidate], tmp_path: Path
) -> None:
    # A long query first: while one session has it, the other serves the short ones behind it.
    with engine("onnxruntime").running("2x1", models, CPUS, tmp_path) as peer:
        found = peer.replay(arrivals([0] * 6, [0, 1, 1, 1, 1, 1]))
    assert found.end_ns[1] < found.end_ns[0]
    assert (found.start_ns[2:] >= found.end_ns[1:-1]).all()


@two_processors
def test_sessions_are_bound_to_processors_of_their_own(
    models: list[Candidate], tmp_path: Path
) -> None:
    with engine("openvino").running("2x1", models, CPUS, tmp_path):
        bound = sorted(tuple(each.cpu_affinity()) for each in children())
    assert bound == [(cpu,) for cpu in CPUS]


@pytest.mark.parametrize("name", ENGINES)
def test_a_session_gets_its_memory_in_huge_pages(
    name: str, models: list[Candidate], tmp_path: Path
) -> None:
    with engine(name).running("1x1", models, CPUS[:1], tmp_path):
        (session,) = children()
        # glibc may have put zeros for the colons, while it read them.
        told = Path(f"/proc/{session.pid}/environ").read_bytes().replace(b"\0", b":")
    expected = in_huge_pages(os.environ)[TUNABLES]
    assert f":{TUNABLES}={expected}:".encode() in b":" + told


def test_openvino_computes_in_fp32_and_takes_denormal_numbers_for_zeros(
    models: list[Candidate],
) -> None:
    pytest.importorskip("openvino", reason="make peers installs the engines")
    (model, _) = models
    compiled = compile_openvino(str(model.onnx), model.shapes, {"NUM_STREAMS": 1})
    assert compiled.get_property("CPU_DENORMALS_OPTIMIZATION") is True
    assert "float32" in str(compiled.get_property("INFERENCE_PRECISION_HINT"))


def test_a_model_that_cannot_be_loaded_is_said_with_the_log(
    models: list[Candidate], tmp_path: Path
) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    bad = type(models[0])(**{**vars(models[0]), "onnx": broken})
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with (
        pytest.raises(VeltairError, match=r"(?s)a process ended with code 1.*broken\.onnx"),
        engine("onnxruntime").running("1x1", [bad], CPUS[:1], scratch),
    ):
        pass
    assert "broken.onnx" in (scratch / "log.txt").read_text()
    assert children() == []


def test_a_process_that_dies_ends_the_run(models: list[Candidate], tmp_path: Path) -> None:
    asked = arrivals([i * 2_000_000 for i in range(2000)], [1] * 2000)
    with engine("onnxruntime").running("1x1", models, CPUS[:1], tmp_path) as peer:
        (process,) = children()
        killer = subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -9 {process.pid}"])
        begin_s = time.monotonic()
        with pytest.raises(VeltairError, match="a process ended with code -9"):
            peer.replay(asked)
        assert time.monotonic() - begin_s < 3.5  # not only after the last arrival
        killer.wait()


def test_a_process_that_answers_nothing_is_given_up(
    models: list[Candidate], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcfs, "ANSWER_S", 0.5)
    with engine("onnxruntime").running("1x1", models, CPUS[:1], tmp_path) as peer:
        (process,) = children()
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(VeltairError, match="2 queries have not been answered for"):
            peer.replay(arrivals([0, 0], [0, 1]))
        process.send_signal(signal.SIGCONT)


def test_a_process_that_never_gets_ready_is_given_up(
    models: list[Candidate], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcfs, "START_S", 0.01)
    with (
        pytest.raises(VeltairError, match="not ready within 0 s"),
        engine("onnxruntime").running("1x1", models, CPUS[:1], tmp_path),
    ):
        pass
    assert children() == []


def test_nothing_is_left_of_a_killed_evaluation(models: list[Candidate], tmp_path: Path) -> None:
    engine("onnxruntime")
    program = (
        "import os, signal, sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent.parent)!r})\n"
        "from pathlib import Path\n"
        "import psutil\n"
        "from peer_models import chain\n"
        "from veltair.eval.capacity.peers.in_process import InProcess\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "models = [chain(folder, 'short', 3)]\n"
        f"with InProcess('onnxruntime').running('1x1', models, {CPUS[:1]}, folder):\n"
        "    print(*(each.pid for each in psutil.Process().children()), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    (pid,) = map(int, done.stdout.split())
    end_s = time.monotonic() + 20
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end_s, "the engine's process outlived its evaluation"
        time.sleep(0.05)
