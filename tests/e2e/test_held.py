"""The native helpers of the benchmarks: built with the system's compiler and run."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from veltair.eval.fma_peak import FmaPeak, build_peak
from veltair.eval.held import Hold, build_hold
from veltair.eval.own_process import in_own_process
from veltair.eval.peers import load_peer
from veltair.runtime.artifact import ISA_FLAGS, available_isa
from veltair.runtime.errors import VeltairError

FLAGS = Path("/proc/cpuinfo").read_text()
can_fault = pytest.mark.skipif("cpuid_fault" not in FLAGS, reason="CPUID can't fault here")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_hold(tmp_path_factory.mktemp("native") / "made" / "hold.so")


def sight(library: Path) -> tuple[bool, bool, int]:
    """Whether AVX-512 is seen before and after, and how often the processor was asked."""
    loaded = ctypes.CDLL(str(library))
    loaded.SeesAvx512.restype = ctypes.c_bool
    before = bool(loaded.SeesAvx512())
    hold = Hold(library)
    asked = hold.answered
    return before, hold.sees_avx512, hold.answered - asked


@can_fault
def test_a_held_process_sees_no_avx512(library: Path) -> None:
    before, after, asked = in_own_process("hold", sight, library)
    assert before == (available_isa() == "x86-64-v4")
    assert not after
    assert asked == 1


def kernels_of_held_openvino(library: Path, onnx: Path) -> dict[str, int]:
    Hold(library)
    return load_peer("openvino", onnx, 1, {}).kernels


@can_fault
def test_held_openvino_has_no_newer_kernels(library: Path, tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    onnx_file = tmp_path / "conv.onnx"
    write_convolution(onnx_file)
    kernels = in_own_process("hold", kernels_of_held_openvino, library, onnx_file)
    assert any("avx2" in name for name in kernels), kernels
    assert not any("avx512" in name for name in kernels), kernels


def write_convolution(path: Path) -> None:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weight = np.ones((32, 32, 3, 3), np.float32)
    shapes = {"data": (1, 32, 16, 16), "out": (1, 32, 14, 14)}
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    graph = helper.make_graph(
        [helper.make_node("Conv", ["data", "weight"], ["out"])],
        "conv",
        values[:1],
        values[1:],
        [numpy_helper.from_array(weight, "weight")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)


def hold_late(library: Path) -> None:
    import onnxruntime  # noqa: F401 # to have asked already

    Hold(library)


def test_an_engine_that_asked_before_is_refused(library: Path) -> None:
    with pytest.raises(VeltairError, match="onnxruntime: imported before the process was held"):
        in_own_process("hold", hold_late, library)


@can_fault
def test_other_faults_end_a_held_process_as_ever(library: Path) -> None:
    program = (
        "import ctypes, pathlib, sys; from veltair.eval.held import Hold; "
        "Hold(pathlib.Path(sys.argv[1])); ctypes.string_at(8)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(library)], check=False)
    assert done.returncode == -signal.SIGSEGV


@pytest.mark.parametrize("isa", list(ISA_FLAGS))
def test_the_peak_counts_the_operations_of_its_rounds(isa: str, tmp_path: Path) -> None:
    if isa == "x86-64-v4" and available_isa() != isa:
        pytest.skip("this CPU lacks AVX-512")
    peak = FmaPeak(build_peak(isa, tmp_path / "peak.so"), 2_000_000)  # type: ignore[arg-type]
    times = []
    for _ in range(20):
        begin_ns = time.perf_counter_ns()
        peak.run()
        times.append(time.perf_counter_ns() - begin_ns)
    lanes = 8 if isa == "x86-64-v3" else 16
    per_round = 2 * lanes * (12 if isa == "x86-64-v3" else 24)
    assert peak.flops % per_round == 0
    # Two multiply-adds a cycle at 6 GHz are the most that any core does.
    assert 0 < peak.flops / min(times) <= 2 * 2 * lanes * 6
