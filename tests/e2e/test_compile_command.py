"""`veltair compile` as a user meets it: exit codes, messages, and nothing half-done."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from veltair.runtime.artifact import open_artifact
from veltair.runtime.model import Model

COMMAND = (sys.executable, "-m", "veltair.runtime.cli", "compile")


def tiny(path: Path, *, op: str = "Relu", channels: int = 16) -> Path:
    """A convolution and one more operator, saved at `path`."""
    weight = np.random.default_rng(0).standard_normal((channels, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
            helper.make_node(op, ["c"], ["y"], name="last"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, path)
    return path


def compile_(*arguments: object, **kwargs: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **kwargs,  # type: ignore[call-overload]
    )


def one_line(text: str) -> str:
    """The last line on stderr, which is all that an error prints there but for the bar."""
    return text.strip().splitlines()[-1]


def test_writes_an_artifact_and_its_table(tmp_path: Path) -> None:
    model = tiny(tmp_path / "net.onnx")
    done = compile_(model, "-o", tmp_path / "repo", "--shape", "x=1,3,8,8", "--qos-ms", "5")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "repo" / "net" / "1"
    files = {"manifest.json", "weights.bin", "kernels.so", "search.json"}
    assert {p.name for p in folder.iterdir()} == files
    assert "conv3x3+relu" in done.stdout
    assert "largest difference to ONNX Runtime" in " ".join(done.stdout.split())
    again = compile_(model, "-o", tmp_path / "repo", "--shape", "x=1,3,8,8")
    assert again.returncode == 2
    assert "--force to replace it" in one_line(again.stderr)
    forced = compile_(model, "-o", tmp_path / "repo", "--shape", "x=2,3,8,8", "--force")
    assert forced.returncode == 0, forced.stderr
    assert {p.name for p in (tmp_path / "repo").iterdir()} == {"net"}
    shown = subprocess.run(
        [sys.executable, "-m", "veltair.runtime.cli", "inspect", str(folder)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "input x: float32[2, 3, 8, 8]" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shape", "x=1,3,8"], "doesn't fit the input"),
        (["--shape", "x=1,3,a,8"], "expected INPUT=D,D"),
        (["--shape", "z=1"], "no such input"),
        (["--value", "z=1"], "--value z=...: the model has no such input"),
        (["--value", "x=1"], "--value x=1 doesn't fit the input"),
        (["--value", "x=one"], "expected INPUT=NUMBER,NUMBER"),
        (["--shape", "x=1,3,8,8", "--qos-ms", "inf"], "less than or equal to 1000000000"),
        (["--shape", "x=1,3,8,8", "--qos-ms", "nan"], "--qos-ms"),
        ([], "--shape x=1,3,8,8"),
        (["--shape", "x=1,3,8,8", "--isa", "armv9"], "unknown; choose auto"),
        (["--shape", "x=1,3,8,8", "--name", "a/b"], "a model's name is letters"),
    ],
)
def test_option_that_breaks_its_rule_exits_2(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = compile_(tiny(tmp_path / "net.onnx"), "-o", tmp_path / "repo", *arguments)
    assert done.returncode == 2
    assert message in one_line(done.stderr)
    assert not (tmp_path / "repo").exists()


def test_a_bound_value_is_no_input_of_the_artifact(tmp_path: Path) -> None:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("ReduceSum", ["x", "axes"], ["y"], name="sum", keepdims=0)],
        "g",
        [value("x", TensorProto.FLOAT, [2, 3, 4]), value("axes", TensorProto.INT64, ["n"])],
        [value("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, tmp_path / "net.onnx")
    done = compile_(
        tmp_path / "net.onnx", "-o", tmp_path / "repo", "--value", "axes=0,2", "--strict"
    )
    assert done.returncode == 0, done.stderr
    loaded = Model.load(tmp_path / "repo" / "net" / "1")
    assert [(i.name, i.shape) for i in loaded.manifest.inputs] == [("x", (2, 3, 4))]
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert np.allclose(loaded.run({"x": x})["y"], x.sum((0, 2)))


def test_file_that_is_missing_or_no_model_exits_2(tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("no model\n")
    for name, message in (("absent.onnx", "no such file"), ("text.onnx", "not an ONNX model")):
        done = compile_(tmp_path / name, "-o", tmp_path / "repo")
        assert done.returncode == 2
        assert message in one_line(done.stderr)


def test_operator_that_cannot_be_compiled_exits_3(tmp_path: Path) -> None:
    model = tiny(tmp_path / "net.onnx", op="Frobnicate")
    done = compile_(model, "-o", tmp_path / "repo", "--shape", "x=1,3,8,8")
    assert done.returncode == 3
    assert "operator Frobnicate, node 'last' (from c to y)" in one_line(done.stderr)
    assert not (tmp_path / "repo").exists()


def test_what_cannot_be_compiled_is_told_and_refused_where_asked_for(tmp_path: Path) -> None:
    model = tiny(tmp_path / "net.onnx", op="NonZero")
    arguments = (model, "-o", tmp_path / "repo", "--shape", "x=1,3,8,8")
    done = compile_(*arguments, "--most-bytes", "y=131072")
    assert done.returncode == 0, done.stderr
    assert "1 of 4 layers fall back to ONNX Runtime: 1 of 2 nodes" in done.stdout
    assert "1x16x8x8 -> 4x?" in done.stdout
    assert "NonZero 'last': the shape of 'y' depends on the data" in done.stdout
    done = compile_(*arguments, "--strict", "--force")
    assert done.returncode == 3
    assert "NonZero 'last': the shape of 'y' depends on the data" in done.stderr
    done = compile_(*arguments, "--most-bytes", "y=none", "--force")
    assert done.returncode == 2
    assert "expected NAME=BYTES" in one_line(done.stderr)


def test_what_falls_back_has_this_machines_threads_whatever_the_cores(tmp_path: Path) -> None:
    model = tiny(tmp_path / "net.onnx", op="NonZero")
    here = len(os.sched_getaffinity(0))
    arguments = ("--shape", "x=1,3,8,8", "--cores", 4096, "--levels", 2)
    done = compile_(model, "-o", tmp_path / "repo", *arguments)
    assert done.returncode == 0, done.stderr
    layers = open_artifact(tmp_path / "repo" / "net" / "1").manifest.layers
    (falls_back,) = (layer for layer in layers if layer.fallback is not None)
    threads = {version.parallel_extent for version in falls_back.variants}
    assert threads == {*(1 << i for i in range(here.bit_length())), here}
    done = compile_(model, "-o", tmp_path / "repo", "--cores", 0, "--force")
    assert done.returncode == 2
    assert "--cores" in done.stderr


def test_output_below_a_file_exits_2(tmp_path: Path) -> None:
    model = tiny(tmp_path / "net.onnx")
    done = compile_(model, "-o", model / "repo", "--shape", "x=1,3,8,8")
    assert done.returncode == 2
    assert "is a file, not a folder" in one_line(done.stderr)


@pytest.mark.parametrize("limit_bytes", [20_000, 2_000])
def test_no_room_leaves_nothing_behind(tmp_path: Path, limit_bytes: int) -> None:
    """A limit on file sizes stands in for a full disk: writes fail in the same places."""

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    model = tiny(tmp_path / "net.onnx", channels=512)
    arguments = (model, "-o", tmp_path / "repo", "--shape", "x=1,3,8,8")
    done = compile_(*arguments, preexec_fn=limited)
    assert done.returncode != 0
    assert not list((tmp_path / "repo").glob("net*"))
    assert not list((tmp_path / "repo").glob(".net*"))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_killed_at_any_moment_leaves_no_artifact(tmp_path: Path, number: signal.Signals) -> None:
    model = tiny(tmp_path / "net.onnx")
    repository = tmp_path / "repo"
    arguments = [*COMMAND, str(model), "-o", str(repository), "--shape", "x=1,3,8,8"]
    start = time.monotonic()
    subprocess.run(arguments, check=True, capture_output=True)
    whole_s = time.monotonic() - start
    for share in (0.3, 0.6, 0.8, 0.95):
        process = subprocess.Popen(
            [*arguments, "--force"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        time.sleep(whole_s * share)
        os.killpg(process.pid, number)
        code = process.wait(timeout=60)
        open_artifact(repository / "net", verify=True)  # the old one or the new one, whole
        # An interrupt while Python still starts ends it by the signal itself.
        assert code in ((0, -number) if number == signal.SIGKILL else (0, -number, 130))
    final = compile_(*arguments[len(COMMAND) :], "--force")
    assert final.returncode == 0, final.stderr
    assert [p.name for p in repository.iterdir()] == ["net"]  # what the killed ones left is gone
