"""The little C++ that only benchmarks need: built when they run, as kernels are linked.

What it does depends on the instruction set that is measured, so that the extension, which runs on
every processor, is no place for it.
"""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

from veltair.compiler.toolchain import system_compiler
from veltair.runtime.errors import VeltairError

_SOURCES = Path(__file__).resolve().parent / "native"


def build(source: str, output: Path, *options: str) -> Path:
    """Compiles a file of `native/` to a shared library.

    Args:
        source: the file's name.
        output: the library; its folder is made.
        options: for the compiler.

    Returns:
        `output`.

    Raises:
        InputError: no C++ compiler on this machine.
        VeltairError: it can't be compiled.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    command = [*system_compiler(), "-std=c++20", "-O2", "-shared", "-fPIC", *options]
    command += ["-o", str(output), str(_SOURCES / source)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise VeltairError(f"{shlex.join(command)} failed: {done.stderr.strip()}")
    return output
