"""Machine code: TIR kernels to one shared library.

Each kernel is lowered and compiled by a pool of processes, since TVM holds Python's lock meanwhile
and a network has dozens of kernels; the objects are linked once by the system's C++ compiler. The
library exports `__tvm_ffi_<symbol>` for each kernel, needs libtvm_ffi.so alone, and holds the weak
pointers `__TVMBackendParallelLaunch`, `__TVMBackendAllocWorkspace` and `__TVMBackendFreeWorkspace`
that its loader fills.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
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
from veltair.compiler.scratch import scratch
from veltair.compiler.toolchain import system_compiler
from veltair.runtime.errors import InputError, VeltairError

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


def symbol_of(kernel: Kernel) -> str:
    """The kernel's name in a library: its id, and a digest of what it computes."""
    text = tvm.ir.save_json(kernel.func)
    suffix = hashlib.sha256(text.encode()).hexdigest()[:8]
    stem = re.sub(r"\W", "_", kernel.variant_id)[:64]
    return f"{stem}_{suffix}"


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


def build_library(
    kernels: Sequence[tuple[str, PrimFunc]],
    isa: str,
    output: Path,
    *,
    jobs: int,
    on_built: Callable[[str], None],
    ready: Mapping[str, Path] | None = None,
) -> None:
    """Compiles kernels and links them into one shared library.

    Args:
        kernels: symbol and PrimFunc of each; symbols are unique.
        isa: instruction set, see `target`.
        output: the library; its folder exists.
        jobs: processes that compile.
        on_built: called with the symbol of each kernel as it is done, in any order.
        ready: objects of kernels that were compiled before, by symbol, for this instruction set.

    Raises:
        InputError: no C++ compiler on this machine, or an unknown instruction set.
        VeltairError: a kernel can't be compiled (named by its symbol), or linking failed.
    """
    compiler = system_compiler()
    target(isa)
    with scratch("codegen") as folder:
        objects = {symbol: folder / f"{i}.o" for i, (symbol, _) in enumerate(kernels)}
        found = {symbol: path for symbol, path in (ready or {}).items() if symbol in objects}
        missing = [kernel for kernel in kernels if kernel[0] not in found]
        if jobs <= 1 or len(missing) < _MIN_KERNELS_FOR_POOL:
            built = _compile_here(missing, isa, objects)
        else:
            built = _compile_in_pool(missing, isa, objects, min(jobs, len(missing)))
        for symbol in itertools.chain(found, built):
            on_built(symbol)
        _link(compiler, list({**objects, **found}.values()), output)


def link(objects: Sequence[Path], output: Path) -> None:
    """Links compiled kernels into a shared library.

    Raises:
        InputError: no C++ compiler on this machine.
        VeltairError: linking failed.
    """
    _link(system_compiler(), objects, output)


def _compile_here(
    kernels: Sequence[tuple[str, PrimFunc]], isa: str, objects: dict[str, Path]
) -> Iterator[str]:
    for symbol, func in kernels:
        try:
            lower(symbol, func, isa).write_to_file(str(objects[symbol]), "o")
        except Exception as error:
            raise _build_error(symbol, error) from error
        yield symbol


def _compile_in_pool(
    kernels: Sequence[tuple[str, PrimFunc]], isa: str, objects: dict[str, Path], jobs: int
) -> Iterator[str]:
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    try:
        futures: dict[Future[None], str] = {
            pool.submit(_compile_text, symbol, tvm.ir.save_json(func), isa, objects[symbol]): symbol
            for symbol, func in kernels
        }
        for future in as_completed(futures):
            try:
                future.result()
            except BrokenProcessPool as error:
                raise VeltairError(
                    f"a compiler process ended while {len(futures)} kernels were built "
                    f"({futures[future]} among them): likely out of memory; use fewer jobs"
                ) from error
            except Exception as error:
                raise _build_error(futures[future], error) from error
            yield futures[future]
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


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
