"""Machine code: TIR kernels to one shared library.

Each kernel is lowered and compiled by a pool of processes, since TVM holds Python's lock meanwhile
and a network has dozens of kernels; the objects are linked once by the system's C++ compiler. The
library exports `__tvm_ffi_<symbol>` for each kernel, needs libtvm_ffi.so alone, and holds the weak
pointers `__TVMBackendParallelLaunch`, `__TVMBackendAllocWorkspace` and `__TVMBackendFreeWorkspace`
that its loader fills.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path

import tvm
import tvm_ffi
from tvm.runtime import Module
from tvm.target import Target
from tvm.tirx import PrimFunc

from veltair.compiler.kernels.default import REASSOCIATE
from veltair.compiler.kernels.intrinsics import prefer_polynomials
from veltair.compiler.kernels.spec import Kernel
from veltair.compiler.toolchain import system_compiler
from veltair.runtime.errors import InputError, VeltairError
from veltair.runtime.interrupts import uninterrupted
from veltair.runtime.scratch import scratch

_TRIPLE = "x86_64-unknown-linux-gnu"
# Starting a worker and importing TVM there costs as much as a few kernels.
_MIN_KERNELS_FOR_POOL = 4


def target(isa: str, *, reassociate: bool = False) -> Target:
    """TVM's target of an instruction set.

    Args:
        isa: `x86-64-v3` (AVX2 and FMA) or `x86-64-v4` (AVX-512).
        reassociate: let LLVM sum in any order, as vectorised reductions need.

    Returns:
        A `tvm.target.Target` of kind `llvm`.

    Raises:
        InputError: the instruction set is neither.
    """
    # LLVM tunes x86-64-v4 for processors that slow down at 512 bits; ours is for those that do not.
    attributes = {"x86-64-v3": [], "x86-64-v4": ["-prefer-256-bit"]}
    if isa not in attributes:
        raise InputError(f"ISA {isa!r}: no code generator for it; use one of {list(attributes)}")
    return Target(
        {
            "kind": "llvm",
            "mtriple": _TRIPLE,
            "mcpu": isa,
            "mattr": attributes[isa],
            "fast-math-reassoc": reassociate,
        }
    )


def serialized(kernel: Kernel) -> tuple[str, str]:
    """The kernel's name in a library, and its PrimFunc as JSON.

    The name is the kernel's id, and a digest of what it computes.
    """
    text = str(tvm.ir.save_json(kernel.func))
    suffix = hashlib.sha256(text.encode()).hexdigest()[:8]
    stem = re.sub(r"\W", "_", kernel.variant_id)[:64]
    return f"{stem}_{suffix}", text


def lower(symbol: str, func: PrimFunc, isa: str) -> Module:
    """Compiles one PrimFunc to a runtime module that exports `__tvm_ffi_<symbol>`."""
    prefer_polynomials()
    func = func.with_attr("global_symbol", symbol)
    # LLVM finds common subexpressions itself; TVM's pass is quadratic in an unrolled tile.
    with tvm.transform.PassContext(opt_level=3, config={"tirx.disable_cse_tir": True}):
        reassociate = func.attrs is not None and REASSOCIATE in func.attrs
        return tvm.tirx.build(
            tvm.IRModule({symbol: func}), target=target(isa, reassociate=reassociate)
        )


class LibraryBuilder:
    """Compiles kernels, each as soon as it is known, and links them into one shared library.

    A context manager: on its end its processes have ended and its files are gone. Thread-safety:
    for one thread.
    """

    def __init__(self, isa: str, *, jobs: int, ready: Mapping[str, Path] | None = None) -> None:
        """Makes a library of no kernels.

        Args:
            isa: instruction set, see `target`.
            jobs: processes that compile.
            ready: objects of kernels that were compiled before, by symbol, for this instruction
                set.

        Raises:
            InputError: no C++ compiler on this machine, or an unknown instruction set.
        """
        self._compiler = system_compiler()
        target(isa)
        self._isa = isa
        self._jobs = jobs
        self._ready = ready or {}
        self._objects: dict[str, Path] = {}  # of every kernel
        self._few: list[tuple[str, str]] = []  # that wait until there are enough for a pool
        self._futures: dict[Future[None], str] = {}
        self._pool: ProcessPoolExecutor | None = None
        self._context = ExitStack()

    def __enter__(self) -> LibraryBuilder:
        """Returns itself."""
        self._folder = self._context.enter_context(scratch("codegen"))
        return self

    def __exit__(self, *_: object) -> None:
        """Gives up what isn't compiled yet."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._context.close()

    def add(self, symbol: str, text: str) -> None:
        """Begins to compile a kernel; the second of a symbol is the same kernel.

        Args:
            symbol: see `serialized`.
            text: its PrimFunc as JSON.
        """
        if symbol in self._objects:
            return
        if symbol in self._ready:
            self._objects[symbol] = self._ready[symbol]
            return
        self._objects[symbol] = self._folder / f"{len(self._objects)}.o"
        self._few.append((symbol, text))
        if self._jobs > 1 and (self._pool is not None or len(self._few) >= _MIN_KERNELS_FOR_POOL):
            self._submit()

    def _submit(self) -> None:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self._jobs,
                mp_context=get_context("spawn"),
                initializer=signal.signal,  # a Ctrl-C is for this process, which ends them
                initargs=(signal.SIGINT, signal.SIG_IGN),
            )
        for symbol, text in self._few:
            job = self._pool.submit(_compile_text, symbol, text, self._isa, self._objects[symbol])
            self._futures[job] = symbol
        self._few.clear()

    def link(self, output: Path, on_built: Callable[[str], None]) -> None:
        """Waits for the kernels and links them.

        Args:
            output: the library; its folder exists.
            on_built: called with the symbol of each kernel as it is done, in any order.

        Raises:
            VeltairError: a kernel can't be compiled (named by its symbol), or linking failed.
        """
        for symbol in self._objects:
            if symbol in self._ready:
                on_built(symbol)
        for symbol, text in self._few:
            try:
                with uninterrupted():
                    _compile_text(symbol, text, self._isa, self._objects[symbol])
            except Exception as error:
                raise _build_error(symbol, error) from error
            on_built(symbol)
        for future in as_completed(self._futures):
            try:
                future.result()
            except BrokenProcessPool as error:
                raise VeltairError(
                    f"a compiler process ended while {len(self._futures)} kernels were built "
                    f"({self._futures[future]} among them): likely out of memory; use fewer jobs"
                ) from error
            except Exception as error:
                raise _build_error(self._futures[future], error) from error
            on_built(self._futures[future])
        _link(self._compiler, list(self._objects.values()), output)


def link(objects: Sequence[Path], output: Path) -> None:
    """Links compiled kernels into a shared library.

    Raises:
        InputError: no C++ compiler on this machine.
        VeltairError: linking failed.
    """
    _link(system_compiler(), objects, output)


def _compile_text(symbol: str, text: str, isa: str, output: Path) -> None:
    """One job of the pool: a PrimFunc as JSON to an object file."""
    lower(symbol, tvm.ir.load_json(text), isa).write_to_file(str(output), "o")


def _build_error(symbol: str, error: Exception) -> VeltairError:
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return VeltairError(f"kernel {symbol}: can't be compiled: {lines[-1].strip()}")


def _link(compiler: Sequence[str], objects: Sequence[Path], output: Path) -> None:
    runtime = Path(tvm_ffi.libinfo.find_libtvm_ffi())
    command = [*compiler, "-shared", "-o", str(output), *map(str, objects)]
    command += [f"-L{runtime.parent}", "-Wl,--as-needed", "-ltvm_ffi", "-lm"]
    command += ["-Wl,--strip-debug", "-Wl,-z,noexecstack"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise VeltairError(
            f"linking {output.name} with {shlex.join(compiler)} failed: {done.stderr.strip()}"
        )
