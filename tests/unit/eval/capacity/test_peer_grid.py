from __future__ import annotations

from pathlib import Path

import pytest
from peer_models import chain

from veltair.eval.capacity.peers import peers
from veltair.eval.capacity.peers.engine_process import ModelFile
from veltair.eval.capacity.peers.grid import Split, parse_split, places, splits
from veltair.eval.capacity.peers.in_process import InProcess, model_file, plans
from veltair.runtime.errors import InputError


def test_the_cores_are_divided_evenly_in_every_way() -> None:
    assert [str(split) for split in splits(1)] == ["1x1"]
    assert [str(split) for split in splits(2)] == ["1x2", "2x1"]
    assert [str(split) for split in splits(12)] == ["1x12", "2x6", "3x4", "4x3", "6x2", "12x1"]


@pytest.mark.parametrize("cores", [1, 2, 6, 7, 64])
def test_a_split_is_read_as_it_is_written(cores: int) -> None:
    for split in splits(cores):
        assert parse_split(str(split)) == split
    waiting = Split(sessions=3, threads=4, spinning=False)
    assert str(waiting) == "3x4-blocking"
    assert parse_split("3x4-blocking") == waiting


@pytest.mark.parametrize("cpus", [(0, 1), (3, 5, 8, 9, 12, 13)])
def test_no_two_sessions_share_a_processor(cpus: tuple[int, ...]) -> None:
    for split in splits(len(cpus)):
        given = places(split, cpus)
        assert [len(place) for place in given] == [split.threads] * split.sessions
        assert sorted(cpu for place in given for cpu in place) == sorted(cpus)


def test_each_engine_is_tried_at_what_it_lets_one_choose() -> None:
    onnxruntime, openvino = (InProcess(name) for name in ("onnxruntime", "openvino"))
    assert onnxruntime.settings(2) == ["1x2", "2x1", "1x2-blocking"]
    assert onnxruntime.settings(1) == ["1x1"]
    assert openvino.settings(2) == ["1x2", "2x1", "latency-queues", "throughput-queues"]


def test_a_process_has_the_threads_of_its_processors() -> None:
    def of(setting: str) -> list[tuple[str, int, bool, tuple[int, ...]]]:
        found = plans("openvino", setting, (4, 5, 6, 7), (), 0, 1)
        return [(plan.mode, plan.threads, plan.spinning, plan.cpus) for plan in found]

    assert of("1x4") == [("one", 4, True, (4, 5, 6, 7))]
    assert of("2x2-blocking") == [("one", 2, False, (4, 5)), ("one", 2, False, (6, 7))]
    assert of("4x1") == [("one", 1, True, (cpu,)) for cpu in (4, 5, 6, 7)]
    assert of("latency-queues") == [("latency", 4, True, (4, 5, 6, 7))]
    assert of("throughput-queues") == [("throughput", 4, True, (4, 5, 6, 7))]


def test_a_model_without_its_onnx_file_is_refused(tmp_path: Path) -> None:
    model = chain(tmp_path, "chain", 1)
    assert model_file("openvino", model) == ModelFile(
        onnx=str(tmp_path / "chain.onnx"), shapes={"data": (256, 256)}, dtypes={"data": "float32"}
    )
    without = type(model)(**{**vars(model), "onnx": None})
    with pytest.raises(InputError, match="chain: openvino needs its ONNX file"):
        model_file("openvino", without)


def test_what_is_not_installed_says_how_to_install_it() -> None:
    missing = InProcess("no_such_engine").missing()
    assert missing is not None
    assert "make peers" in missing


def test_peers_have_names_of_their_own() -> None:
    names = [system.name for system in peers()]
    assert len(set(names)) == len(names)
    assert all(system.kind == "peer" for system in peers())
