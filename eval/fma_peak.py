"""What a core can do at most: independent fused multiply-adds in registers."""

from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING

from veltair.eval.native_code import build

if TYPE_CHECKING:
    from pathlib import Path

    from veltair.runtime.manifest import Isa

OPTIONS: dict[Isa, tuple[str, ...]] = {
    "x86-64-v3": ("-mavx2", "-mfma"),
    "x86-64-v4": ("-mavx512f",),
}
_FIRST_ROUNDS = 1_000_000


class FmaPeak:
    """The loop at an instruction set's width.

    Attributes:
        flops: of one `run`, a multiply-add counted as two.
    """

    def __init__(self, library: Path, run_ns: int) -> None:
        """Loads what `build_peak` made, and counts how many rounds take about `run_ns`."""
        self._loop = ctypes.CDLL(str(library))
        self._loop.RoundFlops.restype = ctypes.c_int64
        self._loop.RunRounds.restype = ctypes.c_float
        self._loop.RunRounds.argtypes = [ctypes.c_int64]
        self._rounds = _FIRST_ROUNDS
        self.run()  # wakes the wide units
        begin_ns = time.perf_counter_ns()
        self.run()
        took_ns = max(time.perf_counter_ns() - begin_ns, 1)
        self._rounds = max(_FIRST_ROUNDS * run_ns // took_ns, 1)
        self.flops = self._rounds * int(self._loop.RoundFlops())

    def run(self) -> None:
        """Runs the loop once, on one core."""
        self._loop.RunRounds(self._rounds)


def build_peak(isa: Isa, output: Path) -> Path:
    """Builds the loop.

    Raises:
        InputError: no C++ compiler on this machine.
        VeltairError: it can't be compiled.
    """
    return build("fma_peak.cc", output, *OPTIONS[isa])
