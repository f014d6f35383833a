from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import factories
import numpy as np
import pytest
from typer.testing import CliRunner

from veltair.eval import peers
from veltair.eval.bench_command import largest_difference, parse_counts
from veltair.eval.bench_launch import measure
from veltair.eval.record import spread
from veltair.runtime import cli
from veltair.runtime.errors import InputError


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    factories.write_tiny_artifact(tmp_path / "tiny" / "1")
    return tmp_path / "tiny"


def bench(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli.app, ["bench", *map(str, arguments)], prog_name="veltair")
    return result.exit_code, result.stdout, result.stderr


def tiny_onnx(path: Path, seed: int = 0) -> Path:
    """The tiny model as ONNX."""
    import onnx
    from onnx import helper, numpy_helper

    nodes = [
        helper.make_node("MatMul", ["data", "weight"], ["product"]),
        helper.make_node("Relu", ["product"], ["relu"]),
        helper.make_node("Mul", ["relu", "half"], ["scores"]),
    ]
    shapes = {
        "data": (factories.TINY_ROWS, factories.TINY_INNER),
        "scores": (factories.TINY_ROWS, factories.TINY_COLUMNS),
    }
    data, scores = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    )
    constants = {"weight": factories.tiny_weights(seed), "half": np.float32(0.5)}
    graph = helper.make_graph(
        nodes,
        "tiny",
        [data],
        [scores],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)
    return path


def test_a_comparison_is_saved_with_all_that_made_it(tiny: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    saved = tmp_path / "result.json"
    arguments = ["--against", "onnxruntime", "--onnx", tiny_onnx(tmp_path / "tiny.onnx")]
    code, out, err = bench(tiny, *arguments, "--cores", 1, "--seconds", 0.1, "--json", saved)
    assert (code, err) == (0, "")
    assert "onnxruntime" in out
    result: dict[str, Any] = json.loads(saved.read_text())
    assert result["machine"]["cpu"]
    assert result["revision"]
    assert result["plan"]["budget_ns"] == 100_000_000
    (case,) = result["cases"]
    assert (case["model"], case["cores"], case["rounds"]) == ("tiny", 1, 5)
    ours, theirs = case["engines"]
    assert theirs["settings"] == {"intra_op_num_threads": 1, "inter_op_num_threads": 1}
    assert 0 < ours["run_ns"]["p10"] <= ours["run_ns"]["p50"] <= ours["run_ns"]["p90"]
    assert theirs["ratio"]["p50"] > 0
    assert theirs["difference"] < 1e-5


def test_a_file_that_a_peer_cannot_load_is_named(tiny: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    other = tmp_path / "other.onnx"
    other.write_bytes(b"not onnx")
    code, _, err = bench(tiny, "--against", "onnxruntime", "--onnx", other, "--cores", 1)
    assert code == 2
    assert "onnxruntime can't load it" in err


BAD_OPTIONS: dict[str, tuple[list[str], int, str]] = {
    "unknown engine": (["--against", "tensorrt", "--onnx", "f"], 2, "choose from onnxruntime"),
    "no file": (["--against", "openvino"], 2, "0 files for 1 artifacts"),
    "missing file": (["--against", "openvino", "--onnx", "missing.onnx"], 2, "no such file"),
    "cores": (["--cores", "1,two"], 2, "with commas between"),
    "too many cores": (["--cores", "100000"], 2, "--cores 100000"),
    "seconds": (["--seconds", "0"], 2, "--seconds 0"),
    "json": (["--json", "missing/result.json"], 2, "there is no folder missing"),
}


@pytest.mark.parametrize(("options", "code", "message"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_bad_options_end_before_measuring(
    tiny: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f").touch()
    printed = bench(tiny, *options)
    assert (printed[0], printed[1]) == (code, "")
    assert message in printed[2]


def test_a_peer_that_is_not_installed_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"openvino: .*pip install 'veltair\[peers\]'"):
        peers.check_peers(["openvino"])


def test_core_counts_are_parsed() -> None:
    assert parse_counts(None) == []
    assert parse_counts("2,1") == [2, 1]
    for text in ("", "1,", "0", "-1", "1.5", "a"):
        with pytest.raises(InputError, match="--cores"):
            parse_counts(text)


def test_differences_are_relative_to_the_range() -> None:
    expected = np.array([-10.0, 10.0])
    assert largest_difference({"y": np.array([-10.0, 10.2])}, {"y": expected}) == pytest.approx(
        0.01
    )
    assert largest_difference({"y": np.ones(3)}, {"y": np.ones(3)}) == 0
    for ours in ({"z": expected}, {"y": expected[:1]}):
        with pytest.raises(InputError, match="give the file that it was compiled from"):
            largest_difference(ours, {"y": expected})


def test_spreads_of_times_are_whole_nanoseconds() -> None:
    assert spread(np.arange(101)) == {"p10": 10, "p50": 50, "p90": 90}
    assert spread(np.array([0.5])) == {"p10": 0.5, "p50": 0.5, "p90": 0.5}


def test_launches_are_measured() -> None:
    cpus = sorted(os.sched_getaffinity(0))[:2]
    results = measure(cpus, launches=200, wake_ups=10, sleep_ns=100_000)
    names = ["empty_launch", "empty_launch_chosen", "all_cores_awake"]
    names += ["all_cores_asleep", "one_thread_asleep"] if len(cpus) > 1 else []
    assert list(results) == names
    for summary in results.values():
        assert 0 < summary["p10_ns"] <= summary["p50_ns"] <= summary["p99_ns"]
    assert os.sched_getaffinity(0) >= set(cpus)
