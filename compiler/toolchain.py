"""The system's C++ compiler: links kernels, and builds the little that benchmarks need natively."""

from __future__ import annotations

import os
import shlex
import shutil

from veltair.runtime.errors import InputError

_COMPILERS = ("c++", "g++", "clang++")


def system_compiler() -> list[str]:
    """The compiler's command, possibly with a wrapper or options, as $CXX may hold them.

    Raises:
        InputError: there is none.
    """
    named = os.environ.get("CXX", "").strip()
    for name in (named,) if named else _COMPILERS:
        command = shlex.split(name)
        if shutil.which(command[0]):
            return command
    looked = f"$CXX, {named}," if named else f"any of {', '.join(_COMPILERS)}"
    raise InputError(
        f"no C++ compiler: {looked} not found on PATH; linking kernels needs one, install g++ "
        "(Debian, Ubuntu: apt install g++) or set CXX"
    )
