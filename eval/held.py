"""Holds a process to AVX2, so that engines choose their kernels for a processor without AVX-512.

ONNX Runtime has no switch for it, and OpenVINO's reaches only a part of its kernels. Both ask the
processor by the CPUID instruction, which Linux can let fault; the fault's handler answers without
the newer instruction sets. A process is held from then on, and its later threads. A library that
sets a handler of its own for faults, as libtvm_ffi does, must be loaded before.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import TYPE_CHECKING

from veltair.eval.native_code import build
from veltair.runtime.errors import VeltairError

if TYPE_CHECKING:
    from pathlib import Path

_ASKING = ("onnxruntime", "openvino", "tvm")  # they ask as soon as they are imported


def build_hold(output: Path) -> Path:
    """Builds the handler.

    Raises:
        InputError: no C++ compiler on this machine.
        VeltairError: it can't be compiled.
    """
    return build("hold_to_avx2.cc", output)


class Hold:
    """This process, held to AVX2 from the making of this on."""

    def __init__(self, library: Path) -> None:
        """Holds the process by what `build_hold` made.

        Raises:
            VeltairError: the processor or the kernel can't, or an engine has asked already.
        """
        asked = [name for name in _ASKING if name in sys.modules]
        if asked:
            raise VeltairError(
                f"{', '.join(asked)}: imported before the process was held to AVX2, so that it "
                "knows the whole processor; hold a fresh process"
            )
        self._library = ctypes.CDLL(str(library))
        self._library.Answered.restype = ctypes.c_int64
        self._library.SeesAvx512.restype = ctypes.c_bool
        error = self._library.HoldToAvx2()
        if error:
            raise VeltairError(
                f"this processor's CPUID can't be held back ({os.strerror(error)}): it needs "
                "`cpuid_fault` among the flags of /proc/cpuinfo; peers can't be measured with "
                "AVX2 here"
            )
        assert not self.sees_avx512

    @property
    def sees_avx512(self) -> bool:
        """Whether the processor says that it has AVX-512."""
        return bool(self._library.SeesAvx512())

    @property
    def answered(self) -> int:
        """How many times the processor was asked so far."""
        return int(self._library.Answered())
