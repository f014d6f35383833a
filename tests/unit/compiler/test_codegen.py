from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm.tirx import PrimFunc

from veltair.compiler import codegen
from veltair.compiler.kernels import build_matmul
from veltair.compiler.kernels.loops import Loops, load
from veltair.compiler.kernels.spec import MatmulSpec, View
from veltair.runtime.errors import InputError, VeltairError

ISAS = ["x86-64-v3", "x86-64-v4"]


def scale(factor: int) -> PrimFunc:
    """y = factor * x over 64 elements."""
    b = Loops(8)
    view = View(shape=(64,), strides=(1,))
    x, y = b.buffer("x", view), b.buffer("y", view)
    with b.loop(8, "i", "parallel") as i:
        value = load(x, [i * 8], 8)
        total = value
        for _ in range(factor - 1):
            total = total + value
        b.store(y, [i * 8], total)
    return b.function([x, y])


def unbuildable() -> PrimFunc:
    """Stores a variable that nothing defines."""
    y = tvm.tirx.decl_buffer((64,), "float32", "y")
    store = tvm.tirx.BufferStore(y, tvm.tirx.Var("undefined", "float32"), [0])
    return tvm.tirx.PrimFunc([y], store)


def aligned(values: np.ndarray) -> np.ndarray:
    raw = np.empty(values.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    out = raw[start : start + values.nbytes].view(values.dtype)
    out[:] = values
    return out


def build(
    kernels: list[tuple[str, PrimFunc]], folder: Path, jobs: int = 1
) -> tuple[Path, list[str]]:
    output, built = folder / "kernels.so", []
    with codegen.LibraryBuilder("x86-64-v3", jobs=jobs) as library:
        for symbol, func in kernels:
            library.add(symbol, tvm.ir.save_json(func))
        library.link(output, built.append)
    return output, built


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_kernel_is_exported_and_works(tmp_path: Path, jobs: int) -> None:
    symbols = [f"scale_{factor}" for factor in range(1, 6)]
    kernels = [(symbol, scale(i + 1)) for i, symbol in enumerate(symbols)]
    output, built = build(kernels, tmp_path, jobs)
    assert sorted(built) == symbols
    module = tvm_ffi.load_module(str(output))
    x = aligned(np.arange(64, dtype=np.float32))
    for i, symbol in enumerate(symbols):
        y = aligned(np.zeros(64, np.float32))
        getattr(module, symbol)(tvm_ffi.from_dlpack(x), tvm_ffi.from_dlpack(y))
        np.testing.assert_array_equal(y, (i + 1) * x)


def test_library_needs_only_the_ffi_and_has_the_weak_pointers(tmp_path: Path) -> None:
    output, _ = build([("one", scale(1)), ("two", scale(2))], tmp_path)
    dynamic = subprocess.run(
        ["readelf", "-dW", str(output)], capture_output=True, text=True, check=True
    ).stdout
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", dynamic))
    assert needed - {"libm.so.6", "libc.so.6"} == {"libtvm_ffi.so"}
    assert "RUNPATH" not in dynamic
    assert "RPATH" not in dynamic
    names = subprocess.run(
        ["nm", "-D", str(output)], capture_output=True, text=True, check=True
    ).stdout
    for pointer in ("ParallelLaunch", "AllocWorkspace", "FreeWorkspace"):
        if f"__TVMBackend{pointer}" in names:
            assert re.search(rf" [VW] __TVMBackend{pointer}$", names, re.MULTILINE)
    assert "__TVMBackendParallelLaunch" in names
    assert "__tvm_ffi_one" in names
    assert "__tvm_ffi_two" in names


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_kernel_that_fails_is_named(tmp_path: Path, jobs: int) -> None:
    kernels = [(f"good_{i}", scale(1)) for i in range(4)]
    kernels.insert(2, ("bad_one", unbuildable()))
    with pytest.raises(VeltairError, match="bad_one"):
        build(kernels, tmp_path, jobs)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_stays_one_though_tvm_fails_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)
        raise RuntimeError

    monkeypatch.setattr(codegen, "_compile_text", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build([("one", scale(1))], tmp_path)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert list(tmp_path.iterdir()) == []


def test_no_temporary_folder_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    build([("one", scale(1))], tmp_path)
    with pytest.raises(VeltairError):
        build([("bad", unbuildable())], tmp_path)
    assert list(scratch.iterdir()) == []


def test_without_a_compiler_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(InputError, match="apt install g\\+\\+"):
        build([("one", scale(1))], tmp_path)
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(InputError, match="no-such-compiler"):
        build([("one", scale(1))], tmp_path)


def test_the_compiler_of_the_environment_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(f'#!/bin/sh\ntouch {tmp_path}/used\nexec c++ "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("CXX", f"{wrapper} -O0")
    output, _ = build([("one", scale(1))], tmp_path)
    assert output.exists()
    assert (tmp_path / "used").exists()


def test_an_unknown_isa_is_refused() -> None:
    with pytest.raises(InputError, match="x86-64-v2"):
        codegen.target("x86-64-v2")


@pytest.mark.parametrize("isa", ISAS)
def test_full_vectors_are_used(isa: str) -> None:
    view = View(shape=(28, 64), strides=(64, 1))
    spec = MatmulSpec(m=28, k=64, n=64, data=view, output=view)
    kernel = build_matmul(spec, isa)
    assembly = codegen.lower("k", kernel.func, isa).inspect_source("asm")
    register = {"x86-64-v3": "ymm", "x86-64-v4": "zmm"}[isa]
    products = re.findall(r"\tvfmadd\S+ps\t(.*)", assembly)
    assert len(products) >= 12
    assert "AllocWorkspace" not in assembly
    assert all(register in operands for operands in products)
    assert ("zmm" in assembly) == (isa == "x86-64-v4")
    # No accumulator is spilled: nothing of a vector's size goes to the stack.
    compute = assembly[assembly.index("\nk_compute_") :]
    assert not re.search(rf"%{register}\d+, -?\d*\(%r[sb]p\)", compute)
